#include "mudd/ops/grouped_gemm/expert_adapter.h"

#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"
#include "mudd/kernels/gemm/low_rank.h"

namespace mudd {
namespace {

void pack_matrix(const GemmKernels& kernels, const float* w, int64_t rows, int64_t cols, Pack how, std::byte* to) {
  const bool plain = how == Pack::plain;
  const int64_t k = plain ? rows : cols, n = plain ? cols : rows;
  (plain ? kernels.pack : kernels.pack_transposed)(w, cols, k, n, 0, ceil_div(n, kernels.nr), to);
}

// Return the GEMM with another right operand [k, n] and without an epilogue.
GemmBlock alone(const GemmBlock& gemm, const void* panels, int64_t k, int64_t n) {
  GemmBlock g = gemm;
  g.epilogue = {};
  g.b = panels;
  g.k = k;
  g.n = n;
  return g;
}

// Set a to rows without gaps.
void start_from(GemmBlock* g, const float* rows) {
  g->a = rows;
  g->lda = g->k;
  g->a_rows = nullptr;
}

void scale_rows(const GemmBlock& g, float scale) {
  for (int64_t i = 0; i < g.m * g.n; ++i) g.c.f32()[i] *= scale;
}

}  // namespace

void ExpertAdapter::infer(Inference& io, int64_t experts, int64_t in, int64_t out) {
  const char *me = "grouped_gemm", *name = parts_ > 1 ? "gate_up" : "down";
  check(io.has_input(a_) == io.has_input(b_), me, name, "_a: expected both ", name, "_a and ", name,
        "_b, or neither, got one");
  rank_ = 0;
  if (!io.has_input(a_)) return;
  const TensorSpec &a = io.input(a_), &b = io.input(b_);
  check(a.dtype == DType::f32 && a.shape.size() == 3 && a.shape[0] == experts && a.shape[1] == in && a.cols() > 0,
        me, name, "_a: expected float32[", experts, ", ", in, ", rank], got ", a.text());
  check(b.dtype == DType::f32 && b.shape == std::vector<int64_t>{experts, parts_ * a.cols(), out}, me, name,
        "_b: expected float32[", experts, ", ", parts_ * a.cols(), ", ", out, "], got ", b.text());
  rank_ = a.cols();
  in_ = in;
  out_ = out;
  compute = io.compute();
}

void ExpertAdapter::save(Inference& io, int64_t rows, int64_t likely) {
  if (!rank_) return;
  saved_ = static_cast<int>(io.saved_.size());
  io.saved(du_bytes(rows), du_bytes(likely));
}

double ExpertAdapter::multiply_adds() const { return static_cast<double>(rank_ * (in_ + parts_ * out_)); }

int64_t ExpertAdapter::a_bytes() const {
  return aligned(std::max(mudd::packed_bytes(in_, rank_, compute), mudd::packed_bytes(rank_, in_, compute)));
}

int64_t ExpertAdapter::b_bytes() const {
  return aligned(std::max(mudd::packed_bytes(rank_, out_, compute), mudd::packed_bytes(out_, rank_, compute)));
}

int64_t ExpertAdapter::packed_bytes(int64_t experts) const {
  return rank_ ? experts * (a_bytes() + parts_ * b_bytes()) : 0;
}

std::byte* ExpertAdapter::packed_a(const Run& run, int64_t expert) const {
  return run.scratch() + packed_at + packed_bytes(expert);
}

std::byte* ExpertAdapter::packed_b(const Run& run, int64_t expert, int64_t part) const {
  return packed_a(run, expert) + a_bytes() + part * b_bytes();
}

void ExpertAdapter::pack(const Run& run, const ExpertSlots& slots, Pack how) const {
  if (!rank_) return;
  const GemmKernels& kernels = gemm_kernels(compute);
  const float *a = run.in(a_).f32(), *b = run.in(b_).f32();
  const int64_t count = 1 + parts_;
  parallel_for(slots.n_experts * count, [&](int64_t task, int) {
    const int64_t e = task / count, part = task % count - 1;
    if (slots.begin(e) == slots.end(e)) return;
    if (part < 0) pack_matrix(kernels, a + e * in_ * rank_, in_, rank_, how, packed_a(run, e));
    else pack_matrix(kernels, b + (e * parts_ + part) * rank_ * out_, rank_, out_, how, packed_b(run, e, part));
  });
}

// u = scale z A
void ExpertAdapter::project(const Run& run, const ExpertSlots::Block& b, const GemmBlock& gemm) const {
  GemmBlock g = alone(gemm, packed_a(run, b.expert), in_, rank_);
  g.c = u(run) + b.begin * rank_;
  g.ldc = rank_;
  gemm_kernels(compute).multiply(g);
  scale_rows(g, scale);
}

// c_j = u B_j + z W_j
void ExpertAdapter::multiply(const Run& run, const ExpertSlots::Block& b, int64_t part,
                             const GemmBlock& gemm) const {
  GemmBlock up = alone(gemm, packed_b(run, b.expert, part), rank_, out_);
  start_from(&up, u(run) + b.begin * rank_);
  multiply_from_low_rank(up, gemm);
}

// du = scale sum_j dc_j B_j^T
void ExpertAdapter::project_gradient(const Run& run, const ExpertSlots::Block& b, int64_t part,
                                     const GemmBlock& gemm) const {
  GemmBlock g = alone(gemm, packed_b(run, b.expert, part), out_, rank_);
  g.c = du(run) + b.begin * rank_;
  g.ldc = rank_;
  g.accumulate = part > 0;
  gemm_kernels(compute).multiply(g);
  if (part + 1 == parts_) scale_rows(g, scale);
}

// dz += du A^T
void ExpertAdapter::add_gradient(const Run& run, const ExpertSlots::Block& b, const GemmBlock& gemm) const {
  GemmBlock g = alone(gemm, packed_a(run, b.expert), rank_, in_);
  start_from(&g, du(run) + b.begin * rank_);
  g.accumulate = true;
  gemm_kernels(compute).multiply(g);
}

}  // namespace mudd
