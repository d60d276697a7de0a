// ExpertAdapter: the low-rank adapter of stacks of experts that have one input z (Hu et al. 2021, as PEFT adapts
// stacked experts). gate and up are two parts, which share A; down is one part.
//   c_j = z W_j[e] + u B_j[e]  with  u = scale z A[e]  for part j
// A [E, in, rank]; B [E, parts rank, out]: the rows of gate, then of up.
// Backward: du = scale sum_j dc_j B_j[e]^T and dz = sum_j dc_j W_j[e]^T + du A[e]^T.
// Over the rows of e, dA[e] = sum z^T du and dB_j[e] = sum u^T dc_j.
// u and du are fp32, also in bf16. Chains of c_j start from u B_j, chains of dz end with du A^T.
#pragma once

#include "mudd/graph/node.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/grouped_gemm/slots.h"

namespace mudd {

class ExpertAdapter {
 public:
  // a, b: the inputs of the node. Without them the adapter is empty: false, and it needs no memory.
  ExpertAdapter(int a, int b, int64_t parts) : a_(a), b_(b), parts_(parts) {}
  explicit operator bool() const { return rank_ > 0; }

  // Check the inputs against E stacks of [in, out], and request the saved bytes of u for `rows` rows.
  void infer(Inference& io, int64_t experts, int64_t in, int64_t out);
  void save(Inference& io, int64_t rows, int64_t likely);
  bool is(int input) const { return input == a_ || input == b_; }
  int a() const { return a_; }
  int b() const { return b_; }
  int64_t rank() const { return rank_; }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  int64_t parts() const { return parts_; }
  double multiply_adds() const;  // of a row

  // Bytes of the packed matrices of this many experts, for either direction, and of du.
  int64_t packed_bytes(int64_t experts) const;
  int64_t du_bytes(int64_t rows) const { return rows * rank_ * kFloat; }
  // Pack A and B of the experts that have rows.
  void pack(const Run& run, const ExpertSlots& slots, Pack how) const;
  float* u(const Run& run) const { return run.saved_as<float>(saved_); }
  float* du(const Run& run) const { return reinterpret_cast<float*>(run.scratch() + du_at); }

  // A block of rows of an expert. gemm: the GEMM z W_j.
  void project(const Run& run, const ExpertSlots::Block& b, const GemmBlock& gemm) const;
  void multiply(const Run& run, const ExpertSlots::Block& b, int64_t part, const GemmBlock& gemm) const;
  // gemm: dc_j W_j^T. The first adds to du in the order of the parts; the second adds du A^T to the c of gemm.
  void project_gradient(const Run& run, const ExpertSlots::Block& b, int64_t part, const GemmBlock& gemm) const;
  void add_gradient(const Run& run, const ExpertSlots::Block& b, const GemmBlock& gemm) const;

  float scale = 1.0f;
  DType compute = DType::f32;
  int64_t packed_at = 0, du_at = 0;  // bytes into the scratch of a pass

 private:
  static constexpr int64_t kFloat = sizeof(float);

  int64_t a_bytes() const;
  int64_t b_bytes() const;
  std::byte* packed_a(const Run& run, int64_t expert) const;
  std::byte* packed_b(const Run& run, int64_t expert, int64_t part) const;

  int a_, b_, saved_ = 0;
  int64_t parts_, rank_ = 0, in_ = 0, out_ = 0;
};

}  // namespace mudd
