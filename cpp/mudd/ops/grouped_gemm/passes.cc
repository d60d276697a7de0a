// Forward and backward of grouped_gemm, block by block of the rows of an expert.
#include <algorithm>
#include <array>

#include "mudd/base/parallel.h"
#include "mudd/base/row_tasks.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/ops/grouped_gemm/node.h"

namespace mudd {

GroupedGemm::Weights::Weights(const GroupedGemm& node, const Run& run, Group experts, Pack how,
                              std::initializer_list<int> wanted)
    : op(node), group(experts) {
  std::array<Unpacked, kMatrices> unpacked;
  for (int i : wanted) {
    const int m = i - kGate;
    if (panels[m]) continue;
    const int64_t rows = op.in_of(i), cols = op.out_of(i);
    stride[m] = op.panel_bytes(how == Pack::plain ? rows : cols, how == Pack::plain ? cols : rows);
    std::byte* to = op.packs_ ? run.scratch() + m * op.packed_bytes() : nullptr;
    const RightOperand all("grouped_gemm", run, i, how, to);
    panels[m] = static_cast<const char*>(all.panels());
    if (all.kept && op.packs_) panels[m] += group.begin * stride[m];  // another graph requested it from the store
    Unpacked& stack = unpacked[static_cast<size_t>(m)] = all.pack;
    stack.rows = rows, stack.count = group.end - group.begin;
    if (stack.to) stack.w += group.begin * rows * cols;
  }
  pack_weights(unpacked, op.compute_);
}

// Return the GEMM of the rows of block b with one expert's matrix [k, n]; a: the first row, or the source of
// the gather.
GemmBlock GroupedGemm::gemm_of(ConstCells a, int64_t lda, const int32_t* gathered, const ExpertSlots::Block& b,
                               const void* panels, int64_t k, int64_t n) const {
  GemmBlock g;
  g.compute = compute_;
  g.a = a;
  g.lda = lda;
  g.a_rows = gathered;
  g.b = panels;
  g.ldc = n;
  g.m = b.end - b.begin;
  g.n = n;
  g.k = k;
  return g;
}

// Set out[t] = base[t] + the rows of t's slots in order, or dropped[t] instead of them if t has no slot.
void GroupedGemm::combine(const ExpertSlots& slots, const float* rows, const Tensor& dropped, const Tensor& base,
                          const Tensor& out) const {
  const int64_t k = out.rows ? slots_ / out.rows : 0;
  parallel_rows(out.rows, (k + 2) * d_, [&](int64_t begin, int64_t end) {
    const WideRows bases(base, begin, end);
    const NarrowRows to(out, begin, end);
    for (int64_t t = begin; t < end; ++t) {
      const float* parts[kMaxChoices];
      int64_t count = 0;
      for (int64_t r = 0; r < k; ++r)
        if (const int32_t row = slots.place[t * k + r]; row >= 0) parts[count++] = rows + row * d_;
      const WideRows own(count == 0 ? dropped : Tensor{}, t, t + 1);
      if (count == 0 && dropped) parts[count++] = own.row(t);
      kernels_->combine(d_, base ? bases.row(t) : nullptr, parts, count, to.row(t));
    }
  });
}

void GroupedGemm::sort(const Run& run, const ExpertSlots& slots) const {
  const Tensor& gates = run.in(kGates);
  const WideRows wide(gates, 0, gates.rows);
  slots.sort(run.shards(), run.in(kExperts),
             {const_cast<float*>(wide.base()), gates.rows, gates.cols, wide.stride()});
}

void GroupedGemm::pack_adapters(const Run& run, const ExpertSlots& slots, Pack how) const {
  low_gate_up_.pack(run, slots, how);
  low_down_.pack(run, slots, how);
}

void GroupedGemm::forward(const Run& run) {
  const ExpertSlots slots = slots_of(run);
  sort(run, slots);
  if (ranks_ > 1) return forward_over_ranks(run, slots);
  pack_adapters(run, slots, Pack::plain);
  for_each_group([&](Group group) { forward_of(run, slots, {run.in(kX), slots.token}, group); });
  finish_forward(run, slots, at(run, rows_at_));
}

// rows: results of the slots, in slot order.
void GroupedGemm::finish_forward(const Run& run, const ExpertSlots& slots, const float* rows) const {
  combine(slots, rows, passthrough_ ? run.in(kX) : Tensor{}, run.has_in(kResidual) ? run.in(kResidual) : Tensor{},
          run.out(0));
}

// x: of the slots.
void GroupedGemm::forward_of(const Run& run, const ExpertSlots& slots, const SlotTensor& x, Group group) const {
  const Weights w(*this, run, group, Pack::plain, {kGate, kUp, kDown});
  const Cells inner(run.scratch() + inner_at_, compute_);
  float* rows = at(run, rows_at_);
  const GemmKernels& gemm = gemm_kernels(compute_);
  parallel_for(slots.blocks(step(), group.begin, group.end), [&](int64_t task, int) {
    const ExpertSlots::Block b = slots.block(task, step(), group.begin);
    const auto multiply = [&](const GemmBlock& g, const ExpertAdapter& low, int64_t part) {
      if (!low) return gemm.multiply(g);
      if (part == 0) low.project(run, b, g);
      low.multiply(run, b, part, g);
    };
    const Cells h = inner + b.begin * f_;
    GemmBlock g = gemm_of(x.first(b.begin), x.rows.stride, x.at(b.begin), b, w.of(kGate, b.expert), d_, f_);
    g.c = saves_ ? saved_rows(run, kSavedGate) + b.begin * f_ : h;
    multiply(g, low_gate_up_, 0);
    g.b = w.of(kUp, b.expert);
    g.epilogue.gate = g.c;
    g.epilogue.gate_stride = f_;
    g.epilogue.activation = activation_;
    g.epilogue.row_scale = slots.gate + b.begin;
    if (saves_) {
      g.epilogue.pre_activation = saved_rows(run, kSavedUp) + b.begin * f_;
      g.epilogue.pre_stride = f_;
    }
    g.c = h;
    multiply(g, low_gate_up_, 1);
    g = gemm_of(h, f_, nullptr, b, w.of(kDown, b.expert), f_, d_);
    g.c = rows + b.begin * d_;
    multiply(g, low_down_, 0);
  });
}

// Replace x Wg and x Wu of a block by da and db; d (of the block alone) becomes h, in the rows of `inner` or in
// place. bf16 rows are converted to fp32 a few at a time.
void GroupedGemm::block_gradients(const ExpertSlots::Block& b, const ExpertSlots& slots, Cells gate, Cells up,
                                  float* d, Cells inner, float* dgate) const {
  const bool wide = compute_ == DType::f32;
  const int64_t piece = wide ? b.end - b.begin : 8;
  for (int64_t at = b.begin; at < b.end; at += piece) {
    const int64_t end = std::min(at + piece, b.end);
    const NarrowRows gates(rows_of(gate), at, end, true), ups(rows_of(up), at, end, true);
    float* own = d + (at - b.begin) * f_;
    kernels_->bwd(end - at, f_, activation_, {gates.row(at), ups.row(at), own, slots.gate + at, dgate + at});
    if (!wide) convert_kernels().narrow((end - at) * f_, own, (inner + at * f_).b16());
  }
}

void GroupedGemm::gate_gradient(const Run& run, const ExpertSlots& slots, const float* dgate) const {
  const Tensor& d = run.din(kGates);
  const NarrowRows wide(d, 0, d.rows, run.accumulate(kGates));
  for (int64_t t = 0; t < d.rows; ++t)
    for (int64_t r = 0; r < d.cols; ++r) {
      const int32_t row = slots.place[t * d.cols + r];
      const float g = row < 0 ? 0.0f : dgate[row];
      float& to = wide.row(t)[r];
      to = run.accumulate(kGates) ? to + g : g;
    }
}

void GroupedGemm::backward(const Run& run) {
  const ExpertSlots slots = slots_of(run);
  if (ranks_ > 1) return backward_over_ranks(run, slots);
  const SlotTensor dy{run.dout(0), slots.token};
  pack_adapters(run, slots, Pack::transposed);
  for_each_group([&](Group group) { backward_of(run, slots, dy, group); });
  finish_backward(run, slots, at(run, rows_at_), at(run, dgate_at_));
  weight_gradients_of(run, slots, {run.in(kX), slots.token}, dy);
}

// rows, dgate: dx and the gate's gradient of the slots, in slot order.
void GroupedGemm::finish_backward(const Run& run, const ExpertSlots& slots, const float* rows,
                                  const float* dgate) const {
  if (run.wants(kGates)) gate_gradient(run, slots, dgate);
  if (run.wants(kX))
    combine(slots, rows, passthrough_ ? run.dout(0) : Tensor{}, run.accumulate(kX) ? run.din(kX) : Tensor{},
            run.din(kX));
}

// Compute dx of the slots, da, db, h and dgate of a group's experts. dy: of the slots.
void GroupedGemm::backward_of(const Run& run, const ExpertSlots& slots, const SlotTensor& dy, Group group) const {
  const Cells inner(run.scratch() + inner_at_, compute_);
  const Cells gate = saved_rows(run, kSavedGate), up = saved_rows(run, kSavedUp);
  float *rows = at(run, rows_at_), *dgate = at(run, dgate_at_);
  const bool wants_x = run.wants(kX);
  const Weights w(*this, run, group, Pack::transposed, {kDown, wants_x ? kGate : kDown, wants_x ? kUp : kDown});
  const GemmKernels& gemm = gemm_kernels(compute_);
  parallel_for(slots.blocks(step(), group.begin, group.end), [&](int64_t task, int) {
    const ExpertSlots::Block b = slots.block(task, step(), group.begin);
    GemmBlock g = gemm_of(dy.first(b.begin), dy.rows.stride, dy.at(b.begin), b, w.of(kDown, b.expert), d_, f_);
    const WorkerFloats wide(compute_ == DType::f32 ? 0 : (b.end - b.begin) * f_);
    g.c = wide.data() ? Cells(wide.data()) : inner + b.begin * f_;
    gemm.multiply(g);
    if (low_down_) {
      low_down_.project_gradient(run, b, 0, g);
      low_down_.add_gradient(run, b, g);
    }
    block_gradients(b, slots, gate, up, g.c.f32(), inner, dgate);
    g = gemm_of(gate + b.begin * f_, f_, nullptr, b, wants_x ? w.of(kGate, b.expert) : nullptr, f_, d_);
    g.c = rows + b.begin * d_;
    if (low_gate_up_) low_gate_up_.project_gradient(run, b, 0, g);
    if (wants_x) gemm.multiply(g);
    g.a = up + b.begin * f_;
    if (low_gate_up_) low_gate_up_.project_gradient(run, b, 1, g);
    if (!wants_x) return;
    g.b = w.of(kUp, b.expert);
    g.accumulate = true;
    gemm.multiply(g);
    if (low_gate_up_) low_gate_up_.add_gradient(run, b, g);
  });
}

}  // namespace mudd
