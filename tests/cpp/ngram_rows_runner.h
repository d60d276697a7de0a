// Runs ngram_rows alone, like an executor: ids in a separate slab, a cache, gradients whole or by row.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "compare.h"
#include "mudd/graph/node.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/ops/ngram_rows/reference.h"

namespace mudd::test::ngrams {

struct Case {
  int64_t samples = 3, length = 11, rows = 1000, d = 5;
  std::string orders = "2,3";
  int64_t seed = 0, end = -1;
  bool has_segments = false;
  int shards = 1;
  int64_t cache_rows = 0;     // Tmax; 0: no cache
  DType stored = DType::f32;  // of the table
  int64_t gap = 0;            // between the samples of ids and segments, and between rows of y

  int64_t positions() const { return samples * length; }
  int64_t look_ups() const { return positions() * static_cast<int64_t>(list().size()); }
  std::vector<int64_t> list() const {
    std::vector<int64_t> found;
    for (const char c : orders)
      if (c != ',') found.push_back(c - '0');
    return found;
  }
  reference::NgramHash hash() const { return {rows, seed, end}; }
};

// Ids below 11, so that n-grams recur, and ids that end documents. Rows of `length` without a gap.
inline std::vector<int32_t> ids_of(const Case& c) {
  std::vector<int32_t> ids(static_cast<size_t>(c.positions()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((number(5, i) + 1) / 2 * 11);
  return ids;
}

inline std::vector<int32_t> segments_of(const Case& c) {
  std::vector<int32_t> segments(static_cast<size_t>(c.positions()));
  for (size_t i = 0; i < segments.size(); ++i) segments[i] = static_cast<int32_t>(i / 4);
  return segments;
}

// Return y of all samples by the formula, from an fp32 table.
template <class N>
std::vector<N> reference_forward(const Case& c, const std::vector<int32_t>& ids, const std::vector<N>& table) {
  std::vector<N> y(static_cast<size_t>(c.positions() * c.d));
  const auto segments = segments_of(c);
  for (int64_t b = 0; b < c.samples; ++b)
    reference::ngram_rows<N>(c.hash(), c.list(), ids.data() + b * c.length,
                             c.has_segments ? segments.data() + b * c.length : nullptr, c.length, c.d,
                             table.data(), y.data() + b * c.length * c.d);
  return y;
}

// The node alone, with tables of numbers(1), whose values a stored type rounds.
class Runner {
 public:
  explicit Runner(const Case& c) : Runner(c, ids_of(c)) {}

  Runner(const Case& c, const std::vector<int32_t>& ids)
      : case_(c), shards_(Shards::cut(c.samples, c.shards)), table_(numbers(1, c.rows * c.d)) {
    Attributes a;
    a.values = {{"orders", c.orders}, {"seed", c.seed}, {"end", c.end}};
    node_ = make_node("ngram_rows", a);
    specs_ = {{{c.samples, c.length}, DType::i32},
              {{c.rows, c.d}, DType::f32},
              {{c.samples, c.length}, DType::i32},
              {{c.samples, 1, c.cache_rows, 1}, DType::f32}};
    needs_.inputs_ = {&specs_[0], &specs_[1], c.has_segments ? &specs_[2] : nullptr,
                      c.cache_rows > 0 ? &specs_[3] : nullptr};
    needs_.parameter_ = {false, true, false, false};
    needs_.gathered_ = {false, false, false, false};
    needs_.wants_ = {false, c.cache_rows == 0, false, false};
    needs_.shards_ = &shards_;
    node_->infer(needs_);
    cache_.assign(static_cast<size_t>(c.samples * c.cache_rows), -7);
    ids_ = placed(ids), segments_ = placed(segments_of(c));
    const auto sample_rows = [&](std::vector<int32_t>& v) {
      return Tensor{v.data(), c.samples, c.length, c.length + c.gap, DType::i32};
    };
    run_.in_ = {sample_rows(ids_), stored_table(), c.has_segments ? sample_rows(segments_) : Tensor{},
                c.cache_rows > 0 ? Tensor{cache_.data(), c.samples * c.cache_rows, 1, 1} : Tensor{}};
    const int64_t bytes = std::max(needs_.scratch_forward_, needs_.scratch_backward_);
    scratch_.assign(static_cast<size_t>(bytes) + 64, std::byte{0x7f});
    run_.scratch_ = scratch_.data();
    run_.shards_ = &shards_;
    run_.step_ = &step_;
  }

  // y without its gap; fails the test if the gap was written.
  std::vector<float> forward() {
    const int64_t stride = case_.d + case_.gap;
    std::vector<float> wide(static_cast<size_t>(case_.positions() * stride), 1e30f), y;
    run_.out_ = {Tensor{wide.data(), case_.positions(), case_.d, stride}};
    node_->forward(run_);
    for (int64_t i = 0; i < case_.positions() * stride; ++i)
      if (i % stride < case_.d) y.push_back(wide[static_cast<size_t>(i)]);
      else CHECK(wide[static_cast<size_t>(i)] == 1e30f);
    return y;
  }

  // Into a whole table. No dy: the output has no reader.
  std::vector<float> backward(const std::vector<float>& dy, const std::vector<const float*>& adds = {}) {
    std::vector<float> out(table_.size(), 1e30f);
    GradSink sink;
    sink.out = out.data();
    for (const float* a : adds) sink.add[sink.n_add++] = a;
    backward_into(dy, sink);
    return out;
  }

  // Into rows, which may be one of the adds.
  void backward_rows(const std::vector<float>& dy, RowGradient* out, const std::vector<const RowGradient*>& adds) {
    GradSink sink;
    sink.out_rows = out;
    for (const RowGradient* a : adds) sink.add_rows[sink.n_add++] = a;
    backward_into(dy, sink);
  }

  Node& node() { return *node_; }
  StepInput& step() { return step_; }
  std::vector<float>& cache() { return cache_; }
  // The table as fp32, rounded to the stored type.
  const std::vector<float>& table() const { return table_; }

 private:
  void backward_into(const std::vector<float>& dy, const GradSink& sink) {
    std::vector<float> copy(dy);
    run_.dout_ = {dy.empty() ? Tensor{} : Tensor{copy.data(), case_.positions(), case_.d, case_.d}};
    run_.din_.assign(4, Tensor{});
    run_.sink_.assign(4, GradSink{});
    run_.sink_[1] = sink;
    CHECK(run_.wants(1));
    node_->backward(run_);
  }

  std::vector<int32_t> placed(const std::vector<int32_t>& v) const {
    std::vector<int32_t> wide(static_cast<size_t>(case_.samples * (case_.length + case_.gap)), -7);
    for (int64_t b = 0; b < case_.samples; ++b)
      std::copy_n(v.begin() + b * case_.length, case_.length, wide.begin() + b * (case_.length + case_.gap));
    return wide;
  }

  Tensor stored_table() {
    const int64_t n = case_.rows * case_.d;
    const ConvertKernels& convert = convert_kernels();
    bf16_.resize(table_.size()), f16_.resize(table_.size());
    if (case_.stored == DType::bf16) convert.narrow(n, table_.data(), bf16_.data());
    if (case_.stored == DType::bf16) convert.widen(n, bf16_.data(), table_.data());
    if (case_.stored == DType::f16) convert.narrow_half(n, table_.data(), f16_.data());
    if (case_.stored == DType::f16) convert.widen_half(n, f16_.data(), table_.data());
    void* data = case_.stored == DType::bf16  ? static_cast<void*>(bf16_.data())
                 : case_.stored == DType::f16 ? static_cast<void*>(f16_.data())
                                              : table_.data();
    return {data, case_.rows, case_.d, case_.d, case_.stored};
  }

  Case case_;
  Shards shards_;
  std::vector<float> table_, cache_;
  std::vector<bf16> bf16_;
  std::vector<f16> f16_;
  std::unique_ptr<Node> node_;
  std::vector<TensorSpec> specs_;
  Inference needs_;
  std::vector<int32_t> ids_, segments_;
  std::vector<std::byte> scratch_;
  StepInput step_;
  Run run_;
};

}  // namespace mudd::test::ngrams
