// teacher_loss: cross_entropy mixed with the divergence from a teacher's probabilities (Hinton et al. 2015).
//   loss[r] = (1 - w) cross_entropy[r] + w KL[r]
// The divergence of a row:
//   KL[r] = sum_k p_k (log p_k - log q_k) + P (log P - log Q)
//
// p_k = exp(log_probs[r,k]) are the teacher's probabilities of the K kept tokens ids[r,:], q_k the student's
// softmax at these tokens. P = max(0, 1 - sum_k p_k) and Q = 1 - sum_k q_k are the remaining probabilities.
// docs/maths/distillation.md has the gradients.
//
// Inputs: h, head, targets and bias as in cross_entropy; ids i32 [B, T, K], K < V, strictly ascending in each row
// with a target; log_probs fp32 [B, T, K]. Outputs: as in cross_entropy, but 0 is the mixed loss, and 3 is fp32
// [B, 2]: the summed KL of a sample in nats, and the count of its targets at which both models agree. They agree
// if they have the same likeliest token, the first of equal ones. Output 0 alone has gradients.
//
// The kept logits of a row are set aside and replaced by -infinity. The row kernels of cross_entropy then compute
// the softmax over the rest, without the cancellation of 1 - sum q_k. Both parts are combined in double. Chunks,
// orders of sums and ways to run are the same as in cross_entropy, so the bits depend on nothing else either.
#pragma once
