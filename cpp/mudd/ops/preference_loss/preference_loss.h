// preference_loss: the loss of pairs of answers, one chosen and one rejected, without stored logits.
//
// Samples 2p and 2p + 1 are the chosen and the rejected answer of pair p. Each has the sum l of the
// log-probabilities of its n targets, and the reference has the sum L, an input.
//   dpo (Rafailov et al. 2023, eq. 7; label smoothing e: Mitchell 2023):
//     m = beta ((l_c - L_c) - (l_r - L_r)),  loss = -(1 - e) log sigmoid(m) - e log sigmoid(-m)
//   orpo (Hong et al. 2024, eq. 6 to 8; a = l / n, which needs no reference):
//     m = beta (a_c - a_r),  loss = -a_c - beta log sigmoid(logit(exp(a_c)) - logit(exp(a_r)))
//   orpo with nll, as in trl: -w (l_c + k) instead of -a_c, with the sum k of the targets outside the answer
//
// Inputs: h fp32 [B, T, D], head_VD fp32 and bias_V as in cross_entropy, targets i32 [B, T] (negative ones are
// ignored), reference fp32 [B, W] (dpo): the sum of its columns is L, nll fp32 [B, 5] (orpo): the positions
// [begin, end) of the answer's targets in a row, and three columns whose sum is w. Outputs: 0 losses f64 [S], 1
// counts of pairs f64 [S], 2 fp32 [B, 2] with zeros for rejected answers: 1 if m > 0, and m; 3 the sums l, f64
// [B]. A pair with an answer without targets has no loss and is not counted. Saved: dloss/dl and dloss/dk of each
// sample, f64 [2, B].
//
// With several pairs in a sample, segments i32 [B, T] has the number of each position's answer in its sample, from
// 1; answers of equal number in samples 2p and 2p + 1 are a pair, and reference and nll have the columns of each
// answer.
//
// The node is a cross_entropy whose rows have weights: forward computes the logits for the sums, and backward
// computes them again with the saved weights. Sums of a sample are in row order in double; its two answers are in
// one logical shard, so nothing depends on threads, chunks or micro-batches.
#pragma once

#include <cstdint>

namespace mudd {

enum class Preference : uint8_t { dpo, orpo };

// The settings of the loss.
struct PreferenceRule {
  Preference kind = Preference::dpo;
  double beta = 0.1, smoothing = 0;
};

// An answer: the sum of its log-probabilities, of the reference's, and its count of targets (at least one).
// others: the sum of the targets outside of the answer. nll: the weight of all targets; below 0: the mean of the
// answer.
struct AnswerSums {
  double log_prob = 0, reference = 0;
  int64_t targets = 0;
  double others = 0, nll = -1;
};

// The loss of a pair, its margin, and the gradients of the loss by both sums of log-probabilities, and by the
// chosen answer's others.
struct PairLoss {
  double loss = 0, margin = 0, by_chosen = 0, by_rejected = 0, by_others = 0;
};

PairLoss pair_loss(const PreferenceRule& rule, const AnswerSums& chosen, const AnswerSums& rejected);

}  // namespace mudd
