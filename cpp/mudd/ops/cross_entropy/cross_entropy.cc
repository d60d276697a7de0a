#include "mudd/ops/cross_entropy/cross_entropy.h"

#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/base/rounding.h"
#include "mudd/base/shard_tree.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/cross_entropy/node.h"

namespace mudd {

std::span<const KernelRow<CrossEntropyKernels>> cross_entropy_rows() {
  static const KernelRow<CrossEntropyKernels> rows[] = {MUDD_KERNEL_ROWS(cross_entropy_f32)};
  return rows;
}

namespace {

constexpr int64_t kDefaultBudget = 16ll << 20;
constexpr int64_t kStripeMultiple = 64;  // rows of a stripe are a multiple of this: whole panels

int64_t largest_shard(const Shards& shards, int64_t rows) {
  int64_t most = 0;
  for (int s = 0; s < shards.count(); ++s)
    most = std::max(most, shards.row_begin(s + 1, rows) - shards.row_begin(s, rows));
  return most;
}

}  // namespace

CrossEntropy::CrossEntropy(const Attributes& a, bool by_sample)
    : budget_(a.integer("chunk_bytes")), by_sample_(by_sample) {}

void CrossEntropy::infer(Inference& io) {
  check(io.has_input(kH) && io.has_input(kHead) && io.has_input(kTargets), op(),
        "inputs: expected h, head and targets");
  const TensorSpec &h = io.input(kH), &head = io.input(kHead), &targets = io.input(kTargets);
  check(is_real(h) && h.shape.size() >= 2, op(), "h: expected f32[B, T, D], got ", h.text());
  check(head.dtype == DType::f32 && head.shape.size() == 2 && head.cols() == h.cols() && head.rows() > 0, op(),
        "head: expected f32[V, ", h.cols(), "], got ", head.text());
  const TensorSpec wanted{{h.shape.begin(), h.shape.end() - 1}, DType::i32};
  check(targets.dtype == DType::i32 && targets.shape == wanted.shape, op(), "targets: expected ", wanted.text(),
        ", got ", targets.text());
  const TensorSpec& bias = io.input(bias_input());
  check(
      !io.has_input(bias_input()) || (bias.dtype == DType::f32 && bias.shape == std::vector<int64_t>{head.rows()}),
      op(), "bias: expected f32[", head.rows(), "], got ", bias.text());
  const int shards = io.shards().count();
  check((shards & (shards - 1)) == 0 && shards <= kMaxShards, op(), "shards: expected a power of two up to ",
        kMaxShards, ", got ", shards);
  io.output({{shards}, DType::f64});
  io.output({{shards}, DType::f64});
  io.output({{targets.rows(), by_sample_ ? 4 : 2}, DType::f32});
  training_ = io.training();
  compute_ = io.compute();
  wants_h_ = io.wants_gradient(kH);
  wants_head_ = io.wants_gradient(kHead);
  wants_bias_ = io.wants_gradient(bias_input());
  const int64_t rows = h.rows();
  packs_ = io.packs_when_used(kHead, rows);
  if (!packs_) io.pack(kHead, Pack::transposed);
  if (!packs_ && wants_h_) io.pack(kHead, Pack::plain);
  stripe_ = stripe_rows(head.rows(), head.cols());
  count_flops(rows, head.rows() * head.cols());
  most_rows_ = largest_shard(io.shards(), rows);
  cut_ = LossCut::choose(most_rows_, shards, head.rows(), head.cols(), budget_, compute_, wants_head_);
  gradient_bytes_ = grad_scratch_bytes(head.rows(), head.cols(), cut_.group, 1, compute_);
  io.scratch_forward(layout(nullptr, rows, head.rows(), head.cols(), shards, false).bytes);
  io.scratch_backward(layout(nullptr, rows, head.rows(), head.cols(), shards, true).bytes);
  kernels_ = &mudd::choose(cross_entropy_rows());
}

CrossEntropy::Layout CrossEntropy::layout(std::byte* base, int64_t rows, int64_t vocabulary, int64_t d, int shards,
                                          bool backward) const {
  Layout s;
  Pieces pieces(base);
  // Without gradients the loss needs only the budget; rows of several shards may then share a chunk.
  const int64_t multiple = LossCut::kRowMultiple;
  const int64_t fitting =
      std::max(packs_ ? Inference::kManyRows : LossCut::kMinRows,
               budget_ / (vocabulary * static_cast<int64_t>(sizeof(float))) / multiple * multiple);
  s.chunk_rows = backward ? cut_.chunk_rows : std::max<int64_t>(1, std::min(rows, fitting));
  s.stats = pieces.take<RowSoftmax>(rows);
  s.targets = pieces.take<int32_t>(rows);
  s.rows = pieces.take<int32_t>(rows);
  s.shard_begin = pieces.take<int64_t>(shards + 1);
  // In bf16 the dlogits of a chunk are stored as GEMM operands, so few rows of logits exist at a time. A head
  // that is packed for every GEMM needs little memory.
  const bool narrows = backward && compute_ == DType::bf16;
  s.logit_rows =
      narrows && !packs_ ? std::min(s.chunk_rows, round_up(multiple, gemm_kernels(compute_).mr)) : s.chunk_rows;
  s.logits = pieces.take<float>(s.logit_rows * vocabulary);
  if (narrows) s.dlogits = pieces.take<bf16>(s.chunk_rows * vocabulary);
  if (packs_)
    s.packed = pieces.take<std::byte>(std::max(packed_bytes(d, stripe_, compute_),
                                               backward && wants_h_ ? packed_bytes(stripe_, d, compute_) : 0));
  if (backward && wants_h_) s.hidden = pieces.take<float>(s.chunk_rows * d);
  if (backward && wants_head_) {
    s.gradient_scratch = pieces.take<float>(gradient_bytes_ / static_cast<int64_t>(sizeof(float)));
    s.waiting = pieces.take<float>(levels(shards) * vocabulary * d);
  }
  if (backward && wants_bias_) s.bias_sums = pieces.take<float>(shards * vocabulary);
  s.further = pieces.bytes(further_bytes(rows, s.logit_rows));
  s.bytes = pieces.used();
  return s;
}

int CrossEntropy::levels(int shards) const {
  const bool sums_in_progress = cut_.group == 1 && cut_.chunk_rows < most_rows_;
  return shard_tree::levels(shards / cut_.group) - (sums_in_progress ? 0 : 1);
}

int64_t CrossEntropy::stripe_rows(int64_t vocabulary, int64_t d) const {
  const int64_t most = std::max<int64_t>(1, budget_ / 2 / (d * static_cast<int64_t>(sizeof(float))));
  if (!packs_ || compute_ != DType::f32 || vocabulary <= most) return vocabulary;
  return round_up(ceil_div(vocabulary, ceil_div(vocabulary, most)), kStripeMultiple);
}

const OpSpec& cross_entropy_op() {
  static const OpSpec spec{
      .name = "cross_entropy",
      .help = R"(Fused unembedding, softmax and loss: (loss float64 [S], counted float64 [S], guessed).

h [B, T, D], head [V, D], targets int32 [B, T]; a negative target is ignored. bias [V] is added to the logits. loss
is the sum of nats of each shard, counted the number of its targets. The logits are computed in chunks. guessed
float32 [B, 2] is the number of correct predictions of each sample, and their fraction of its counted targets. A
prediction is the largest logit (the first of equal ones). With by_sample, guessed is [B, 4].)",
      .backward_help = R"(Of the summed loss, scaled per shard by dloss (None: 1).)",
      .inputs = {{"h"}, {"head"}, {"targets", OpInput::kIndex}, {"bias", OpInput::kOptional}},
      .outputs = {{"loss", OpOutput::kLoss, DType::f64},
                  {"counted", OpOutput::kNoGradient, DType::f64},
                  {"guessed", OpOutput::kNoGradient}},
      .options = {option::flag("by_sample", false,
                               "guessed also has the nats of each sample, and the number of its targets"),
                  option::integer("chunk_bytes", kDefaultBudget, at_least(1),
                                  "bytes of logits that exist at once")},
      .make = [](const Attributes& a) -> std::unique_ptr<Node> {
        return std::make_unique<CrossEntropy>(a, a.flag("by_sample"));
      },
      .kernels =
          [] {
            return std::vector{chosen(cross_entropy_rows()), chosen(gemm_rows(DType::f32)),
                               chosen(gemm_rows(DType::bf16))};
          },
  };
  return spec;
}

}  // namespace mudd
