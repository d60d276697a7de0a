// Runs one node alone, like an executor: values with separate strides, planned saved and scratch bytes,
// gradients set or added.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compare.h"
#include "mudd/graph/node.h"

namespace mudd::test {

class NodeRunner {
 public:
  // One input: its values (contiguous), shape, and whether its gradient is requested. No values: absent.
  // narrow: it is bf16 in memory, and its gradient too.
  struct Input {
    std::vector<int64_t> shape;
    std::vector<float> numbers;
    bool wants = true;
    bool narrow = false;
  };

  // How a graph of this compute type would run the node. wide_outputs: results (and their gradients) stay fp32.
  struct Types {
    DType compute = DType::f32;
    bool wide_outputs = true;
  };

  NodeRunner(const std::string& op, Attributes attributes, std::vector<Input> inputs, Shards shards,
             int64_t padding = 0)
      : NodeRunner(op, std::move(attributes), std::move(inputs), std::move(shards), padding, Types{}) {}

  NodeRunner(const std::string& op, Attributes attributes, std::vector<Input> inputs, Shards shards,
             int64_t padding, Types types)
      : node_(make_node(op, attributes)), shards_(std::move(shards)), padding_(padding) {
    std::vector<TensorSpec> specs;
    for (const Input& i : inputs) specs.push_back({i.shape, i.narrow ? DType::bf16 : DType::f32});
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool given = !inputs[i].numbers.empty() || specs[i].size() == 0;
      needs_.inputs_.push_back(given ? &specs[i] : nullptr);
      needs_.parameter_.push_back(false);  // nobody packs here
      needs_.wants_.push_back(given && inputs[i].wants);
      values_.push_back(
          place(specs[i], given ? &inputs[i].numbers : nullptr, node_->weight_like(static_cast<int>(i))));
      run_.in_.push_back(given ? values_.back().tensor : Tensor{});
    }
    needs_.training_ = true;
    needs_.shards_ = &shards_;
    needs_.compute_ = types.compute;
    node_->infer(needs_);
    for (size_t i = 0; i < needs_.outputs_.size(); ++i) {
      TensorSpec& o = needs_.outputs_[i];
      if (!types.wide_outputs && stored_bf16(needs_, *node_, static_cast<int>(i))) o.dtype = DType::bf16;
      outputs_.push_back(place(o, nullptr, false));
      run_.out_.push_back(outputs_.back().tensor);
    }
    for (int64_t bytes : needs_.saved_) {
      saved_.emplace_back(static_cast<size_t>(bytes) + 64, std::byte{0x7f});
      run_.saved_.push_back(saved_.back().data());
    }
    scratch_.assign(static_cast<size_t>(std::max(needs_.scratch_forward_, needs_.scratch_backward_)) + 64,
                    std::byte{0x7f});
    run_.scratch_ = scratch_.data();
    run_.packed_plain_.assign(inputs.size(), nullptr);
    run_.packed_transposed_.assign(inputs.size(), nullptr);
    run_.shards_ = &shards_;
    run_.step_ = &step_;
  }

  std::vector<float> forward(int output = 0) {
    node_->forward(run_);
    return read(outputs_[static_cast<size_t>(output)]);
  }

  // Recompute output 0 in separate memory, without inputs.
  std::vector<float> remake() {
    const Placed again = place(needs_.outputs_[0], nullptr, false);
    Run run = run_;
    run.in_.assign(run_.in_.size(), Tensor{});
    run.out_[0] = again.tensor;
    node_->remake(run);
    return read(again);
  }

  // Gradients of the wanted inputs (empty for others) for dout(0) = dy. before: accumulate onto these numbers
  // (activation-like inputs) or add them last (weight-like).
  std::vector<std::vector<float>> backward(const std::vector<float>& dy,
                                           const std::vector<std::vector<float>>& before = {}) {
    return backward_all({dy}, before);
  }

  // The same with the gradients of the first outputs.
  std::vector<std::vector<float>> backward_all(const std::vector<std::vector<float>>& dys,
                                               const std::vector<std::vector<float>>& before = {}) {
    std::vector<Placed> douts;
    run_.dout_.assign(needs_.outputs_.size(), Tensor{});
    for (size_t o = 0; o < dys.size(); ++o) {
      douts.push_back(place(needs_.outputs_[o], &dys[o], false));
      run_.dout_[o] = douts.back().tensor;
    }
    std::vector<Placed> grads;
    run_.din_.assign(values_.size(), Tensor{});
    run_.sink_.assign(values_.size(), GradSink{});
    run_.accumulate_.assign(values_.size(), 0);
    for (size_t i = 0; i < values_.size(); ++i) {
      const bool weight = node_->weight_like(static_cast<int>(i));
      const bool add = i < before.size() && !before[i].empty();
      grads.push_back(needs_.wants_[i] ? place(*values_[i].spec, add ? &before[i] : nullptr, weight) : Placed{});
      if (!needs_.wants_[i]) continue;
      if (weight) {
        run_.sink_[i].out = grads[i].tensor.f32();
        if (add) run_.sink_[i].add[0] = grads[i].tensor.f32();
        run_.sink_[i].n_add = add;
      } else {
        run_.din_[i] = grads[i].tensor;
        run_.accumulate_[i] = add;
      }
    }
    node_->backward(run_);
    std::vector<std::vector<float>> out;
    for (size_t i = 0; i < grads.size(); ++i)
      out.push_back(needs_.wants_[i] ? read(grads[i]) : std::vector<float>{});
    return out;
  }

  const Inference& needs() const { return needs_; }
  Node& node() { return *node_; }

 private:
  struct Placed {
    std::shared_ptr<TensorSpec> spec;
    std::shared_ptr<std::vector<float>> memory;
    Tensor tensor;
  };

  static constexpr bf16 kFill{0x7149};

  // Memory full of 1e30 with `numbers` inside, rows padding_ apart (weights contiguous).
  Placed place(const TensorSpec& spec, const std::vector<float>* numbers, bool contiguous) const {
    Placed p;
    p.spec = std::make_shared<TensorSpec>(spec);
    const int64_t rows = spec.rows(), cols = spec.cols(), stride = cols + (contiguous ? 0 : padding_);
    p.memory = std::make_shared<std::vector<float>>(static_cast<size_t>(rows * stride) + 1, 1e30f);
    p.tensor = {p.memory->data(), rows, cols, stride, spec.dtype};
    for (int64_t at = 0; spec.dtype == DType::bf16 && at < rows * stride; ++at) p.tensor.cells().b16()[at] = kFill;
    for (int64_t r = 0; numbers && r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const float x = (*numbers)[static_cast<size_t>(r * cols + c)];
        if (spec.dtype == DType::bf16) p.tensor.cells().b16()[r * stride + c] = to_bf16(x);
        else p.tensor.f32()[r * stride + c] = x;
      }
    return p;
  }

  // The numbers without padding; fails the test when padding was written.
  std::vector<float> read(const Placed& p) const {
    const Tensor& t = p.tensor;
    std::vector<float> v;
    bool untouched = true;
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t c = 0; c < t.stride; ++c) {
        const bool narrow = t.dtype == DType::bf16;
        const float x = narrow ? from_bf16(t.cells().b16()[r * t.stride + c]) : t.f32()[r * t.stride + c];
        if (c < t.cols) v.push_back(x);
        else untouched = untouched && x == (narrow ? from_bf16(kFill) : 1e30f);
      }
    CHECK(untouched);
    return v;
  }

  std::unique_ptr<Node> node_;
  Shards shards_;
  int64_t padding_;
  StepInput step_;
  Inference needs_;
  Run run_;
  std::vector<Placed> values_, outputs_;
  std::vector<std::vector<std::byte>> saved_;
  std::vector<std::byte> scratch_;
};

}  // namespace mudd::test
