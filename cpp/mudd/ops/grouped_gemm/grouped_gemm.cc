#include "mudd/ops/grouped_gemm/grouped_gemm.h"

#include <algorithm>
#include <vector>

#include "mudd/base/parallel.h"
#include "mudd/graph/arena.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_tasks.h"
#include "mudd/graph/wide_rows.h"
#include "mudd/ops/convert/convert.h"
#include "mudd/ops/gemm/gemm.h"
#include "mudd/ops/grouped_gemm/slots.h"

namespace mudd {

std::span<const KernelRow<GroupedGemmKernels>> grouped_gemm_rows() {
  static const KernelRow<GroupedGemmKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/ops/grouped_gemm/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

namespace {

enum Input { kX, kGates, kExperts, kGate, kUp, kDown, kResidual };
enum Saved { kSlots, kSavedGate, kSavedUp };
constexpr int64_t kFloat = sizeof(float);
constexpr int kMatrices = 3;
constexpr int64_t kMaxChoices = 64;

class GroupedGemm : public Node {
 public:
  explicit GroupedGemm(const Attributes& a)
      : activation_(parse_activation(a.word("activation", "silu"), "grouped_gemm")) {
    a.only("activation,full_drop");
    const std::string full_drop = a.word("full_drop", "passthrough");
    passthrough_ = full_drop == "passthrough";
    check(passthrough_ || full_drop == "zero", "grouped_gemm", "full_drop: expected passthrough or zero, got '",
          full_drop, "'");
  }

  const char* op() const override { return "grouped_gemm"; }
  bool native_bf16() const override { return true; }
  bool weight_like(int i) const override { return i >= kGate && i <= kDown; }
  bool backward_reads_input(int i) const override { return i == kX || (weight_like(i) && packs_); }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : -1; }

  void infer(Inference& io) override {
    check_inputs(io);
    has_residual_ = io.has_input(kResidual);
    compute_ = io.compute();
    saves_ = false;
    for (int i : {kX, kGates, kGate, kUp, kDown}) saves_ = saves_ || io.wants_gradient(i);
    flops_ = 2.0 * kMatrices * static_cast<double>(slots_) * static_cast<double>(f_ * d_);
    const int shards = io.shards().count();
    io.saved(ExpertSlots::bytes(experts_, slots_, shards));
    if (saves_) {
      io.saved(slots_ * f_ * size_of(compute_));
      io.saved(slots_ * f_ * size_of(compute_));
    }
    for (int i : {kUp, kDown})
      check(io.input_is_parameter(i) == io.input_is_parameter(kGate), "grouped_gemm",
            "weights: expected all three to be parameters of a model, or none");
    // Rows of an expert where the load is even.
    packs_ = io.packs_when_used(kGate, slots_ / experts_);
    if (!packs_) {
      for (int i : {kGate, kUp, kDown}) io.pack(i, Pack::plain);
      if (saves_) io.pack(kDown, Pack::transposed);
      if (io.wants_gradient(kX))
        for (int i : {kGate, kUp}) io.pack(i, Pack::transposed);
    }
    // Forward: [packed weights][h][results of the slots, fp32]. Backward: the same with dx of the slots, then
    // [dgate][scratch of the weight gradients].
    inner_at_ = packs_ ? kMatrices * packed_bytes() : 0;
    rows_at_ = inner_at_ + aligned(slots_ * f_ * size_of(compute_));
    dgate_at_ = rows_at_ + aligned(slots_ * d_ * kFloat);
    products_at_ = dgate_at_ + aligned(slots_ * kFloat);
    product_bytes_ = 0;
    int products = 0;
    for (int i : {kGate, kUp, kDown}) products += io.wants_gradient(i) ? static_cast<int>(experts_) : 0;
    for (int i : {kGate, kUp, kDown})
      if (io.wants_gradient(i))
        product_bytes_ =
            std::max(product_bytes_, grad_scratch_bytes(in_of(i), out_of(i), shards, products, compute_));
    io.scratch_forward(dgate_at_);
    io.scratch_backward(products_at_ + product_bytes_);
    blocks_.resize(static_cast<size_t>(kMatrices * experts_));
    adds_.resize(static_cast<size_t>(kMatrices * experts_ * kMaxGradAdds));
    io.output(io.input(kX));
    kernels_ = &choose(grouped_gemm_rows());
  }

  void forward(const Run& run) override {
    const ExpertSlots slots = slots_of(run);
    {
      const Tensor& gates = run.in(kGates);
      const WideRows wide(gates, 0, gates.rows);
      slots.sort(run.shards(), run.in(kExperts),
                 {const_cast<float*>(wide.base()), gates.rows, gates.cols, wide.stride()});
    }
    Weights w(*this, run, Pack::plain, {kGate, kUp, kDown});
    const Tensor& x = run.in(kX);
    const Cells inner(run.scratch() + inner_at_, compute_);
    float* rows = at(run, rows_at_);
    const GemmKernels& gemm = gemm_kernels(compute_);
    parallel_for(slots.blocks(step()), [&](int64_t task, int) {
      const ExpertSlots::Block b = slots.block(task, step());
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
    combine(slots, rows, passthrough_ ? x : Tensor{}, run.has_in(kResidual) ? run.in(kResidual) : Tensor{},
            run.out(0));
  }

  void backward(const Run& run) override {
    const ExpertSlots slots = slots_of(run);
    const Tensor& dy = run.dout(0);
    const Cells inner(run.scratch() + inner_at_, compute_);
    float *rows = at(run, rows_at_), *dgate = at(run, dgate_at_);
    const bool wants_x = run.wants(kX);
    Weights w(*this, run, Pack::transposed, {kDown, wants_x ? kGate : kDown, wants_x ? kUp : kDown});
    const Cells gate = saved_rows(run, kSavedGate), up = saved_rows(run, kSavedUp);
    const GemmKernels& gemm = gemm_kernels(compute_);
    parallel_for(slots.blocks(step()), [&](int64_t task, int) {
      const ExpertSlots::Block b = slots.block(task, step());
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
    if (run.wants(kGates)) gate_gradient(run, slots, dgate);
    if (wants_x)
      combine(slots, rows, passthrough_ ? dy : Tensor{}, run.accumulate(kX) ? run.din(kX) : Tensor{}, run.din(kX));
    weight_gradients_of(run, slots, inner, gate, up);
  }

 private:
  // The panels of the weights for one direction: the store's, or made here at the start of the scratch.
  struct Weights {
    const GroupedGemm& op;
    const char* panels[kMatrices] = {};
    int64_t stride[kMatrices] = {};  // bytes

    Weights(const GroupedGemm& node, const Run& run, Pack how, std::initializer_list<int> wanted) : op(node) {
      for (int i : wanted) {
        const int m = i - kGate;
        if (panels[m]) continue;
        const int64_t rows = op.in_of(i), cols = op.out_of(i);
        stride[m] = op.panel_bytes(how == Pack::plain ? rows : cols, how == Pack::plain ? cols : rows);
        panels[m] = static_cast<const char*>(run.packed(i, how));
        if (panels[m]) continue;
        if (!op.packs_) throw StateError("[grouped_gemm] weights: a parameter came without its packed copy");
        char* to = reinterpret_cast<char*>(run.scratch()) + m * op.packed_bytes();
        for (int64_t e = 0; e < op.experts_; ++e)
          pack_weight(run.in(i).f32() + e * rows * cols, rows, cols, how == Pack::transposed, to + e * stride[m],
                      op.compute_);
        panels[m] = to;
      }
    }
    const void* of(int i, int64_t expert) const { return panels[i - kGate] + expert * stride[i - kGate]; }
  };

  static float* at(const Run& run, int64_t bytes) { return reinterpret_cast<float*>(run.scratch() + bytes); }
  int64_t in_of(int i) const { return i == kDown ? f_ : d_; }
  int64_t out_of(int i) const { return i == kDown ? d_ : f_; }
  int64_t panel_bytes(int64_t k, int64_t n) const { return mudd::packed_bytes(k, n, compute_); }
  Cells saved_rows(const Run& run, int i) const { return {run.saved(i), compute_}; }
  int64_t packed_bytes() const { return aligned(experts_ * std::max(panel_bytes(d_, f_), panel_bytes(f_, d_))); }
  // Rows of a task: a cache block of the product, halved while there would be few tasks.
  int64_t step() const { return slots_ >= 96 * 32 ? 96 : 48; }
  ExpertSlots slots_of(const Run& run) const {
    return {run.saved(kSlots), experts_, slots_, run.shards().count()};
  }

  void check_inputs(const Inference& io) {
    const char* me = "grouped_gemm";
    const TensorSpec &x = io.input(kX), &gates = io.input(kGates), &experts = io.input(kExperts);
    check(is_real(x) && x.shape.size() == 3, me, "x: expected float32[B, T, D], got ", x.text());
    check(is_real(gates) && gates.shape.size() == 3 && gates.shape[0] == x.shape[0] &&
              gates.shape[1] == x.shape[1] && gates.cols() >= 1 && gates.cols() <= kMaxChoices,
          me, "gates: expected float32[B, T, k] for x ", x.text(), ", got ", gates.text());
    check(experts.dtype == DType::i32 && experts.shape == gates.shape, me, "experts: expected int32 of the shape ",
          gates.text(), ", got ", experts.text());
    d_ = x.cols();
    const TensorSpec &g = io.input(kGate), &u = io.input(kUp), &w = io.input(kDown);
    check(g.dtype == DType::f32 && g.shape.size() == 3 && g.shape[0] > 0 && g.shape[1] == d_ && g.cols() > 0, me,
          "gate: expected float32[E, ", d_, ", F], got ", g.text());
    check(u.dtype == DType::f32 && u.shape == g.shape, me, "up: expected ", g.text(), ", got ", u.text());
    experts_ = g.shape[0];
    f_ = g.cols();
    check(w.dtype == DType::f32 && w.shape == std::vector<int64_t>{experts_, f_, d_}, me,
          "down: expected float32[", experts_, ", ", f_, ", ", d_, "], got ", w.text());
    check(!io.has_input(kResidual) || (is_real(io.input(kResidual)) && io.input(kResidual).shape == x.shape), me,
          "residual: expected ", x.text(), ", got ", io.input(kResidual).text());
    check(io.shards().count() <= kMaxShards, me, "shards: expected at most ", kMaxShards, ", got ",
          io.shards().count());
    slots_ = gates.size();
  }

  // The rows of block b times one expert's matrix [k, n]; a: the first of them, or what they are gathered from.
  GemmBlock product(ConstCells a, int64_t lda, const int32_t* gathered, const ExpertSlots::Block& b,
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

  // x Wg and x Wu of a block become da and db, d (of the block alone) gives h: the rows of `inner`, or d itself.
  // Rows in bf16 go through fp32 a few at a time.
  void block_gradients(const ExpertSlots::Block& b, const ExpertSlots& slots, Cells gate, Cells up, float* d,
                       Cells inner, float* dgate) const {
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
  Tensor rows_of(Cells c) const { return {c.data, slots_, f_, f_, c.type}; }

  // out[t] = base[t] + the rows of t's slots in their order, or instead of them dropped[t] where t has no slot.
  void combine(const ExpertSlots& slots, const float* rows, const Tensor& dropped, const Tensor& base,
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

  void gate_gradient(const Run& run, const ExpertSlots& slots, const float* dgate) const {
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
  void weight_gradients_of(const Run& run, const ExpertSlots& slots, ConstCells h, ConstCells da, ConstCells db) {
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

  Activation activation_;
  DType compute_ = DType::f32;
  bool passthrough_ = true, has_residual_ = false, saves_ = false, packs_ = true;
  int64_t d_ = 0, f_ = 0, experts_ = 0, slots_ = 0;
  int64_t inner_at_ = 0, rows_at_ = 0, dgate_at_ = 0, products_at_ = 0, product_bytes_ = 0;  // bytes
  std::vector<GradBlock> blocks_;
  std::vector<const float*> adds_;
  const GroupedGemmKernels* kernels_ = nullptr;
};

}  // namespace

std::unique_ptr<Node> make_grouped_gemm(const Attributes& a) { return std::make_unique<GroupedGemm>(a); }

}  // namespace mudd
