// Runs cross_entropy, teacher_loss or regularized_loss alone, like an executor: loss, counts and gradients of a
// case.
#pragma once

#include <algorithm>
#include <vector>

#include "compare.h"
#include "mudd/graph/node.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/ops/cross_entropy/cross_entropy.h"

namespace mudd::test::loss {

struct Case {
  int64_t samples = 1, positions = 1, d = 1, vocabulary = 1;
  int shards = 1;
  int64_t chunk_bytes = 16 << 20;
  bool training = true, parameter = true;
  DType compute = DType::f32;
  bool hidden_learns = true, head_learns = true;
  int64_t kept = 0;  // tokens of the teacher of teacher_loss; 0: cross_entropy
  double weight = 0.5;
  bool regularized = false;  // regularized_loss
  double smoothing = 0, z = 0;

  int64_t rows() const { return samples * positions; }
};

struct Numbers {
  std::vector<float> h, head;
  std::vector<int32_t> targets;
  std::vector<float> bias = {};   // empty: none
  std::vector<int32_t> ids = {};  // of teacher_loss, [rows, kept]
  std::vector<float> log_probs = {};
};

// Every fifth target or so is ignored.
inline Numbers numbers_of(const Case& c, float scale = 1.0f) {
  Numbers n{numbers(1, c.rows() * c.d), numbers(2, c.vocabulary * c.d), std::vector<int32_t>(c.rows())};
  for (float& x : n.h) x *= scale;
  for (int64_t r = 0; r < c.rows(); ++r) {
    const double u = (number(3, r) + 1) / 2;
    n.targets[r] = u < 0.2 ? -100 : static_cast<int32_t>((u - 0.2) / 0.8 * c.vocabulary);
  }
  return n;
}

struct Result {
  std::vector<double> loss, count, plain;
  std::vector<float> guessed, teacher;  // [B, 2]
  std::vector<float> dh, dhead, dbias;  // zeros if not requested
};

struct Options {
  std::vector<double> dloss;       // dout(0), empty: absent
  std::vector<const float*> adds;  // of the head's sink
  std::vector<float> dh_before;    // accumulate onto these
  bool in_place = false;           // the head's gradient goes where adds[last] is
  bool narrow_dh = false;          // dh is bf16
};

// The node as an executor runs it: forward unless it computes in backward, then backward.
inline Result run(const Case& c, Numbers n, const Options& o = {}) {
  const Shards shards = Shards::cut(c.samples, c.shards);
  Attributes a;
  a.values["chunk_bytes"] = c.chunk_bytes;
  if (c.kept) a.values["weight"] = c.weight;
  if (c.regularized) a.values["label_smoothing"] = c.smoothing, a.values["z"] = c.z;
  const auto node = make_node(c.kept ? "teacher_loss" : c.regularized ? "regularized_loss" : "cross_entropy", a);
  std::vector<TensorSpec> specs{{{c.samples, c.positions, c.d}, DType::f32},
                                {{c.vocabulary, c.d}, DType::f32},
                                {{c.samples, c.positions}, DType::i32}};
  if (c.kept) {
    specs.push_back({{c.samples, c.positions, c.kept}, DType::i32});
    specs.push_back({{c.samples, c.positions, c.kept}, DType::f32});
  }
  const bool biased = !n.bias.empty();
  const size_t bias = specs.size(), inputs = bias + 1;
  if (biased) specs.push_back({{c.vocabulary}, DType::f32});
  Inference needs;
  for (const TensorSpec& s : specs) needs.inputs_.push_back(&s);
  needs.parameter_.assign(inputs, 0);
  needs.parameter_[1] = c.parameter;
  needs.gathered_.assign(inputs, 0);
  needs.wants_.assign(inputs, 0);
  needs.wants_[0] = c.hidden_learns;
  needs.wants_[1] = c.head_learns;
  needs.wants_[bias] = biased;
  needs.training_ = c.training;
  needs.shards_ = &shards;
  needs.compute_ = c.compute;
  node->infer(needs);

  Result result;
  result.loss.assign(shards.count(), -1);
  result.count.assign(shards.count(), -1);
  if (c.regularized) result.plain.assign(shards.count(), -1);
  result.guessed.assign(2 * c.samples, -1);
  if (c.kept) result.teacher.assign(2 * c.samples, -1);
  result.dh = o.dh_before.empty() ? std::vector<float>(c.rows() * c.d, 1e30f) : o.dh_before;
  result.dhead.assign(c.vocabulary * c.d, 1e30f);
  result.dbias.assign(n.bias.size(), 1e30f);
  std::vector<std::byte> plain(c.parameter ? packed_bytes(c.vocabulary, c.d, c.compute) : 0),
      transposed(c.parameter ? packed_bytes(c.d, c.vocabulary, c.compute) : 0);
  if (c.parameter) {
    pack_weight(n.head.data(), c.vocabulary, c.d, false, plain.data(), c.compute);
    pack_weight(n.head.data(), c.vocabulary, c.d, true, transposed.data(), c.compute);
  }
  const auto all = [&] {
    return std::vector<std::byte>(needs.scratch_backward_ + needs.scratch_forward_ + 64, std::byte{0x7f});
  };
  std::vector<std::byte> scratch = all();
  StepInput step;
  std::vector<double> dloss = o.dloss;
  Run r;
  r.in_ = {Tensor{n.h.data(), c.rows(), c.d, c.d}, Tensor{n.head.data(), c.vocabulary, c.d, c.d},
           Tensor{n.targets.data(), c.samples, c.positions, c.positions, DType::i32}};
  if (c.kept) {
    r.in_.push_back(Tensor{n.ids.data(), c.rows(), c.kept, c.kept, DType::i32});
    r.in_.push_back(Tensor{n.log_probs.data(), c.rows(), c.kept, c.kept});
  }
  if (biased) r.in_.push_back(Tensor{n.bias.data(), 1, c.vocabulary, c.vocabulary});
  const int64_t s = shards.count();
  r.out_ = {Tensor{result.loss.data(), 1, s, s, DType::f64}, Tensor{result.count.data(), 1, s, s, DType::f64},
            Tensor{result.guessed.data(), c.samples, 2, 2}, Tensor{result.teacher.data(), c.samples, 2, 2}};
  if (c.regularized) r.out_[3] = Tensor{result.plain.data(), 1, s, s, DType::f64};
  r.scratch_ = scratch.data();
  r.packed_plain_.assign(inputs, nullptr);
  r.packed_transposed_.assign(inputs, nullptr);
  if (c.parameter) r.packed_plain_[1] = plain.data(), r.packed_transposed_[1] = transposed.data();
  r.shards_ = &shards;
  r.step_ = &step;
  CHECK(node->computes_in_backward() == c.training);
  if (!node->computes_in_backward()) node->forward(r);
  std::fill(scratch.begin(), scratch.end(), std::byte{0x7f});
  r.dout_ = {dloss.empty() ? Tensor{} : Tensor{dloss.data(), 1, s, s, DType::f64}, Tensor{}, Tensor{}, Tensor{}};
  r.din_.assign(inputs, Tensor{});
  r.accumulate_.assign(inputs, 0);
  r.accumulate_[0] = !o.dh_before.empty();
  r.sink_.assign(inputs, GradSink{});
  std::vector<bf16> narrow;
  for (float x : result.dh) narrow.push_back(to_bf16(x));
  if (c.hidden_learns)
    r.din_[0] = o.narrow_dh ? Tensor{narrow.data(), c.rows(), c.d, c.d, DType::bf16}
                            : Tensor{result.dh.data(), c.rows(), c.d, c.d};
  else result.dh.assign(result.dh.size(), 0);
  if (c.head_learns) r.sink_[1].out = result.dhead.data();
  else result.dhead.assign(result.dhead.size(), 0);
  if (biased) r.sink_[bias].out = result.dbias.data();
  for (const float* add : o.adds) r.sink_[1].add[r.sink_[1].n_add++] = add;
  if (o.in_place) {
    std::copy_n(o.adds.back(), result.dhead.size(), result.dhead.data());
    r.sink_[1].add[r.sink_[1].n_add - 1] = result.dhead.data();
  }
  node->backward(r);
  if (o.narrow_dh) mudd::widen(std::ssize(narrow), narrow.data(), result.dh.data());
  return result;
}

inline double total(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return sum;
}

using test::same_bits;

inline bool same_bits(const Result& a, const Result& b) {
  return same_bits(a.loss, b.loss) && same_bits(a.count, b.count) && same_bits(a.guessed, b.guessed) &&
         same_bits(a.teacher, b.teacher) && same_bits(a.plain, b.plain) && same_bits(a.dh, b.dh) &&
         same_bits(a.dhead, b.dhead) && same_bits(a.dbias, b.dbias);
}

}  // namespace mudd::test::loss
