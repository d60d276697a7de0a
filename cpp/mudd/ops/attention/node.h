// The node of attention: its memory plan (attention.cc) and its two passes (passes.cc). Private to this folder.
#pragma once

#include <string>
#include <vector>

#include "mudd/graph/node.h"
#include "mudd/ops/attention/attention.h"
#include "mudd/ops/rope/heads.h"

namespace mudd {

class Attention : public Node {
 public:
  explicit Attention(const Attributes& a);

  const char* op() const override { return "attention"; }
  bool backward_reads_output(int i) const override { return i == 0; }
  bool native_bf16() const override { return true; }
  bool writes_input(int i) const override { return i == kKeyCache || i == kValueCache; }
  void infer(Inference& io) override;
  void forward(const Run& run) override;
  void backward(const Run& run) override;

 private:
  enum Input { kQuery, kKey, kValue, kSegments, kKeyMask, kKeyCache, kValueCache };

  // The scratch of backward; from a null pointer only the byte counts.
  struct BackwardScratch {
    float* delta;        // [batch][head][query]
    std::byte* workers;  // bwd_bytes_ for each
    float* sums[3];      // of gradients that are stored in bf16, by input
    int64_t bytes;
  };

  void check_masks(const Inference& io) const;
  void check_caches(Inference& io);
  void book(Inference& io);
  AttentionSlice slice(const Run& run, int64_t b, int64_t g) const;
  void extend_cache(const Run& run) const;
  void mask_ring(const Run& run);
  int64_t waves() const;
  BackwardScratch backward_scratch(std::byte* base) const;
  Tensor gradient_sums(const Run& run, int input, const BackwardScratch& scratch) const;
  void narrow_gradient(const Run& run, int input, const BackwardScratch& scratch) const;
  bool shares_gradient(const Run& run) const;
  void backward_slices(const Run& run, const BackwardScratch& scratch) const;
  void backward_wave(const Run& run, int64_t wave, const BackwardScratch& scratch) const;
  void backward_pair(const Run& run, int64_t slice_index, int64_t keys, int64_t queries,
                     const BackwardScratch& scratch, float* own) const;

  int64_t heads_, kv_heads_, window_;
  double scale_;
  bool causal_, cached_, ring_;
  Scores activation_;
  int64_t divisor_;
  double eps_, dropout_;
  std::string purpose_;
  bool drops_ = false;
  HeadShape q_, k_;
  int64_t cache_rows_ = 0;                 // Tmax
  std::vector<int32_t> ring_mask_;         // [Tmax]: rows of a full ring inside the window
  int64_t slots_ = 1;                      // workers at planning time
  int64_t fwd_bytes_ = 0, bwd_bytes_ = 0;  // per worker
  int64_t sum_floats_[3] = {};             // of gradients that are stored in bf16
  const AttentionKernels* kernels_ = nullptr;
};

}  // namespace mudd
