#include "mudd/ops/pattention/pattention.h"

#include <cmath>

#include "mudd/base/arena.h"
#include "mudd/base/math.h"
#include "mudd/graph/row_sums.h"
#include "mudd/ops/pattention/node.h"

namespace mudd {

std::span<const KernelRow<PattentionKernels>> pattention_rows() {
  static const KernelRow<PattentionKernels> rows[] = {
#define MUDD_KERNEL_LIST "mudd/ops/pattention/kernels.inc"
#include "mudd/base/kernel_rows.inc"
  };
  return rows;
}

namespace {

SlotNorm parse_norm(const std::string& name) {
  constexpr const char* kNames[] = {"l2_norm_gelu", "gelu_l2_norm", "l2_norm",
                                    "softmax",      "gelu",         "gelu_layer_norm"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<SlotNorm>(i);
  fail("pattention", "norm: expected l2_norm_gelu, gelu_l2_norm, l2_norm, softmax, gelu or gelu_layer_norm, got '",
       name, "'");
}

}  // namespace

Pattention::Pattention(const Attributes& a)
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
  check(drop_path_ >= 0 && drop_path_ <= 1, "pattention", "drop_path: expected a share in [0, 1], got ",
        drop_path_);
}

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
  flops_ += 2.0 * static_cast<double>(rows_ * own.n) * static_cast<double>(d_in_ + own.d_out);
  own.theta = theta_;
  own.theta.tau = static_cast<float>(math::sqrt(zoom_ > 0 ? zoom_ : static_cast<double>(own.n)));
  own.wants_key = io.wants_gradient(key_of(p));
  own.wants_value = io.wants_gradient(value_of(p));
  own.wants_key_bias = io.wants_gradient(key_bias_of(p));
  own.wants_value_bias = io.wants_gradient(value_bias_of(p));
  const double rows_of_key = 2.0 * static_cast<double>(rows_ * own.n);
  backward_flops_ += rows_of_key * static_cast<double>(d_in_) * (int{wants_x_} + int{own.wants_key});
  backward_flops_ += rows_of_key * static_cast<double>(own.d_out) * int{own.wants_value};
  own.packs_key = io.packs_when_used(key_of(p), rows_);
  own.packs_value = io.packs_when_used(value_of(p), rows_);
  check_vector(io, key_bias_of(p), "key_bias", own.n);
  check_vector(io, value_bias_of(p), "value_bias", own.d_out);
  trains_ = trains_ || own.wants_key || own.wants_value || own.wants_key_bias || own.wants_value_bias;
  any_key_ = any_key_ || own.wants_key;
  most_ = std::max(most_, own.n);
  widest_ = std::max(widest_, own.d_out);
  TensorSpec y = io.input(kX);
  y.shape.back() = own.d_out;
  if (io.has_input(kResidual))
    check(is_real(io.input(kResidual)) && io.input(kResidual).shape == y.shape, "pattention",
          "residual: expected ", y.text(), ", got ", io.input(kResidual).text());
  io.output(std::move(y));
  projections_.push_back(own);
}

void Pattention::infer(Inference& io) {
  const TensorSpec& x = io.input(kX);
  check(is_real(x) && !x.shape.empty() && x.cols() > 0, "pattention",
        "x: expected float32 with at least one column, got ", x.text());
  const int count = io.n_inputs() <= key_of(1) ? 1 : 1 + (io.n_inputs() - key_of(1) + 3) / 4;
  check(count >= 1 && count <= kMaxProjections, "pattention", "inputs: expected x and the tokens of 1 to ",
        kMaxProjections, " projections, got ", count);
  has_residual_ = io.has_input(kResidual);
  check(!has_residual_ || count == 1, "pattention", "residual: expected one projection, got ", count);
  rows_ = x.rows();
  d_in_ = x.cols();
  trains_ = wants_x_ = io.wants_gradient(kX);
  compute_ = io.compute();
  sums_dx_ = wants_x_ && count > 1 && x.dtype == DType::bf16;
  flops_ = backward_flops_ = 0;
  for (int p = 0; p < count; ++p) infer_projection(io, p);
  if (trains_)  // gradients of the scores
    for (const Projection& own : projections_)
      backward_flops_ += 2.0 * static_cast<double>(rows_ * own.n) * static_cast<double>(own.d_out);
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
    if (trains_) io.saved(keep_scores_ ? stored(rows_ * own.n) : 0);
    if (!own.packs_key) io.pack(key_of(p), Pack::transposed);
    if (!own.packs_key && wants_x_) io.pack(key_of(p), Pack::plain);
    if (!own.packs_value) io.pack(value_of(p), Pack::plain);
    if (!own.packs_value && trains_) io.pack(value_of(p), Pack::transposed);
    const int shards = io.shards().count();
    const int products = int{own.wants_key} + int{own.wants_value};
    if (own.wants_key) product = std::max(product, grad_scratch_bytes(own.n, d_in_, shards, products, compute_));
    if (own.wants_value)
      product = std::max(product, grad_scratch_bytes(own.n, own.d_out, shards, products, compute_));
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
  if (samples_drop()) w.factors = pieces.take<float>(rows_);
  for (size_t i = 0; i < projections_.size(); ++i) {
    const Projection& p = projections_[i];
    if (p.packs_key) w.keys[i] = pieces.bytes(packed_bytes(d_in_, p.n, compute_));
    if (p.packs_value) w.values[i] = pieces.bytes(packed_bytes(p.n, p.d_out, compute_));
  }
  if (!trains_) w.stats = pieces.take<float>(2 * rows_);
  const bool apart = rounds() && !(trains_ && keep_scores_);
  w.slot_bytes = slot_floats() * (kFloat + (apart ? stored(1) : 0));
  w.slots = pieces.bytes(cut_.slots * w.slot_bytes);
  w.bytes = pieces.used();
  return w;
}

Pattention::Layout Pattention::backward_layout(std::byte* base) const {
  Layout w;
  if (!trains_) return w;
  Pieces pieces(base);
  if (samples_drop()) w.factors = pieces.take<float>(rows_);
  int64_t key = 0, key_plain = 0, value = 0;  // one projection at a time
  for (const Projection& p : projections_) {
    if (p.packs_key && !keep_scores_) key = std::max(key, packed_bytes(d_in_, p.n, compute_));
    if (p.packs_key && wants_x_) key_plain = std::max(key_plain, packed_bytes(p.n, d_in_, compute_));
    if (p.packs_value) value = std::max(value, packed_bytes(p.d_out, p.n, compute_));
  }
  w.keys = {pieces.bytes(key), pieces.bytes(key_plain)};
  w.values = {pieces.bytes(value)};
  w.scores = pieces.bytes(scores_bytes());
  if (sums_dx_) w.dx = pieces.take<float>(rows_ * d_in_);
  w.slot_bytes = slot_floats() * ((rounds() ? kFloat : 0) + (keep_scores_ ? 0 : stored(1)));
  w.slots = pieces.bytes(cut_.slots * w.slot_bytes);
  w.product = pieces.take<float>(product_bytes_ / kFloat);
  w.bytes = pieces.used();
  return w;
}

std::unique_ptr<Node> make_pattention(const Attributes& a) { return std::make_unique<Pattention>(a); }

}  // namespace mudd
