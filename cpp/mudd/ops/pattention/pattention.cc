#include "mudd/ops/pattention/pattention.h"

#include <cmath>

#include "mudd/base/arena.h"
#include "mudd/base/math.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/pattention/node.h"

namespace mudd {

std::span<const KernelRow<PattentionKernels>> pattention_rows() {
  static const KernelRow<PattentionKernels> rows[] = {MUDD_KERNEL_ROWS(pattention_f32)};
  return rows;
}

namespace {}  // namespace

Pattention::Pattention(const Attributes& a)
    : zoom_(a.number("zoom")),
      keep_scores_(a.flag("keep_scores")),
      drop_path_(a.number("drop_path")),
      purpose_(a.word("purpose")) {
  theta_.norm = a.choice<SlotNorm>("norm");
  theta_.gelu = a.word("gelu") == "gelu_erf" ? Activation::gelu_erf : Activation::gelu_tanh;
  theta_.eps = static_cast<float>(a.number("eps"));
  theta_.scale = static_cast<float>(a.number("scale_factor"));
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
  check(!has_residual_ || count == 1, "pattention", "residual: it is allowed with one projection only, got ",
        count);
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
  int64_t gemm = 0;
  for (int p = 0; p < count; ++p) {
    const Projection& own = projections_[static_cast<size_t>(p)];
    if (trains_) io.saved(keep_scores_ ? stored(rows_ * own.n) : 0);
    if (!own.packs_key) io.pack(key_of(p), Pack::transposed);
    if (!own.packs_key && wants_x_) io.pack(key_of(p), Pack::plain);
    if (!own.packs_value) io.pack(value_of(p), Pack::plain);
    if (!own.packs_value && trains_) io.pack(value_of(p), Pack::transposed);
    const int shards = io.shards().count();
    const int gemms = int{own.wants_key} + int{own.wants_value};
    if (own.wants_key) gemm = std::max(gemm, grad_scratch_bytes(own.n, d_in_, shards, gemms, compute_));
    if (own.wants_value) gemm = std::max(gemm, grad_scratch_bytes(own.n, own.d_out, shards, gemms, compute_));
    for (const auto& [wants, width] : {std::pair{own.wants_key_bias, own.n}, {own.wants_value_bias, own.d_out}})
      if (wants) gemm = std::max(gemm, RowSums(io.shards(), rows_, width).bytes());
  }
  gemm_bytes_ = gemm;
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
  w.gemm_scratch = pieces.take<float>(gemm_bytes_ / kFloat);
  w.bytes = pieces.used();
  return w;
}

const OpSpec& pattention_op() {
  static const OpSpec spec{
      .name = "pattention",
      .help = R"(y = scale_factor Theta(x key^T + key_bias) value + value_bias.

Token-parameter attention (Wang et al. 2024).
x [..., D], key [n, D], value [n, D2], key_bias [n], value_bias [D2]; residual has the shape of y and is added.
more: key, value, key_bias, value_bias of further projections of the same x, None if absent; the result is then a
tuple. norm, with tau = sqrt(zoom or n) and |.| the norm of a row: l2_norm_gelu = gelu(tau a / (|a| + eps)),
gelu_l2_norm = tau gelu(a) / (|gelu(a)| + eps), l2_norm = tau a / (|a| + eps), softmax = n softmax(a), gelu,
gelu_layer_norm (eps is in the root of the variance). If the norm of a row is zero, its result and gradient are zero.
drop_path: if gradients are computed, whole samples of y are dropped with this probability, and the others are
divided by 1 - drop_path.)",
      .backward_help = R"(dy is one array, or a tuple with one for each projection.)",
      .inputs = {{"x"},
                 {"key"},
                 {"value"},
                 {"key_bias", OpInput::kOptional},
                 {"value_bias", OpInput::kOptional},
                 {"residual", OpInput::kOptional}},
      .repeated = {{"key"}, {"value"}, {"key_bias", OpInput::kOptional}, {"value_bias", OpInput::kOptional}},
      .outputs = {{"y", OpOutput::kRepeated}},
      .options = {option::word("norm", "l2_norm_gelu",
                               {"l2_norm_gelu", "gelu_l2_norm", "l2_norm", "softmax", "gelu", "gelu_layer_norm"},
                               "Theta, the function of a row of scores"),
                  option::word("gelu", "gelu_tanh", {"gelu_tanh", "gelu_erf"}, "form of GELU in the norm"),
                  option::number("eps", 1e-5, at_least(0), "epsilon of the norm"),
                  option::number("zoom", 0, at_least(0), "tau squared; 0: n"),
                  option::number("scale_factor", 1, {}, "factor of Theta"),
                  option::flag("keep_scores", true,
                               "keep the scores for backward; false: recompute them, with the same bits"),
                  option::number("drop_path", 0, from_to(0, 1), "probability of dropping a whole sample of y"),
                  option::word("purpose", "drop_path", {}, "key of the random draws")},
      .make = make<Pattention>,
      .kernels =
          [] {
            return std::vector{chosen(pattention_rows()), chosen(gemm_rows(DType::f32)),
                               chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
