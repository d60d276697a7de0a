#include "mudd/ops/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "mudd/base/arena.h"
#include "mudd/base/parallel.h"
#include "mudd/base/rounding.h"
#include "mudd/ops/attention/node.h"

namespace mudd {

std::span<const KernelRow<AttentionKernels>> attention_rows(DType compute) {
  static const KernelRow<AttentionKernels> f32[] = {
      MUDD_KERNEL_ROWS(attention_f32),
  };
  static const KernelRow<AttentionKernels> b16[] = {
      MUDD_UNIT_KERNEL_ROWS(attention_bf16),
      // then the rows of fp32
      MUDD_KERNEL_ROWS(attention_f32),
  };
  if (compute == DType::bf16) return b16;
  return f32;
}

Attention::Attention(const Attributes& a)
    : heads_(a.integer("n_head")),
      kv_heads_(a.integer("n_kv_head")),
      window_(a.integer("window") ? a.integer("window") : kNoWindow),
      scale_(a.number("scale")),
      causal_(a.flag("causal")),
      ring_(a.flag("ring")),
      activation_(a.choice<Scores>("activation")),
      divisor_(a.integer("divisor")),
      eps_(a.number("eps")),
      dropout_(a.number("dropout")),
      purpose_(a.word("purpose")) {}

void Attention::check_masks(const Inference& io) const {
  const auto expect = [&](int input, const char* name, int64_t length) {
    if (!io.has_input(input)) return;
    const TensorSpec& m = io.input(input);
    check(m.dtype == DType::i32 && m.shape == std::vector<int64_t>{q_.batch, length}, "attention", name,
          ": expected i32[", q_.batch, ", ", length, "], got ", m.text());
  };
  expect(kSegments, "segments", q_.time);
  expect(kKeyMask, "key_mask", cached_ ? cache_rows_ : q_.time);
  check(!cached_ || !io.has_input(kSegments), "attention", "segments: not together with k_cache; use key_mask");
}

void Attention::check_caches(Inference& io) {
  for (const int input : {kKeyCache, kValueCache}) {
    const char* name = input == kKeyCache ? "k_cache" : "v_cache";
    if (!cached_) {
      check(!io.has_input(input), "attention", name, ": needs k_cache");
      continue;
    }
    check(io.has_input(input), "attention", name, ": expected one with k_cache");
    const TensorSpec& c = io.input(input);
    const bool fits = c.dtype == DType::f32 && c.shape.size() == 4 && c.shape[0] == k_.batch &&
                      c.shape[1] == k_.heads && c.shape[3] == k_.dim &&
                      (input == kKeyCache || c.shape[2] == cache_rows_);
    check(fits, "attention", name, ": expected f32[", k_.batch, ", ", k_.heads, ", Tmax, ", k_.dim, "], got ",
          c.text());
    cache_rows_ = c.shape[2];
    check(cache_rows_ >= q_.time, "attention", name, ": expected Tmax >= ", q_.time, ", got ", cache_rows_);
  }
  for (int i = 0; cached_ && i <= kValue; ++i)
    check(!io.wants_gradient(i), "attention", "k_cache: there is no backward through a cache");
}

void Attention::infer(Inference& io) {
  cached_ = io.has_input(kKeyCache);
  check(causal_ || !cached_, "attention", "k_cache: expected causal attention");
  check(cached_ || !ring_, "attention", "ring: needs k_cache");
  check(causal_ || window_ == kNoWindow, "attention", "window: expected causal attention");
  q_ = head_shape("attention", "q", io.input(kQuery), heads_);
  k_ = head_shape("attention", "k", io.input(kKey), kv_heads_ ? kv_heads_ : heads_);
  const HeadShape v = head_shape("attention", "v", io.input(kValue), k_.heads);
  check(k_.batch == q_.batch && k_.time == q_.time && k_.dim == q_.dim, "attention",
        "k: expected B, T, hd = ", q_.batch, ", ", q_.time, ", ", q_.dim, " as q has, got ",
        io.input(kKey).text());
  check(v.batch == k_.batch && v.time == k_.time && v.dim == k_.dim, "attention", "v: expected the shape of k, ",
        io.input(kKey).text(), ", got ", io.input(kValue).text());
  check(q_.heads % k_.heads == 0, "attention", "n_kv_head: expected a divisor of ", q_.heads, ", got ", k_.heads);
  check_caches(io);
  check_masks(io);
  if (ring_ && window_ < cache_rows_) {
    check(!io.has_input(kKeyMask), "attention", "key_mask: not together with ring and a window below Tmax");
    ring_mask_.assign(static_cast<size_t>(cache_rows_), 0);
  }
  io.output(io.input(kQuery));
  // The flops of q k^T and P v. Causal attention computes only the visible half, and a window only its keys.
  const double keys = static_cast<double>(cached_ ? cache_rows_ : k_.time);
  const double inside = std::min(1.0, static_cast<double>(window_) / std::max(keys, 1.0));
  const double seen = causal_ && !cached_ ? inside - 0.5 * inside * inside : inside;
  flops_ = 4 * seen * keys * static_cast<double>(q_.rows() * q_.heads * q_.dim);
  // One backward pass computes all three gradients, even if only some are requested.
  const bool trains = io.wants_gradient(kQuery) || io.wants_gradient(kKey) || io.wants_gradient(kValue);
  backward_flops_ = trains ? 2 * flops_ : 0;
  drops_ = dropout_ > 0 && trains;
  check(!drops_ || (q_.heads <= 1 << 12 && q_.time <= 1 << 22), "attention",
        "dropout: expected at most 4096 heads and 4194304 positions, got ", q_.heads, " and ", q_.time);
  if (!cached_) io.saved(q_.rows() * q_.heads * static_cast<int64_t>(sizeof(float)));
  kernels_ = &choose(attention_rows(io.compute()));
  book(io);
}

void Attention::book(Inference& io) {
  constexpr int64_t kFloat = sizeof(float);
  slots_ = std::min<int64_t>(num_threads(),
                             std::max<int64_t>(1, q_.batch * q_.heads * ceil_div(q_.time, kernels_->query_tile)));
  fwd_bytes_ = aligned(kernels_->fwd_scratch(q_.dim) * kFloat);
  bwd_bytes_ = aligned(kernels_->bwd_scratch(q_.dim) * kFloat);
  for (const int input : {kQuery, kKey, kValue}) {
    const bool sums = io.wants_gradient(input) && io.input(input).dtype == DType::bf16;
    sum_floats_[input] = sums ? io.input(input).size() : 0;
  }
  io.scratch_forward(slots_ * fwd_bytes_);
  io.scratch_backward(backward_scratch(nullptr).bytes);
}

Attention::BackwardScratch Attention::backward_scratch(std::byte* base) const {
  Pieces pieces(base);
  BackwardScratch s;
  s.delta = pieces.take<float>(q_.rows() * q_.heads);
  s.workers = pieces.bytes(slots_ * bwd_bytes_);
  for (const int input : {kQuery, kKey, kValue}) s.sums[input] = pieces.take<float>(sum_floats_[input]);
  s.bytes = pieces.used();
  return s;
}

const OpSpec& attention_op() {
  static const OpSpec spec{
      .name = "attention",
      .help = R"(softmax(scale q k^T + mask) v by tiles, never T x T (Dao et al. 2022).

q [B, T, H*hd], k and v [B, T, G*hd]; head h reads group h // (H / G). segments and key_mask are int32 [B, T]: a
query sees keys of its own segment whose mask is 1, and no later keys if causal. With window, a query sees only
itself and the window - 1 keys before it; other tiles are skipped. The output of a query without visible keys is 0.
k_cache, v_cache [B, G, Tmax, hd]: caches for decoding. The keys and values of this call are stored after the cached
ones, and the query sees all of them; scopes.cached(length) sets the number of cached positions. dropout: if
gradients are computed, a probability is set to 0 with this probability, else divided by 1 - dropout.
activation of the scores s: softmax; sqrelu = relu(s)^2 / divisor; elu = (elu(s) + 1) / divisor. norm_sqrelu and
norm_elu divide by eps + their sum over the visible keys instead (docs/maths/mup.md, 1.2).)",
      .inputs = {{"q"},
                 {"k"},
                 {"v"},
                 {"segments", OpInput::kOptional | OpInput::kIndex},
                 {"key_mask", OpInput::kOptional | OpInput::kIndex},
                 {"k_cache", OpInput::kOptional | OpInput::kState},
                 {"v_cache", OpInput::kOptional | OpInput::kState}},
      .outputs = {{"o"}},
      .options = {option::integer("n_head", 0, at_least(0), "heads of q; 0: the third of its four axes"),
                  option::integer("n_kv_head", 0, at_least(0), "heads of k and v; 0: n_head"),
                  option::number("scale", 0, at_least(0), "factor of the scores; 0: 1 / sqrt(hd)"),
                  option::flag("causal", true, "a query sees no later keys"),
                  option::integer("window", 0, at_least(0), "keys that a query sees, itself included; 0: all"),
                  option::word("activation", "softmax", {"softmax", "sqrelu", "elu", "norm_sqrelu", "norm_elu"},
                               "function of the scores"),
                  option::integer("divisor", 0, at_least(0), "divisor of sqrelu and elu; 0: T"),
                  option::number("eps", 1e-5, at_least(0),
                                 "norm_sqrelu and norm_elu: added to the sum that divides the scores"),
                  option::flag("ring", false, "if the cache has Tmax tokens, a new token replaces the oldest one"),
                  option::number("dropout", 0, from_to_below(0, 1), "probability of dropping a score"),
                  option::word("purpose", "dropout", {}, "key of the random draws")},
      .make = make<Attention>,
      .kernels =
          [] { return std::vector{chosen(attention_rows(DType::f32)), chosen(attention_rows(DType::bf16))}; },
  };
  return spec;
}

}  // namespace mudd
