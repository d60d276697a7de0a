// Runs a node of a mixture of experts alone: with int32 and float inputs.
#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "compare.h"
#include "mudd/graph/node.h"

namespace mudd::test {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

// One node as an executor would run it.
struct Runner {
  std::unique_ptr<Node> node;
  Inference needs;
  Run run;
  Shards shards;
  StepInput step;
  std::vector<TensorSpec> specs;
  std::vector<std::vector<std::byte>> memory;

  std::byte* room(int64_t bytes) {
    memory.emplace_back(static_cast<size_t>(bytes) + 64, std::byte{0x7f});
    return memory.back().data();
  }
  // from: integers, or floats, which bf16 memory gets rounded.
  Tensor tensor(const TensorSpec& s, const void* from = nullptr) {
    Tensor t{room(s.bytes()), s.rows(), s.cols(), s.cols(), s.dtype};
    if (!from) return t;
    if (s.dtype != DType::bf16) std::memcpy(t.data, from, static_cast<size_t>(s.bytes()));
    else
      for (int64_t i = 0; i < s.size(); ++i) t.cells().b16()[i] = to_bf16(static_cast<const float*>(from)[i]);
    return t;
  }

  // narrow: results that a graph of this compute type stores in bf16 are bf16 in memory.
  Runner(const char* op, const Attributes& attributes, std::vector<std::pair<TensorSpec, const void*>> inputs,
         Shards cut, DType compute = DType::f32, bool narrow = false)
      : node(make_node(op, attributes)), shards(std::move(cut)) {
    for (const auto& [spec, data] : inputs) specs.push_back(spec);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool given = inputs[i].second != nullptr;
      needs.inputs_.push_back(given ? &specs[i] : nullptr);
      needs.parameter_.push_back(false);
      needs.wants_.push_back(given && is_real(specs[i]));
      run.in_.push_back(given ? tensor(specs[i], inputs[i].second) : Tensor{});
    }
    needs.training_ = true;
    needs.shards_ = &shards;
    needs.compute_ = compute;
    node->infer(needs);
    for (size_t i = 0; i < needs.outputs_.size(); ++i) {
      TensorSpec& o = needs.outputs_[i];
      if (narrow && stored_bf16(needs, *node, static_cast<int>(i))) o.dtype = DType::bf16;
      run.out_.push_back(tensor(o));
    }
    for (int64_t bytes : needs.saved_) run.saved_.push_back(room(bytes));
    run.scratch_ = room(std::max(needs.scratch_forward_, needs.scratch_backward_));
    run.packed_plain_.assign(inputs.size(), nullptr);
    run.packed_transposed_.assign(inputs.size(), nullptr);
    run.shards_ = &shards;
    run.step_ = &step;
  }

  Floats out(int i) const { return floats(run.out_[static_cast<size_t>(i)]); }
  static Floats floats(const Tensor& t) {
    if (t.dtype != DType::bf16) return {t.f32(), t.f32() + t.rows * t.cols};
    Floats v;
    for (int64_t i = 0; i < t.rows * t.cols; ++i) v.push_back(from_bf16(t.cells().b16()[i]));
    return v;
  }

  // Gradients of the float inputs (empty for others) for gradients of the outputs; nullptr: absent.
  std::vector<Floats> backward(const std::vector<const float*>& dy) {
    run.dout_.clear();
    for (size_t i = 0; i < dy.size(); ++i)
      run.dout_.push_back(dy[i] ? tensor(needs.outputs_[i], dy[i]) : Tensor{});
    run.din_.assign(specs.size(), Tensor{});
    run.sink_.assign(specs.size(), GradSink{});
    run.accumulate_.assign(specs.size(), 0);
    std::vector<Tensor> places;
    for (size_t i = 0; i < specs.size(); ++i) {
      places.push_back(needs.wants_[i] ? tensor(specs[i]) : Tensor{});
      if (!needs.wants_[i] || static_cast<int>(i) == node->passes_gradient()) continue;
      if (node->weight_like(static_cast<int>(i))) run.sink_[i].out = places[i].f32();
      else run.din_[i] = places[i];
    }
    node->backward(run);
    std::vector<Floats> result;
    for (const Tensor& t : places) result.push_back(t ? floats(t) : Floats{});
    return result;
  }
};

inline Attributes attributes(std::initializer_list<std::pair<const char*, OptionValue>> list) {
  Attributes a;
  for (const auto& [name, value] : list) a.values[name] = value;
  return a;
}

}  // namespace mudd::test
