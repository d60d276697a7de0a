// The node of pattention: its memory plan, and its two passes (passes.cc). Private to this folder.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/pattention/pattention.h"

namespace mudd {

class Pattention : public Node {
 public:
  explicit Pattention(const Attributes& a);

  const char* op() const override { return "pattention"; }
  bool native_bf16() const override { return true; }
  bool weight_like(int i) const override { return i != kX && i != kResidual; }
  bool reads_stored(int i) const override { return weight_like(i) && place_in_projection(i) < 2; }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : -1; }
  bool backward_reads_input(int i) const override {
    if (i == kX) return any_key_ || !keep_scores_;
    if (i == kResidual) return false;
    switch (place_in_projection(i)) {
      case 0: return wants_x_ || !keep_scores_;
      case 1: return true;
      case 2: return !keep_scores_;
      default: return false;
    }
  }

  void infer(Inference& io) override;
  void forward(const Run& run) override;
  void backward(const Run& run) override;

 private:
  // Inputs: x, the four of the first projection, the residual, four of each further projection.
  static constexpr int kX = 0, kFirst = 1, kResidual = 5;
  static constexpr int kMaxProjections = 8;
  static constexpr int64_t kFloat = sizeof(float);
  static constexpr int key_of(int p) { return p == 0 ? kFirst : kResidual + 4 * p - 3; }
  // 0 key, 1 value, 2 and 3 their biases.
  static constexpr int place_in_projection(int i) { return (i < kResidual ? i - kFirst : i - key_of(1)) % 4; }
  static constexpr int value_of(int p) { return key_of(p) + 1; }
  static constexpr int key_bias_of(int p) { return key_of(p) + 2; }
  static constexpr int value_bias_of(int p) { return key_of(p) + 3; }

  struct Projection {
    int64_t n = 0, d_out = 0;
    Theta theta;
    bool wants_key = false, wants_value = false, wants_key_bias = false, wants_value_bias = false;
    bool packs_key = false, packs_value = false;  // here, on every pass
  };

  // The split of rows. Whole: one block, whose GEMMs the threaded drivers split (decoding, short runs).
  struct RowCut {
    int64_t rows = 0, step = 0, slots = 1;
    bool whole = true;

    int64_t blocks() const { return step ? (rows + step - 1) / step : 0; }
    static RowCut choose(int64_t rows, int64_t slots_of_tokens) {
      // 48 and 96 are whole tiles of every level; scores and S of a block stay in L2 up to 1024 tokens.
      const int64_t threads = num_threads();
      RowCut cut{rows, rows, 1, true};
      if (rows < 2 * 48 * threads) return cut;
      cut.step = slots_of_tokens <= 1024 && rows >= 8 * 96 * threads ? 96 : 48;
      cut.slots = std::min(threads, cut.blocks());
      cut.whole = false;
      return cut;
    }
  };

  struct Layout {
    int64_t bytes = 0;
    float* factors = nullptr;                                  // of every row, if samples are dropped
    std::array<std::byte*, kMaxProjections> keys{}, values{};  // packed here
    float *stats = nullptr, *dx = nullptr, *gemm_scratch = nullptr;
    std::byte *scores = nullptr, *slots = nullptr;
    int64_t slot_bytes = 0;
  };

  // The memory of one worker for a block of rows: S or dS, and A if it is not kept (in fp32 the same memory).
  struct Slot {
    float* s;
    std::byte* a;
  };

  // Packed tokens for backward.
  struct Tokens {
    const void *key, *key_plain, *value;
  };

  void infer_projection(Inference& io, int p);
  void check_vector(const Inference& io, int i, const char* name, int64_t size) const;
  void book(Inference& io);
  Layout forward_layout(std::byte* base) const;
  Layout backward_layout(std::byte* base) const;
  // A, and S and dA of backward, are stored in the compute type.
  bool rounds() const { return compute_ != DType::f32; }
  int64_t stored(int64_t n) const { return n * size_of(compute_); }
  // dA, then S; without a gradient of y it contains zeros and replaces that gradient.
  int64_t scores_bytes() const { return std::max(stored(2 * rows_ * most_), widest_ * kFloat); }
  int64_t slot_floats() const { return (cut_.step * most_ + 15) / 16 * 16; }
  Slot slot_at(std::byte* memory) const {
    auto* s = reinterpret_cast<float*>(memory);
    return {s, rounds() ? memory + slot_floats() * kFloat : memory};
  }
  Tensor kept_scores(const Run& run, int p, int64_t begin, int64_t end) const {
    const int64_t n = projections_[static_cast<size_t>(p)].n;
    return {run.saved(p) + stored(begin * n), end - begin, n, n, compute_};
  }
  bool samples_drop() const { return drop_path_ > 0 && trains_; }
  const float* fill_factors(const Run& run, float* factors) const;
  Tokens backward_tokens(const Run& run, int p, const Layout& w) const;
  void multiply_rows(const GemmBlock& g) const;
  template <class Body>
  void over_rows(int64_t rows, Body body) const;
  template <class Body>
  void over_blocks(std::byte* slots, int64_t slot_bytes, Body body) const;
  void scores_of(const Run& run, int p, const void* key, int64_t begin, const Tensor& a) const;
  void values_of(const Run& run, int p, const void* value, const float* factors, int64_t begin, int64_t end,
                 const float* s) const;
  void block_gradients(const Run& run, int p, const Layout& w, const float* factors, const Tokens& tokens,
                       const Tensor& dx, const Tensor& add) const;
  void token_gradients(const Run& run, int p, const Tensor& da, const Tensor& s, const Tensor& dy,
                       float* scratch) const;
  void bias_gradient(const Run& run, const Tensor& x, const float* factors, const GradSink& sink,
                     float* partials) const;

  Theta theta_;
  double zoom_;
  bool keep_scores_;
  double drop_path_;
  std::string purpose_;
  std::vector<Projection> projections_;
  RowCut cut_;
  int64_t rows_ = 0, d_in_ = 0, most_ = 0, widest_ = 0;  // most tokens and largest d_out of a projection
  bool has_residual_ = false, wants_x_ = false, any_key_ = false, trains_ = false;
  bool sums_dx_ = false;  // in scratch: a bf16 dx of several projections is rounded once
  DType compute_ = DType::f32;
  int64_t gemm_bytes_ = 0;
  const PattentionKernels* kernels_ = nullptr;
};

// Call body(begin, end) over the rows of a block, counted from its first: at once inside a task (in pieces if
// they are converted to fp32, so the copies stay in L1), in pieces on all threads for a whole block.
template <class Body>
void Pattention::over_rows(int64_t rows, Body body) const {
  if (!cut_.whole && !rounds()) return body(0, rows);
  constexpr int64_t kRows = 8;
  const int64_t pieces = (rows + kRows - 1) / kRows;
  const auto piece = [&](int64_t task, int) { body(task * kRows, std::min(rows, (task + 1) * kRows)); };
  if (cut_.whole) return parallel_for(pieces, piece);
  for (int64_t i = 0; i < pieces; ++i) piece(i, 0);
}

// Call body(begin, end, memory) for all blocks of rows; the slots of scratch were planned for the thread count
// then.
template <class Body>
void Pattention::over_blocks(std::byte* slots, int64_t slot_bytes, Body body) const {
  const int64_t blocks = cut_.blocks();
  if (cut_.whole) {
    if (blocks) body(0, rows_, slots);
    return;
  }
  std::atomic<int64_t> next{0};
  parallel_for(std::min(cut_.slots, blocks), [&](int64_t slot, int) {
    for (int64_t b = claim(next); b < blocks; b = claim(next))
      body(b * cut_.step, std::min(rows_, (b + 1) * cut_.step), slots + slot * slot_bytes);
  });
}

}  // namespace mudd
