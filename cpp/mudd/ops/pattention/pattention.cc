#include "mudd/ops/pattention/pattention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rng.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_sums.h"
#include "mudd/ops/gemm/gemm.h"

namespace mudd {

std::span<const KernelRow<PattentionKernels>> pattention_rows() {
  static const KernelRow<PattentionKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/ops/pattention/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

namespace {

constexpr int kX = 0, kResidual = 1, kFirst = 2;
constexpr int kMaxProjections = 8;
constexpr int64_t kFloat = sizeof(float);

// Inputs of projection p.
constexpr int key_of(int p) { return kFirst + 4 * p; }
constexpr int value_of(int p) { return kFirst + 4 * p + 1; }
constexpr int key_bias_of(int p) { return kFirst + 4 * p + 2; }
constexpr int value_bias_of(int p) { return kFirst + 4 * p + 3; }

SlotNorm parse_norm(const std::string& name) {
  constexpr const char* kNames[] = {"l2_norm_gelu", "gelu_l2_norm", "l2_norm",
                                    "softmax",      "gelu",         "gelu_layer_norm"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<SlotNorm>(i);
  fail("pattention", "norm: expected l2_norm_gelu, gelu_l2_norm, l2_norm, softmax, gelu or gelu_layer_norm, got '",
       name, "'");
}

// Scratch as it is cut into pieces, each on a cache line of its own.
class Pieces {
 public:
  explicit Pieces(std::byte* base) : base_(base) {}
  float* take(int64_t floats) {
    std::byte* p = base_ + used_;
    used_ += (floats * kFloat + 63) / 64 * 64;
    return reinterpret_cast<float*>(p);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

struct Projection {
  int64_t n = 0, d_out = 0;
  Theta theta;
  bool wants_key = false, wants_value = false, wants_key_bias = false, wants_value_bias = false;
  bool packs_key = false, packs_value = false;  // not parameters: packed here, on every pass
};

// How rows are cut. Whole: one block, whose products are cut by the threaded drivers (decoding, short runs).
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

class Pattention : public Node {
 public:
  explicit Pattention(const Attributes& a)
      : zoom_(a.number("zoom", 0)),
        keep_scores_(a.flag("keep_scores", true)),
        drop_path_(a.number("drop_path", 0)),
        purpose_(a.word("purpose", "drop_path")) {
    a.only("norm,gelu,eps,zoom,scale_factor,keep_scores,drop_path,purpose");
    theta_.norm = parse_norm(a.word("norm", "l2_norm_gelu"));
    theta_.gelu = parse_activation(a.word("gelu", "gelu_tanh"), "pattention");
    check(theta_.gelu == Activation::gelu_tanh || theta_.gelu == Activation::gelu_erf, "pattention",
          "gelu: expected gelu_tanh or gelu_erf, got '", name_of(theta_.gelu), "'");
    theta_.eps = static_cast<float>(a.number("eps", 1e-5));
    theta_.scale = static_cast<float>(a.number("scale_factor", 1));
    check(theta_.eps >= 0 && std::isfinite(theta_.eps), "pattention", "eps: expected a number >= 0, got ",
          theta_.eps);
    check(std::isfinite(theta_.scale), "pattention", "scale_factor: expected a finite number, got ", theta_.scale);
    check(zoom_ >= 0 && std::isfinite(zoom_), "pattention", "zoom: expected a number >= 0, got ", zoom_);
    check(drop_path_ >= 0 && drop_path_ < 1, "pattention", "drop_path: expected a share in [0, 1), got ",
          drop_path_);
  }

  const char* op() const override { return "pattention"; }
  bool weight_like(int i) const override { return i >= kFirst; }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : -1; }
  bool backward_reads_input(int i) const override {
    if (i == kX) return any_key_ || !keep_scores_;
    if (i < kFirst) return false;
    switch ((i - kFirst) % 4) {
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
  struct Layout {
    int64_t bytes = 0;
    float* factors = nullptr;                              // of every row, when samples are dropped
    std::array<float*, kMaxProjections> keys{}, values{};  // packed here
    float *stats = nullptr, *scores = nullptr, *slots = nullptr, *product = nullptr;
    int64_t slot_floats = 0;
  };

  void infer_projection(Inference& io, int p);
  void check_vector(const Inference& io, int i, const char* name, int64_t size) const;
  void book(Inference& io);
  Layout forward_layout(std::byte* base) const;
  Layout backward_layout(std::byte* base) const;
  // dA, then S; without a gradient of y, zeros: then it stands in for that as well.
  int64_t scores_floats() const { return std::max(2 * rows_ * most_, widest_); }
  bool samples_drop() const { return drop_path_ > 0 && trains_; }
  const float* fill_factors(const Run& run, float* factors) const;
  const float* packed(const Run& run, int input, Pack how, float* scratch) const;
  void multiply_rows(const GemmBlock& g) const;
  template <class Body>
  void over_rows(int64_t begin, int64_t end, Body body) const;
  template <class Body>
  void over_blocks(float* slots, int64_t slot_floats, Body body) const;
  void scores_of(const Run& run, int p, const float* key, int64_t begin, int64_t end, float* a) const;
  void block_gradients(const Run& run, int p, const Layout& w, const float* factors, const float* key,
                       const float* key_plain, const float* value, bool add_dx) const;
  void token_gradient(const Run& run, const Tensor& left, const Tensor& right, const GradSink& sink,
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
  int64_t product_bytes_ = 0;
  const PattentionKernels* kernels_ = nullptr;
};

void Pattention::check_vector(const Inference& io, int i, const char* name, int64_t size) const {
  if (!io.has_input(i)) return;
  check(io.input(i).dtype == DType::f32 && io.input(i).shape == std::vector<int64_t>{size}, "pattention", name,
        ": expected float32[", size, "], got ", io.input(i).text());
}

void Pattention::infer_projection(Inference& io, int p) {
  const TensorSpec &key = io.input(key_of(p)), &value = io.input(value_of(p));
  check(io.has_input(key_of(p)) && io.has_input(value_of(p)), "pattention", "projection ", p,
        ": expected a key and a value");
  check(key.dtype == DType::f32 && key.shape.size() == 2 && key.cols() == d_in_ && key.rows() > 0, "pattention",
        "key: expected float32[n, ", d_in_, "] as x has columns, got ", key.text());
  check(value.dtype == DType::f32 && value.shape.size() == 2 && value.rows() == key.rows() && value.cols() > 0,
        "pattention", "value: expected float32[", key.rows(), ", d_out] as key has rows, got ", value.text());
  Projection own;
  own.n = key.rows();
  own.d_out = value.cols();
  own.theta = theta_;
  own.theta.tau = static_cast<float>(math::sqrt(zoom_ > 0 ? zoom_ : static_cast<double>(own.n)));
  own.wants_key = io.wants_gradient(key_of(p));
  own.wants_value = io.wants_gradient(value_of(p));
  own.wants_key_bias = io.wants_gradient(key_bias_of(p));
  own.wants_value_bias = io.wants_gradient(value_bias_of(p));
  own.packs_key = !io.input_is_parameter(key_of(p));
  own.packs_value = !io.input_is_parameter(value_of(p));
  check_vector(io, key_bias_of(p), "key_bias", own.n);
  check_vector(io, value_bias_of(p), "value_bias", own.d_out);
  trains_ = trains_ || own.wants_key || own.wants_value || own.wants_key_bias || own.wants_value_bias;
  any_key_ = any_key_ || own.wants_key;
  most_ = std::max(most_, own.n);
  widest_ = std::max(widest_, own.d_out);
  TensorSpec y = io.input(kX);
  y.shape.back() = own.d_out;
  if (io.has_input(kResidual))
    check(io.input(kResidual).dtype == DType::f32 && io.input(kResidual).shape == y.shape, "pattention",
          "residual: expected ", y.text(), ", got ", io.input(kResidual).text());
  io.output(std::move(y));
  projections_.push_back(own);
}

void Pattention::infer(Inference& io) {
  const TensorSpec& x = io.input(kX);
  check(x.dtype == DType::f32 && !x.shape.empty() && x.cols() > 0, "pattention",
        "x: expected float32 with at least one column, got ", x.text());
  const int count = (io.n_inputs() - kFirst + 3) / 4;
  check(count >= 1 && count <= kMaxProjections, "pattention",
        "inputs: expected x, residual and the tokens of 1 to ", kMaxProjections, " projections, got ", count);
  has_residual_ = io.has_input(kResidual);
  check(!has_residual_ || count == 1, "pattention", "residual: expected one projection, got ", count);
  rows_ = x.rows();
  d_in_ = x.cols();
  trains_ = wants_x_ = io.wants_gradient(kX);
  for (int p = 0; p < count; ++p) infer_projection(io, p);
  check(!samples_drop() || rows_ % io.shards().samples() == 0, "pattention",
        "drop_path: expected whole samples, got ", x.text());
  kernels_ = &choose(pattention_rows());
  cut_ = RowCut::choose(rows_, most_);
  book(io);
}

void Pattention::book(Inference& io) {
  const int count = static_cast<int>(projections_.size());
  int64_t product = 0;
  for (int p = 0; p < count; ++p) {
    const Projection& own = projections_[static_cast<size_t>(p)];
    if (trains_) io.saved(keep_scores_ ? rows_ * own.n * kFloat : 0);
    io.pack(key_of(p), Pack::transposed);
    io.pack(value_of(p), Pack::plain);
    if (wants_x_) io.pack(key_of(p), Pack::plain);
    if (trains_) io.pack(value_of(p), Pack::transposed);
    const int shards = io.shards().count();
    if (own.wants_key) product = std::max(product, grad_scratch_bytes(own.n, d_in_, shards));
    if (own.wants_value) product = std::max(product, grad_scratch_bytes(own.n, own.d_out, shards));
    for (const auto& [wants, width] : {std::pair{own.wants_key_bias, own.n}, {own.wants_value_bias, own.d_out}})
      if (wants) product = std::max(product, RowSums(io.shards(), rows_, width).bytes());
  }
  product_bytes_ = product;
  if (trains_) io.saved(count * rows_ * 2 * kFloat);
  io.scratch_forward(forward_layout(nullptr).bytes);
  io.scratch_backward(backward_layout(nullptr).bytes);
}

Pattention::Layout Pattention::forward_layout(std::byte* base) const {
  Layout w;
  Pieces pieces(base);
  if (samples_drop()) w.factors = pieces.take(rows_);
  for (size_t i = 0; i < projections_.size(); ++i) {
    const Projection& p = projections_[i];
    if (p.packs_key) w.keys[i] = pieces.take(packed_size(d_in_, p.n));
    if (p.packs_value) w.values[i] = pieces.take(packed_size(p.n, p.d_out));
  }
  if (!trains_) w.stats = pieces.take(2 * rows_);
  w.slot_floats = cut_.step * most_;
  w.slots = pieces.take(cut_.slots * w.slot_floats);
  w.bytes = pieces.used();
  return w;
}

Pattention::Layout Pattention::backward_layout(std::byte* base) const {
  Layout w;
  if (!trains_) return w;
  Pieces pieces(base);
  if (samples_drop()) w.factors = pieces.take(rows_);
  int64_t key = 0, key_plain = 0, value = 0;  // one projection at a time
  for (const Projection& p : projections_) {
    if (p.packs_key && !keep_scores_) key = std::max(key, packed_size(d_in_, p.n));
    if (p.packs_key && wants_x_) key_plain = std::max(key_plain, packed_size(p.n, d_in_));
    if (p.packs_value) value = std::max(value, packed_size(p.d_out, p.n));
  }
  w.keys = {pieces.take(key), pieces.take(key_plain)};
  w.values = {pieces.take(value)};
  w.scores = pieces.take(scores_floats());
  w.slot_floats = keep_scores_ ? 0 : cut_.step * most_;
  w.slots = pieces.take(cut_.slots * w.slot_floats);
  w.product = pieces.take(product_bytes_ / kFloat);
  w.bytes = pieces.used();
  return w;
}

// Dropped samples have the factor 0, the others 1 / (1 - drop_path); null without dropping.
const float* Pattention::fill_factors(const Run& run, float* factors) const {
  if (!samples_drop()) return nullptr;
  const PhiloxKey key = philox_key(run.step().seed, purpose_);
  const int64_t samples = run.shards().samples(), each = rows_ / samples;
  const float kept = static_cast<float>(1.0 / (1.0 - drop_path_));
  for (int64_t s = 0; s < samples; ++s) {
    const PhiloxBlock words = philox(
        {static_cast<uint32_t>(run.step().step), static_cast<uint32_t>(run.step().first_sample + s), 0, 0}, key);
    std::fill_n(factors + s * each, each, uniform_double(words[0]) < drop_path_ ? 0.0f : kept);
  }
  return factors;
}

const float* Pattention::packed(const Run& run, int input, Pack how, float* scratch) const {
  if (const float* held = run.packed(input, how)) return held;
  if (!scratch) throw StateError("[pattention] a parameter came without its packed copy");
  const Tensor& w = run.in(input);
  pack_weight(w.f32(), w.rows, w.cols, how == Pack::transposed, scratch);
  return scratch;
}

void Pattention::multiply_rows(const GemmBlock& g) const {
  if (cut_.whole) multiply(g);
  else gemm_kernels().multiply(g);
}

// body(begin, end) over the rows of a block: at once inside a task, in pieces on all threads when it is whole.
template <class Body>
void Pattention::over_rows(int64_t begin, int64_t end, Body body) const {
  if (!cut_.whole) return body(begin, end);
  constexpr int64_t kRows = 8;
  parallel_for((end - begin + kRows - 1) / kRows,
               [&](int64_t task, int) { body(begin + task * kRows, std::min(end, begin + (task + 1) * kRows)); });
}

// body(begin, end, slot) for all blocks of rows; the slots of scratch were booked for the threads known then.
template <class Body>
void Pattention::over_blocks(float* slots, int64_t slot_floats, Body body) const {
  const int64_t blocks = cut_.blocks();
  if (cut_.whole) {
    if (blocks) body(0, rows_, slots);
    return;
  }
  std::atomic<int64_t> next{0};
  parallel_for(std::min(cut_.slots, blocks), [&](int64_t slot, int) {
    for (int64_t b = next++; b < blocks; b = next++)
      body(b * cut_.step, std::min(rows_, (b + 1) * cut_.step), slots + slot * slot_floats);
  });
}

// Rows [begin, end) of A = x K^T + key_bias, at a, n apart.
void Pattention::scores_of(const Run& run, int p, const float* key, int64_t begin, int64_t end, float* a) const {
  const Tensor& x = run.in(kX);
  GemmBlock g;
  g.a = x.f32() + begin * x.stride;
  g.lda = x.stride;
  g.b = key;
  g.c = a;
  g.ldc = g.n = projections_[static_cast<size_t>(p)].n;
  g.m = end - begin;
  g.k = d_in_;
  if (run.has_in(key_bias_of(p))) g.epilogue.bias = run.in(key_bias_of(p)).f32();
  multiply_rows(g);
}

void Pattention::forward(const Run& run) {
  const Layout w = forward_layout(run.scratch());
  const int count = static_cast<int>(projections_.size());
  const float* factors = fill_factors(run, w.factors);
  std::array<std::array<const float*, 2>, kMaxProjections> tokens{};
  for (int p = 0; p < count; ++p)
    tokens[static_cast<size_t>(p)] = {packed(run, key_of(p), Pack::transposed, w.keys[static_cast<size_t>(p)]),
                                      packed(run, value_of(p), Pack::plain, w.values[static_cast<size_t>(p)])};
  over_blocks(w.slots, w.slot_floats, [&](int64_t begin, int64_t end, float* s) {
    for (int p = 0; p < count; ++p) {
      const Projection& own = projections_[static_cast<size_t>(p)];
      float* a = trains_ && keep_scores_ ? run.saved_as<float>(p) + begin * own.n : s;
      float* stats = trains_ ? run.saved_as<float>(count) + 2 * p * rows_ : w.stats;
      scores_of(run, p, tokens[static_cast<size_t>(p)][0], begin, end, a);
      over_rows(begin, end, [&](int64_t from, int64_t to) {
        const int64_t at = (from - begin) * own.n;
        kernels_->fwd(to - from, own.n, own.theta, a + at, own.n, factors ? factors + from : nullptr, s + at,
                      own.n, stats + 2 * from);
      });
      const Tensor& y = run.out(p);
      const bool has_bias = run.has_in(value_bias_of(p));
      const float* bias = has_bias ? run.in(value_bias_of(p)).f32() : nullptr;
      GemmBlock g;
      g.a = s;
      g.lda = g.k = own.n;
      g.b = tokens[static_cast<size_t>(p)][1];
      g.c = y.f32() + begin * y.stride;
      g.ldc = y.stride;
      g.m = end - begin;
      g.n = own.d_out;
      if (!factors) g.epilogue.bias = bias;
      if (has_residual_) {
        g.epilogue.residual = run.in(kResidual).f32() + begin * run.in(kResidual).stride;
        g.epilogue.residual_stride = run.in(kResidual).stride;
      }
      multiply_rows(g);
      if (factors && bias) kernels_->add_bias(end - begin, own.d_out, bias, factors + begin, g.c, y.stride);
    }
  });
}

// dA and S of projection p into w.scores, and its part of dx.
void Pattention::block_gradients(const Run& run, int p, const Layout& w, const float* factors, const float* key,
                                 const float* key_plain, const float* value, bool add_dx) const {
  const Projection& own = projections_[static_cast<size_t>(p)];
  const Tensor& dy = run.dout(p);
  float *da = w.scores, *s = own.wants_value ? w.scores + rows_ * own.n : nullptr;
  const float* stats = run.saved_as<float>(static_cast<int>(projections_.size())) + 2 * p * rows_;
  over_blocks(w.slots, w.slot_floats, [&](int64_t begin, int64_t end, float* slot) {
    const float* a = keep_scores_ ? run.saved_as<float>(p) + begin * own.n : slot;
    if (!keep_scores_) scores_of(run, p, key, begin, end, slot);
    GemmBlock g;
    g.a = dy.f32() + begin * dy.stride;
    g.lda = dy.stride;
    g.b = value;
    g.c = da + begin * own.n;
    g.ldc = g.n = own.n;
    g.m = end - begin;
    g.k = own.d_out;
    multiply_rows(g);
    over_rows(begin, end, [&](int64_t from, int64_t to) {
      kernels_->bwd(to - from, own.n, own.theta, a + (from - begin) * own.n, own.n,
                    factors ? factors + from : nullptr, stats + 2 * from, da + from * own.n, own.n,
                    s ? s + from * own.n : nullptr, own.n);
    });
    if (!run.wants(kX)) return;
    const Tensor& dx = run.din(kX);
    GemmBlock back;
    back.a = da + begin * own.n;
    back.lda = back.k = own.n;
    back.b = key_plain;
    back.c = dx.f32() + begin * dx.stride;
    back.ldc = dx.stride;
    back.m = end - begin;
    back.n = d_in_;
    if (add_dx) {  // finished sums are added, so that every chain starts from zero
      back.epilogue.residual = back.c;
      back.epilogue.residual_stride = dx.stride;
    }
    multiply_rows(back);
  });
}

void Pattention::backward(const Run& run) {
  const Layout w = backward_layout(run.scratch());
  const float* factors = fill_factors(run, w.factors);
  bool dx_written = run.wants(kX) && run.accumulate(kX);
  for (int p = 0; p < static_cast<int>(projections_.size()); ++p) {
    const Projection& own = projections_[static_cast<size_t>(p)];
    Tensor dy = run.dout(p);
    if (dy) {
      const float* key = keep_scores_ ? nullptr : packed(run, key_of(p), Pack::transposed, w.keys[0]);
      const float* plain = wants_x_ ? packed(run, key_of(p), Pack::plain, w.keys[1]) : nullptr;
      const float* value = packed(run, value_of(p), Pack::transposed, w.values[0]);
      block_gradients(run, p, w, factors, key, plain, value, dx_written);
      dx_written = true;
    } else {  // nobody used this output: all its gradients are sums over nothing
      std::fill_n(w.scores, scores_floats(), 0.0f);
    }
    const Tensor da{w.scores, rows_, own.n, own.n}, s{w.scores + rows_ * own.n, rows_, own.n, own.n};
    if (run.wants(key_of(p))) token_gradient(run, da, run.in(kX), run.sink(key_of(p)), w.product);
    if (run.wants(key_bias_of(p))) bias_gradient(run, da, nullptr, run.sink(key_bias_of(p)), w.product);
    const Tensor back = dy ? dy : Tensor{w.scores, rows_, own.d_out, 0};  // the row of zeros, again and again
    if (run.wants(value_of(p))) token_gradient(run, s, back, run.sink(value_of(p)), w.product);
    if (run.wants(value_bias_of(p))) bias_gradient(run, back, factors, run.sink(value_bias_of(p)), w.product);
  }
  if (!run.wants(kX) || dx_written) return;
  const Tensor& dx = run.din(kX);
  for (int64_t r = 0; r < dx.rows; ++r) std::fill_n(dx.f32() + r * dx.stride, d_in_, 0.0f);
}

// The gradient of tokens [n, d]: left^T right, rows summed by shards.
void Pattention::token_gradient(const Run& run, const Tensor& left, const Tensor& right, const GradSink& sink,
                                float* scratch) const {
  const int shards = run.shards().count();
  check(shards <= kMaxShards, "pattention", "shards: expected at most ", kMaxShards, ", got ", shards);
  std::array<int64_t, kMaxShards + 1> cuts;
  for (int s = 0; s <= shards; ++s) cuts[static_cast<size_t>(s)] = run.shards().row_begin(s, rows_);
  GradBlock g;
  g.x = left.f32();
  g.ldx = left.stride;
  g.dy = right.f32();
  g.ldy = right.stride;
  g.cuts = cuts.data();
  g.shards = shards;
  g.m = left.cols;
  g.n = g.ldo = right.cols;
  g.out = sink.out;
  g.add = sink.add.data();
  g.n_add = sink.n_add;
  g.scratch = scratch;
  g.scratch_bytes = product_bytes_;
  weight_gradient(g);
}

void Pattention::bias_gradient(const Run& run, const Tensor& x, const float* factors, const GradSink& sink,
                               float* partials) const {
  const RowSums sums(run.shards(), rows_, x.cols);
  parallel_for(sums.blocks(), [&](int64_t task, int) {
    int64_t begin = 0, end = 0;
    sums.range(task, &begin, &end);
    kernels_->sum_rows(end - begin, x.cols, x.f32() + begin * x.stride, x.stride,
                       factors ? factors + begin : nullptr, sums.partial(partials, task));
  });
  sums.finish(partials, sink);
}

}  // namespace

std::unique_ptr<Node> make_pattention(const Attributes& a) { return std::make_unique<Pattention>(a); }

}  // namespace mudd
