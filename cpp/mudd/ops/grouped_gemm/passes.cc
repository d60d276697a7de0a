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
    Unpacked& stack = unpacked[static_cast<size_t>(m)] = all.pack;
    stack.rows = rows, stack.count = group.end - group.begin;
    if (op.packs_) stack.w += group.begin * rows * cols;
  }
  pack_weights(unpacked, op.compute_);
}

// The rows of block b times one expert's matrix [k, n]; a: the first of them, or what they are gathered from.
GemmBlock GroupedGemm::product(ConstCells a, int64_t lda, const int32_t* gathered, const ExpertSlots::Block& b,
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

// out[t] = base[t] + the rows of t's slots in their order, or instead of them dropped[t] where t has no slot.
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

void GroupedGemm::forward(const Run& run) {
  const ExpertSlots slots = slots_of(run);
  {
    const Tensor& gates = run.in(kGates);
    const WideRows wide(gates, 0, gates.rows);
    slots.sort(run.shards(), run.in(kExperts),
               {const_cast<float*>(wide.base()), gates.rows, gates.cols, wide.stride()});
  }
  for_each_group([&](Group group) { forward_of(run, slots, group); });
  const Tensor& x = run.in(kX);
  combine(slots, at(run, rows_at_), passthrough_ ? x : Tensor{},
          run.has_in(kResidual) ? run.in(kResidual) : Tensor{}, run.out(0));
}

void GroupedGemm::forward_of(const Run& run, const ExpertSlots& slots, Group group) const {
  const Weights w(*this, run, group, Pack::plain, {kGate, kUp, kDown});
  const Tensor& x = run.in(kX);
  const Cells inner(run.scratch() + inner_at_, compute_);
  float* rows = at(run, rows_at_);
  const GemmKernels& gemm = gemm_kernels(compute_);
  parallel_for(slots.blocks(step(), group.begin, group.end), [&](int64_t task, int) {
    const ExpertSlots::Block b = slots.block(task, step(), group.begin);
    const Cells h = inner + b.begin * f_;
    GemmBlock g = product(x.cells(), x.stride, slots.token + b.begin, b, w.of(kGate, b.expert), d_, f_);
    g.c = saves_ ? saved_rows(run, kSavedGate) + b.begin * f_ : h;
    gemm.multiply(g);
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
    gemm.multiply(g);
    g = product(h, f_, nullptr, b, w.of(kDown, b.expert), f_, d_);
    g.c = rows + b.begin * d_;
    gemm.multiply(g);
  });
}

// x Wg and x Wu of a block become da and db, d (of the block alone) gives h: the rows of `inner`, or d itself.
// Rows in bf16 go through fp32 a few at a time.
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

// Every expert's three gradients as one batch of products; all lists live in the node, nothing is allocated.
void GroupedGemm::weight_gradients_of(const Run& run, const ExpertSlots& slots, ConstCells h, ConstCells da,
                                      ConstCells db) {
  const Tensor &x = run.in(kX), &dy = run.dout(0);
  size_t n = 0;
  for (int64_t e = 0; e < experts_; ++e)
    for (int i : {kGate, kUp, kDown}) {
      const GradSink& sink = run.sink(i);
      if (!run.wants(i)) continue;
      const int64_t offset = e * d_ * f_;
      GradBlock& g = blocks_[n] = {};
      g.compute = compute_;
      g.x = i == kDown ? h : x.cells();
      g.ldx = i == kDown ? f_ : x.stride;
      g.x_rows = i == kDown ? nullptr : slots.token;
      g.dy = i == kDown ? dy.cells() : i == kGate ? da : db;
      g.ldy = i == kDown ? dy.stride : f_;
      g.dy_rows = i == kDown ? slots.token : nullptr;
      g.cuts = slots.cuts_of(e);
      g.shards = slots.shards;
      g.m = in_of(i);
      g.n = g.ldo = out_of(i);
      g.out = sink.out + offset;
      const float** add = adds_.data() + n * kMaxGradAdds;
      for (int a = 0; a < sink.n_add; ++a) add[a] = sink.add[a] + offset;
      g.add = add;
      g.n_add = sink.n_add;
      g.scratch = at(run, products_at_);
      g.scratch_bytes = product_bytes_;
      ++n;
    }
  weight_gradients({blocks_.data(), n});
}

void GroupedGemm::backward(const Run& run) {
  const ExpertSlots slots = slots_of(run);
  const Tensor& dy = run.dout(0);
  const Cells inner(run.scratch() + inner_at_, compute_);
  const Cells gate = saved_rows(run, kSavedGate), up = saved_rows(run, kSavedUp);
  for_each_group([&](Group group) { backward_of(run, slots, group); });
  if (run.wants(kGates)) gate_gradient(run, slots, at(run, dgate_at_));
  if (run.wants(kX))
    combine(slots, at(run, rows_at_), passthrough_ ? dy : Tensor{}, run.accumulate(kX) ? run.din(kX) : Tensor{},
            run.din(kX));
  weight_gradients_of(run, slots, inner, gate, up);
}

// dx of the slots, da, db, h and dgate of a group's experts.
void GroupedGemm::backward_of(const Run& run, const ExpertSlots& slots, Group group) const {
  const Tensor& dy = run.dout(0);
  const Cells inner(run.scratch() + inner_at_, compute_);
  const Cells gate = saved_rows(run, kSavedGate), up = saved_rows(run, kSavedUp);
  float *rows = at(run, rows_at_), *dgate = at(run, dgate_at_);
  const bool wants_x = run.wants(kX);
  const Weights w(*this, run, group, Pack::transposed, {kDown, wants_x ? kGate : kDown, wants_x ? kUp : kDown});
  const GemmKernels& gemm = gemm_kernels(compute_);
  parallel_for(slots.blocks(step(), group.begin, group.end), [&](int64_t task, int) {
    const ExpertSlots::Block b = slots.block(task, step(), group.begin);
    GemmBlock g = product(dy.cells(), dy.stride, slots.token + b.begin, b, w.of(kDown, b.expert), d_, f_);
    const WorkerFloats wide(compute_ == DType::f32 ? 0 : (b.end - b.begin) * f_);
    g.c = wide.data() ? Cells(wide.data()) : inner + b.begin * f_;
    gemm.multiply(g);
    block_gradients(b, slots, gate, up, g.c.f32(), inner, dgate);
    if (!wants_x) return;
    g = product(gate + b.begin * f_, f_, nullptr, b, w.of(kGate, b.expert), f_, d_);
    g.c = rows + b.begin * d_;
    gemm.multiply(g);
    g.a = up + b.begin * f_;
    g.b = w.of(kUp, b.expert);
    g.accumulate = true;
    gemm.multiply(g);
  });
}

}  // namespace mudd
