// The node of cross_entropy: its memory plan (cross_entropy.cc), its two passes (passes.cc) and the gradients
// of a chunk (gradients.cc). For this folder, and regularized_loss, teacher_loss and preference_loss, which derive
// from it.
#pragma once

#include <algorithm>
#include <array>

#include "mudd/graph/node.h"
#include "mudd/graph/right_operand.h"
#include "mudd/ops/cross_entropy/cross_entropy.h"
#include "mudd/ops/cross_entropy/loss_cut.h"

namespace mudd {

class CrossEntropy : public Node {
 public:
  // by_sample: output 2 also has the loss of each sample, and the count of its targets.
  explicit CrossEntropy(const Attributes& a, bool by_sample = false);

  const char* op() const override { return "cross_entropy"; }
  bool native_bf16() const override { return true; }
  bool keeps_f32(int) const override { return true; }  // counts, which must be exact
  bool weight_like(int i) const override { return i == kHead || i == bias_input(); }
  bool reads_stored(int i) const override { return i == kHead; }
  bool computes_in_backward() const override { return training_ && (wants_h_ || wants_head_ || wants_bias_); }

  void infer(Inference& io) override;
  void forward(const Run& run) override;
  void backward(const Run& run) override;

 protected:
  enum Input { kH, kHead, kTargets };

  // Rows [begin, end) of a chunk, counted without ignored targets, and their shards.
  struct Chunk {
    int64_t begin, end;
    int first_shard, shards;
    bool first, last;  // of its group of shards

    int64_t rows() const { return end - begin; }
  };

  // Scratch of one pass.
  struct Layout {
    int64_t bytes = 0, chunk_rows = 0, logit_rows = 0;
    bf16* dlogits = nullptr;  // of a chunk; null: they replace the logits
    float *logits = nullptr, *gradient_scratch = nullptr;
    std::byte* packed = nullptr;  // a stripe of the head
    float* hidden = nullptr;      // gradients of h that wait for more stripes or for the copy to their rows
    float* bias_sums = nullptr;   // per shard
    float* waiting = nullptr;     // levels of the binary counter over groups of shards, V x D each
    // For rows with a target, contiguous; the others are not computed.
    RowSoftmax* stats = nullptr;
    int32_t *targets = nullptr, *rows = nullptr;  // and their rows in h
    int64_t* shard_begin = nullptr;               // shards + 1
    std::byte* further = nullptr;                 // further_bytes() of a derived op
  };
  // The rows of a chunk in h and its gradient: consecutive from `first`, or listed in `list`.
  struct Place {
    int64_t first = 0;
    const int32_t* list = nullptr;
  };
  // The common arguments of both passes.
  struct Work {
    Tensor h, head;
    const float* bias = nullptr;
    int64_t rows = 0, counted = 0, vocabulary = 0, d = 0;
    Layout s;

    ConstCells dlogits() const { return s.dlogits ? ConstCells(s.dlogits) : ConstCells(s.logits); }
    Place place(const Chunk& chunk) const;
  };

  // Hooks of an op that derives from this one.
  virtual int bias_input() const { return kTargets + 1; }  // the number of that input
  // Return the scratch bytes that it needs for `rows` rows, of which `at_once` have logits at the same time.
  virtual int64_t further_bytes(int64_t /*rows*/, int64_t /*at_once*/) const { return 0; }
  // Compute the statistics of row r from its logits; with `weight` the logits become weighted dlogits.
  virtual void row_softmax(const Run& run, const Work& w, int64_t r, float* row, const float* weight) const;
  // Return the loss of row r in nats.
  virtual double row_loss(const Work& w, int64_t r) const;
  // Return the gradient of the result by the loss of row r, a row of shard s.
  virtual double row_weight(const Run& run, const Work& w, int64_t r, int s) const;
  // Write further outputs.
  virtual void finish(const Run& /*run*/, const Work& /*w*/) const {}
  // Check further inputs in the rows with targets, and prepare their gradients in a backward pass.
  virtual void start(const Run& /*run*/, const Work& /*w*/, bool /*backward*/) const {}

  Work work(const Run& run, bool backward) const;
  // Compute the statistics of all rows with targets.
  void row_losses(const Run& run, const Work& w);
  // Compute the gradients from the logits, once again, and the weight of each row.
  void row_gradients(const Run& run, const Work& w);

  const CrossEntropyKernels* kernels_ = nullptr;

 private:
  Layout layout(std::byte* base, int64_t rows, int64_t vocabulary, int64_t d, int shards, bool backward) const;
  // The V x D sums that wait at the same time: log2 of the groups, and one for the last group if it is split.
  int levels(int shards) const;
  // A head that is packed at use is split into equal stripes of half the budget, whose panels stay in the
  // last-level cache. A bf16 gradient of h would be rounded between stripes: then there is one stripe.
  int64_t stripe_rows(int64_t vocabulary, int64_t d) const;

  void collect_targets(const Run& run, Work* w) const;
  // Set the flops for this many rows with targets and weights of the head, before the first pass.
  void count_flops(int64_t rows, int64_t weights);
  template <class Body>
  void over_stripes(const Run& run, const Work& w, Pack how, Body body) const;
  void logits(const Run& run, const Work& w, const Chunk& chunk) const;
  void softmax(const Run& run, const Work& w, const Chunk& chunk, bool backward, bf16* narrowed = nullptr) const;
  void make_dlogits(const Run& run, const Work& w, const Chunk& chunk) const;
  void sum_losses(const Run& run, const Work& w) const;
  void count_guessed(const Run& run, const Work& w) const;

  // The GEMM for a chunk's part of the head gradient.
  struct HeadGradient {
    HeadGradient(const CrossEntropy& op, const Run& run, const Work& w, const Chunk& chunk);
    HeadGradient(const HeadGradient&) = delete;

    GradBlock block;  // points at the other members
    std::array<const float*, kMaxAdds> add{};
    std::array<int64_t, kMaxShards + 1> cuts;
  };
  void chunk_gradients(const Run& run, const Work& w, const Chunk& chunk) const;
  void hidden_gradient(const Run& run, const Work& w, const Chunk& chunk, const GradBlock* beside) const;
  static void deal_hidden(const Run& run, const Work& w, const Chunk& chunk);
  static void clear_uncounted(const Run& run, const Work& w);
  void clear_bias(const Run& run, const Work& w) const;
  static void bias_gradient(const Work& w, const Chunk& chunk);
  void finish_bias(const Run& run, const Work& w) const;

  int64_t budget_;
  DType compute_ = DType::f32;  // of the GEMMs; logits and their gradients are fp32
  LossCut cut_;
  int64_t gradient_bytes_ = 0;  // scratch of the GEMM for dhead
  int64_t most_rows_ = 0;       // of a shard
  int64_t stripe_ = 0;          // rows of the head that are packed at a time
  bool by_sample_ = false;
  bool training_ = false, wants_h_ = false, wants_head_ = false, wants_bias_ = false, packs_ = true;
};

// Call body(begin, end, gemm) for the stripes of the head, or once if the store keeps the packed copy: `gemm`
// has its right operand.
template <class Body>
void CrossEntropy::over_stripes(const Run& run, const Work& w, Pack how, Body body) const {
  GemmBlock gemm;
  gemm.compute = compute_;
  const RightOperand head(op(), run, kHead, how, packs_ ? w.s.packed : nullptr);
  head.put(&gemm);
  if (head.kept) return body(int64_t{0}, w.vocabulary, gemm);
  for (int64_t begin = 0; begin < w.vocabulary; begin += stripe_) {
    const int64_t end = std::min(begin + stripe_, w.vocabulary);
    gemm.pack.w = head.pack.w + begin * w.d;
    gemm.pack.rows = end - begin;
    body(begin, end, gemm);
  }
}

}  // namespace mudd
