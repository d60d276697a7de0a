// Runs one attention-like node (values with heads, no weights) on buffers with poisoned gaps, scratch and outputs.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "compare.h"
#include "mudd/graph/node.h"

namespace mudd::test {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// A value in memory: rows `gap` elements further apart than they need be, the gaps poisoned.
struct Value {
  TensorSpec spec;
  int64_t gap = 0;
  std::vector<float> floats;
  std::vector<int32_t> ints;

  Value() = default;
  Value(std::vector<int64_t> shape, const std::vector<float>& data, int64_t row_gap = 0) : gap(row_gap) {
    spec.shape = std::move(shape);
    const int64_t cols = spec.cols();
    floats.assign(static_cast<size_t>(spec.rows() * (cols + gap)), kPoison);
    for (int64_t r = 0; r < spec.rows(); ++r)
      for (int64_t c = 0; c < cols && !data.empty(); ++c) floats[r * (cols + gap) + c] = data[r * cols + c];
  }
  Value(std::vector<int64_t> shape, std::vector<int32_t> data) : ints(std::move(data)) {
    spec.shape = std::move(shape);
    spec.dtype = DType::i32;
  }

  bool here() const { return !spec.shape.empty(); }
  Tensor tensor() {
    if (!here()) return {};
    const bool real = spec.dtype == DType::f32;
    void* data = real ? static_cast<void*>(floats.data()) : static_cast<void*>(ints.data());
    return {data, spec.rows(), spec.cols(), spec.cols() + gap, spec.dtype};
  }
  std::vector<float> packed() const {
    std::vector<float> v;
    for (int64_t r = 0; r < spec.rows(); ++r)
      for (int64_t c = 0; c < spec.cols(); ++c) v.push_back(floats[r * (spec.cols() + gap) + c]);
    return v;
  }
  // No write went into a gap.
  bool gaps_kept() const {
    for (size_t i = 0; i < floats.size(); ++i)
      if (static_cast<int64_t>(i) % (spec.cols() + gap) >= spec.cols() && floats[i] == floats[i]) return false;
    return true;
  }
};

class HeadNode {
 public:
  HeadNode(const char* op, OptionValues options, std::vector<Value> inputs, bool training = true)
      : inputs_(std::move(inputs)) {
    Attributes a;
    a.values = std::move(options);
    node_ = make_node(op, a);
    shards_.sample_begin = {0, inputs_[0].spec.shape[0]};
    for (Value& v : inputs_) {
      io_.inputs_.push_back(v.here() ? &v.spec : nullptr);
      io_.parameter_.push_back(false);
      io_.wants_.push_back(training && v.here() && v.spec.dtype == DType::f32);
    }
    io_.training_ = training;
    io_.shards_ = &shards_;
    node_->infer(io_);
    scratch_.assign(static_cast<size_t>(std::max(io_.scratch_forward_, io_.scratch_backward_)) / 4 + 16, kPoison);
    for (const int64_t bytes : io_.saved_) saved_.emplace_back(static_cast<size_t>(bytes) / 4 + 1, kPoison);
    out_ = Value(io_.outputs_[0].shape, std::vector<float>{}, inputs_[0].gap);
  }

  std::vector<float> forward(int64_t cache_length = 0) {
    step_.cache_length = cache_length;
    Run run = bind();
    node_->forward(run);
    CHECK(out_.gaps_kept());
    return out_.packed();
  }

  // Gradients of the first n inputs; accumulate: added to `before` everywhere.
  std::vector<std::vector<float>> backward(const std::vector<float>& dout, int n, bool accumulate,
                                           float before = 0.5f) {
    Run run = bind();
    Value d(out_.spec.shape, dout, 3);
    run.dout_ = {d.tensor()};
    std::vector<Value> grads;
    for (int i = 0; i < n; ++i) {
      const std::vector<float> start(static_cast<size_t>(inputs_[i].spec.size()), accumulate ? before : kPoison);
      grads.emplace_back(inputs_[i].spec.shape, start, 5);
    }
    for (Value& g : grads) run.din_.push_back(g.tensor());
    run.din_.resize(inputs_.size());
    run.sink_.resize(inputs_.size());
    run.accumulate_.assign(inputs_.size(), accumulate);
    node_->backward(run);
    std::vector<std::vector<float>> result;
    for (const Value& g : grads) {
      CHECK(g.gaps_kept());
      result.push_back(g.packed());
    }
    return result;
  }

  const std::vector<float>& saved(size_t i) const { return saved_[i]; }
  Value& input(size_t i) { return inputs_[i]; }

 private:
  Run bind() {
    Run run;
    for (Value& v : inputs_) run.in_.push_back(v.tensor());
    run.out_ = {out_.tensor()};
    for (auto& s : saved_) run.saved_.push_back(reinterpret_cast<std::byte*>(s.data()));
    run.scratch_ = reinterpret_cast<std::byte*>(scratch_.data());
    run.shards_ = &shards_;
    run.step_ = &step_;
    return run;
  }

  std::vector<Value> inputs_;
  std::unique_ptr<Node> node_;
  Shards shards_;
  StepInput step_;
  Inference io_;
  std::vector<float> scratch_;
  std::vector<std::vector<float>> saved_;
  Value out_;
};

}  // namespace mudd::test
