#include "mudd/graph/immediate.h"

#include <cstring>

#include "mudd/base/check.h"
#include "mudd/graph/executor.h"
#include "mudd/kernels/convert/convert.h"

namespace mudd {
namespace {

void copy(const Tensor& from, const Tensor& to) {
  for (int64_t r = 0; r < to.rows; ++r)
    std::memcpy(to.f32() + r * to.stride, from.f32() + r * from.stride, to.cols * sizeof(float));
}

void round_in_place(const Tensor& t) {
  for (int64_t r = 0; r < t.rows; ++r)
    convert_kernels().round(t.cols, t.f32() + r * t.stride, t.f32() + r * t.stride);
}

}  // namespace

ImmediateCall::ImmediateCall(std::unique_ptr<Node> node, std::vector<TensorSpec> inputs, std::vector<bool> wants,
                             Shards shards, StepInput step, DType compute)
    : node_(std::move(node)), inputs_(std::move(inputs)), shards_(std::move(shards)), step_(step) {
  for (const TensorSpec& s : inputs_) needs_.inputs_.push_back(s.shape.empty() ? nullptr : &s);
  needs_.parameter_.assign(inputs_.size(), false);
  needs_.wants_ = std::move(wants);
  needs_.shards_ = &shards_;
  needs_.compute_ = compute;
  check_tokens();
  node_->infer(needs_);
  for (int64_t bytes : needs_.saved_) saved_.emplace_back(aligned(bytes));
}

// Shards split samples: every value that is not a weight must contain whole samples, or rows would be lost.
void ImmediateCall::check_tokens() const {
  for (size_t i = 0; i < inputs_.size(); ++i)
    check(node_->weight_like(static_cast<int>(i)) || inputs_[i].shape.empty() ||
              inputs_[i].rows() % shards_.samples() == 0,
          node_->op(), "input ", i, ": expected rows divisible by the number of samples (", shards_.samples(),
          "), got ", inputs_[i].text());
}

Run ImmediateCall::bind(const std::vector<Tensor>& in, const std::vector<Tensor>& out) {
  Run run;
  run.in_ = in;
  run.out_ = out;
  for (const Arena& a : saved_) run.saved_.push_back(a.data());
  run.packed_plain_.assign(in.size(), nullptr);
  run.packed_transposed_.assign(in.size(), nullptr);
  run.shards_ = &shards_;
  run.step_ = &step_;
  return run;
}

void ImmediateCall::forward(const std::vector<Tensor>& in, const std::vector<Tensor>& out) {
  Run run = bind(in, out);
  const Arena scratch(aligned(needs_.scratch_forward_));
  run.scratch_ = scratch.data();
  node_->forward(run);
  for (size_t i = 0; i < out.size(); ++i)
    if (rounds_output(static_cast<int>(i))) round_in_place(out[i]);
}

// Run forward again for its saved bytes, with results in separate memory.
void ImmediateCall::save_again(const std::vector<Tensor>& in) {
  std::vector<Arena> memory;
  std::vector<Tensor> out;
  for (const TensorSpec& spec : outputs()) {
    memory.emplace_back(aligned(spec.rows() * spec.cols() * size_of(spec.dtype)));
    out.push_back({memory.back().data(), spec.rows(), spec.cols(), spec.cols(), spec.dtype});
  }
  forward(in, out);
}

void ImmediateCall::backward(const std::vector<Tensor>& in, const std::vector<Tensor>& out,
                             const std::vector<Tensor>& dout, const std::vector<Tensor>& din,
                             const std::vector<bool>& accumulate, const std::vector<bool>& round) {
  if (spent_) save_again(in);
  spent_ = node_->spends_saved();
  Run run = bind(in, out);
  const Arena scratch(aligned(needs_.scratch_backward_));
  run.scratch_ = scratch.data();
  run.dout_ = dout;
  run.din_ = din;
  run.accumulate_.assign(accumulate.begin(), accumulate.end());
  run.sink_.resize(in.size());
  const int pass = node_->passes_gradient();
  const bool passed = pass >= 0 && pass < static_cast<int>(din.size()) && din[pass];
  if (passed) run.din_[pass] = {};
  for (size_t i = 0; i < din.size(); ++i) {
    if (!node_->weight_like(static_cast<int>(i)) || !din[i]) continue;
    run.sink_[i].out = din[i].f32();
    if (accumulate[i]) run.sink_[i].add[run.sink_[i].n_add++] = din[i].f32();
  }
  // The first use of a value sets its gradient and later ones add, even if another input of this call is the
  // same value.
  if (passed && dout[0] && !accumulate[pass]) copy(dout[0], din[pass]);
  node_->backward(run);
  for (size_t i = 0; i < din.size(); ++i)
    if (round[i] && din[i]) round_in_place(din[i]);
  if (passed && dout[0] && accumulate[pass]) add_into(dout[0], din[pass]);
}

}  // namespace mudd
