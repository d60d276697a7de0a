#include "mudd/ops/moe_route/moe_route.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rng.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_tasks.h"
#include "mudd/graph/wide_rows.h"
#include "mudd/ops/gemm/gemm.h"
#include "mudd/ops/moe_route/capacity.h"

namespace mudd {

std::span<const KernelRow<MoeRouteKernels>> moe_route_rows() {
  static const KernelRow<MoeRouteKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/ops/moe_route/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

namespace {

enum Input { kX, kW, kSegments, kKeyMask };
enum Output { kGates, kExperts, kFigures };
enum Saved { kProbabilities, kChosenGates, kChosen, kStats };
constexpr int64_t kFloat = sizeof(float);

// One step of the binary choice: {a, b}[name == b], or an error.
bool second(const Attributes& a, const char* name, const char* first, const char* other) {
  const std::string word = a.word(name, first);
  check(word == first || word == other, "moe_route", name, ": expected ", first, " or ", other, ", got '", word,
        "'");
  return word == other;
}

class MoeRoute : public Node {
 public:
  explicit MoeRoute(const Attributes& a)
      : k_(a.integer("top_k", 2)),
        layer_(a.integer("layer", 0)),
        jitter_(a.number("jitter", 0)),
        capacity_{a.number("capacity_factor", 0), second(a, "capacity_scope", "sequence", "shard"),
                  second(a, "drop_policy", "position", "probs")} {
    a.only("top_k,layer,jitter,capacity_factor,capacity_scope,drop_policy");
    check(jitter_ >= 0 && jitter_ < 1, "moe_route", "jitter: expected a number in [0, 1), got ", jitter_);
    check(capacity_.factor >= 0, "moe_route", "capacity_factor: expected at least 0, got ", capacity_.factor);
  }

  const char* op() const override { return "moe_route"; }
  bool native_bf16() const override { return true; }  // x and dx; the router itself works in fp32
  bool weight_like(int i) const override { return i == kW; }
  bool keeps_f32(int) const override { return true; }  // gates and figures
  bool backward_reads_output(int i) const override { return i == kExperts; }

  void infer(Inference& io) override {
    const TensorSpec &x = io.input(kX), &w = io.input(kW);
    check(is_real(x) && x.shape.size() == 3, "moe_route", "x: expected float32[B, T, D], got ", x.text());
    check(w.dtype == DType::f32 && w.shape.size() == 2 && w.shape[0] == x.cols() && w.cols() > 0, "moe_route",
          "w: expected float32[", x.cols(), ", E], got ", w.text());
    samples_ = x.shape[0];
    length_ = x.shape[1];
    d_ = x.cols();
    experts_ = w.cols();
    check(k_ >= 1 && k_ <= experts_, "moe_route", "top_k: expected 1 to ", experts_, " experts, got ", k_);
    for (int i : {kSegments, kKeyMask})
      check(!io.has_input(i) ||
                (io.input(i).dtype == DType::i32 && io.input(i).shape == std::vector<int64_t>{samples_, length_}),
            "moe_route", i == kSegments ? "segments" : "key_mask", ": expected int32[", samples_, ", ", length_,
            "], got ", io.input(i).text());
    io.output({{samples_, length_, k_}, DType::f32});
    io.output({{samples_, length_, k_}, DType::i32});
    io.output({{samples_, RouteFigures{experts_}.width()}, DType::f32});
    const int64_t rows = samples_ * length_;
    io.saved(rows * experts_ * kFloat);
    io.saved(rows * k_ * kFloat);
    io.saved(rows * k_ * 4);
    io.saved(rows * static_cast<int64_t>(sizeof(RouteRow)));
    if (!io.wants_gradient(kX) && !io.wants_gradient(kW)) jitter_ = 0;  // training only
    // A router works in fp32 in every graph; the store's copies are of the graph's compute type.
    packs_ = !io.input_is_parameter(kW) || io.compute() != DType::f32;
    if (!packs_) io.pack(kW, Pack::plain);
    if (!packs_ && io.wants_gradient(kX)) io.pack(kW, Pack::transposed);
    const int64_t packed = packs_ ? std::max(packed_size(d_, experts_), packed_size(experts_, d_)) * kFloat : 0;
    const int64_t noisy = jitter_ > 0 ? rows * d_ * kFloat : 0;
    // Forward: [packed w][x'][work of dropping]. Backward: [packed w][dz][x', then dx'][scratch of dw].
    x_at_ = packed + rows * experts_ * kFloat;
    work_at_ = x_at_ + noisy;
    product_bytes_ = io.wants_gradient(kW) ? grad_scratch_bytes(d_, experts_, io.shards().count()) : 0;
    const int64_t scopes = std::max<int64_t>(samples_, io.shards().count());
    io.scratch_forward(work_at_ + (capacity_.limited() ? (rows * k_ + scopes * experts_) * 4 : 0));
    io.scratch_backward(work_at_ + product_bytes_);
    kernels_ = &choose(moe_route_rows());
  }

  void forward(const Run& run) override {
    const Tensor x = router_input(run);
    float* p = run.saved_as<float>(kProbabilities);
    GemmBlock g;
    g.a = x.cells();
    g.lda = x.stride;
    g.b = packed_w(run, Pack::plain);
    g.c = p;
    g.ldc = g.n = experts_;
    g.m = x.rows;
    g.k = d_;
    multiply(g);
    RouteRow* stats = run.saved_as<RouteRow>(kStats);
    parallel_rows(x.rows, 64 * experts_, [&](int64_t begin, int64_t end) {
      kernels_->softmax(end - begin, experts_, p + begin * experts_, stats + begin);
      for (int64_t r = begin; r < end; ++r) choose_experts(run, r);
    });
    if (capacity_.limited()) drop(run);
    parallel_for(samples_, [&](int64_t sample, int) { finish_sample(run, sample); });
  }

  void backward(const Run& run) override {
    const int64_t rows = samples_ * length_;
    float* dz = run.scratch_as<float>() + x_at_ / kFloat - rows * experts_;
    parallel_rows(rows, 64 * experts_, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) logit_gradient(run, r, dz + r * experts_);
    });
    if (run.wants(kW)) weight_gradient_of(run, dz);  // first: with jitter dx' takes the place of x'
    if (run.wants(kX)) input_gradient(run, dz);
  }

 private:
  bool real(const Run& run, int64_t row) const {
    for (int i : {kSegments, kKeyMask})
      if (run.has_in(i) && run.in(i).i32()[row / length_ * run.in(i).stride + row % length_] == 0) return false;
    return true;
  }

  // A packed copy of w, at the start of the scratch unless the parameter store keeps one.
  const float* packed_w(const Run& run, Pack how) const {
    if (const void* packed = run.packed(kW, how)) return static_cast<const float*>(packed);
    if (!packs_) throw StateError("[moe_route] w: a parameter came without its packed copy");
    pack_weight(run.in(kW).f32(), d_, experts_, how == Pack::transposed, run.scratch_as<float>());
    return run.scratch_as<float>();
  }

  // to[d] = from[d] * noise of this row, or added to what is there.
  void with_noise(const Run& run, int64_t row, const float* from, float* to, bool add) const {
    const PhiloxKey key = philox_key(run.step().seed, "moe.jitter");
    const auto sample = static_cast<uint32_t>(run.step().first_sample + row / length_);
    for (int64_t d = 0; d < d_; ++d) {
      const auto element = static_cast<uint32_t>(row % length_ * d_ + d);
      const PhiloxBlock words = philox(
          {static_cast<uint32_t>(run.step().step), sample, static_cast<uint32_t>(layer_), element / 4}, key);
      const float noise = 1.0f + static_cast<float>(jitter_) * (2.0f * uniform(words[element % 4]) - 1.0f);
      to[d] = add ? to[d] + from[d] * noise : from[d] * noise;
    }
  }

  // x, or x' in the scratch.
  Tensor router_input(const Run& run) const {
    const Tensor& x = run.in(kX);
    if (jitter_ == 0) return x;
    float* noisy = reinterpret_cast<float*>(run.scratch() + x_at_);
    parallel_rows(x.rows, 16 * d_, [&](int64_t begin, int64_t end) {
      const WideRows from(x, begin, end);
      for (int64_t r = begin; r < end; ++r) with_noise(run, r, from.row(r), noisy + r * d_, false);
    });
    return {noisy, x.rows, d_, d_};
  }

  void choose_experts(const Run& run, int64_t row) const {
    const float* p = run.saved_as<float>(kProbabilities) + row * experts_;
    int32_t* chosen = run.saved_as<int32_t>(kChosen) + row * k_;
    float* gates = run.saved_as<float>(kChosenGates) + row * k_;
    float total = 0;
    for (int64_t r = 0; r < k_; ++r) {
      int32_t best = -1;
      for (int32_t e = 0; e < experts_; ++e)
        if (std::find(chosen, chosen + r, e) == chosen + r && (best < 0 || p[e] > p[best])) best = e;
      chosen[r] = best;
      total += p[best];
    }
    int32_t* experts = run.out(kExperts).i32() + row * run.out(kExperts).stride;
    for (int64_t r = 0; r < k_; ++r) {
      gates[r] = p[chosen[r]] / total;
      experts[r] = chosen[r];
    }
  }

  // Slots over the capacity of their expert become -1.
  void drop(const Run& run) const {
    const int64_t rows = samples_ * length_;
    int32_t* work = reinterpret_cast<int32_t*>(run.scratch() + work_at_);
    const int64_t scopes = capacity_.per_shard ? run.shards().count() : samples_;
    check(run.out(kExperts).stride == k_, "moe_route", "experts: expected rows without gaps");
    parallel_for(scopes, [&](int64_t scope, int) {
      const int s = static_cast<int>(scope);
      const int64_t begin = capacity_.per_shard ? run.shards().row_begin(s, rows) : scope * length_;
      const int64_t tokens = (capacity_.per_shard ? run.shards().row_begin(s + 1, rows) : begin + length_) - begin;
      drop_over_capacity(capacity_, capacity_.of(tokens, k_, experts_), tokens * k_, experts_,
                         run.saved_as<float>(kChosenGates) + begin * k_, run.out(kExperts).i32() + begin * k_,
                         work + begin * k_ + scope * experts_);
    });
  }

  // Gates as they go out, and the figures of one sample.
  void finish_sample(const Run& run, int64_t sample) const {
    const RouteFigures at{experts_};
    float* figures = run.out(kFigures).f32() + sample * run.out(kFigures).stride;
    std::fill(figures, figures + at.width(), 0.0f);
    double squared_lse = 0, entropy = 0;
    for (int64_t row = sample * length_; row < (sample + 1) * length_; ++row) {
      const float* gates = run.saved_as<float>(kChosenGates) + row * k_;
      const int32_t* chosen = run.saved_as<int32_t>(kChosen) + row * k_;
      const int32_t* experts = run.out(kExperts).i32() + row * run.out(kExperts).stride;
      float* out = run.out(kGates).f32() + row * run.out(kGates).stride;
      const bool counts = real(run, row);
      for (int64_t r = 0; r < k_; ++r) {
        const bool kept = experts[r] >= 0;
        out[r] = kept ? gates[r] : 0.0f;
        figures[kept ? at.kept(chosen[r]) : at.dropped(chosen[r])] += 1;
        if (counts) figures[at.routed(chosen[r])] += 1;
      }
      if (!counts) continue;
      const RouteRow& s = run.saved_as<RouteRow>(kStats)[row];
      const double log_sum = math::log(s.sum), lse = s.max + log_sum;
      squared_lse += lse * lse;
      entropy += log_sum - s.mean;
      figures[at.tokens()] += 1;
    }
    figures[at.squared_lse()] = static_cast<float>(squared_lse);
    figures[at.entropy()] = static_cast<float>(entropy);
    for (int64_t e = 0; e < experts_; ++e) {
      double sum = 0;
      for (int64_t row = sample * length_; row < (sample + 1) * length_; ++row)
        if (real(run, row)) sum += run.saved_as<float>(kProbabilities)[row * experts_ + e];
      figures[at.probability(e)] = static_cast<float>(sum);
    }
  }

  void logit_gradient(const Run& run, int64_t row, float* dz) const {
    std::fill(dz, dz + experts_, 0.0f);
    const int32_t* chosen = run.saved_as<int32_t>(kChosen) + row * k_;
    const float* gates = run.saved_as<float>(kChosenGates) + row * k_;
    if (const Tensor& d = run.dout(kGates)) {
      const int32_t* experts = run.out(kExperts).i32() + row * run.out(kExperts).stride;
      const float* dgates = d.f32() + row * d.stride;
      float mean = 0;
      for (int64_t r = 0; r < k_; ++r)
        if (experts[r] >= 0) mean += gates[r] * dgates[r];
      for (int64_t r = 0; r < k_; ++r) dz[chosen[r]] = gates[r] * ((experts[r] >= 0 ? dgates[r] : 0.0f) - mean);
    }
    const Tensor& f = run.dout(kFigures);
    if (!f || !real(run, row)) return;
    const RouteFigures at{experts_};
    const float* dfigures = f.f32() + row / length_ * f.stride;
    const RouteRow& s = run.saved_as<RouteRow>(kStats)[row];
    float slope = 0;
    if (dfigures[at.squared_lse()] != 0)
      slope = 2 * dfigures[at.squared_lse()] * (s.max + static_cast<float>(math::log(s.sum)));
    kernels_->balance(experts_, run.saved_as<float>(kProbabilities) + row * experts_, dfigures + at.probability(0),
                      slope, dz);
  }

  void weight_gradient_of(const Run& run, const float* dz) const {
    const Tensor x = router_input(run);
    const GradSink& sink = run.sink(kW);
    check(run.shards().count() <= kMaxShards, "moe_route", "shards: expected at most ", kMaxShards, ", got ",
          run.shards().count());
    std::array<int64_t, kMaxShards + 1> cuts;
    for (int s = 0; s <= run.shards().count(); ++s) cuts[s] = run.shards().row_begin(s, x.rows);
    GradBlock g;
    g.x = x.cells();
    g.ldx = x.stride;
    g.dy = dz;
    g.ldy = g.n = g.ldo = experts_;
    g.cuts = cuts.data();
    g.shards = run.shards().count();
    g.m = d_;
    g.out = sink.out;
    g.add = sink.add.data();
    g.n_add = sink.n_add;
    g.scratch = reinterpret_cast<float*>(run.scratch() + work_at_);
    g.scratch_bytes = product_bytes_;
    weight_gradient(g);
  }

  void input_gradient(const Run& run, const float* dz) const {
    const Tensor& dx = run.din(kX);
    float* noisy = reinterpret_cast<float*>(run.scratch() + x_at_);
    GemmBlock g;
    g.a = dz;
    g.lda = g.k = experts_;
    g.b = packed_w(run, Pack::transposed);
    g.c = jitter_ > 0 ? Cells(noisy) : dx.cells();
    g.ldc = jitter_ > 0 ? d_ : dx.stride;
    g.m = dx.rows;
    g.n = d_;
    if (run.accumulate(kX) && jitter_ == 0) {
      g.epilogue.residual = dx.cells();
      g.epilogue.residual_stride = dx.stride;
    }
    multiply(g);
    if (jitter_ == 0) return;
    parallel_rows(dx.rows, 16 * d_, [&](int64_t begin, int64_t end) {
      const bool add = run.accumulate(kX);
      const NarrowRows to(dx, begin, end, add);
      for (int64_t r = begin; r < end; ++r) with_noise(run, r, noisy + r * d_, to.row(r), add);
    });
  }

  int64_t k_, layer_;
  double jitter_;
  Capacity capacity_;
  int64_t samples_ = 0, length_ = 0, d_ = 0, experts_ = 0;
  bool packs_ = true;
  int64_t x_at_ = 0, work_at_ = 0, product_bytes_ = 0;  // bytes: places in the scratch; of the scratch of dw
  const MoeRouteKernels* kernels_ = nullptr;
};

}  // namespace

std::unique_ptr<Node> make_moe_route(const Attributes& a) { return std::make_unique<MoeRoute>(a); }

}  // namespace mudd
