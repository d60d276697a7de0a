// Runs embedding alone, like an executor: ids in a separate slab, gradients whole or by row.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "compare.h"
#include "mudd/graph/node.h"
#include "mudd/ops/embedding/embedding.h"

namespace mudd::test::embedding {

struct Case {
  int64_t samples = 1, positions = 1, vocabulary = 1, d = 1;
  int shards = 1;
  bool learned_positions = false, residual = false;
  int64_t cache_length = 0;

  int64_t rows() const { return samples * positions; }
};

inline std::vector<int32_t> ids_of(const Case& c) {
  std::vector<int32_t> ids(static_cast<size_t>(c.rows()));
  for (int64_t r = 0; r < c.rows(); ++r)
    ids[r] = c.learned_positions ? static_cast<int32_t>(r % c.positions + c.cache_length)
                                 : static_cast<int32_t>((number(5, r) + 1) / 2 * c.vocabulary);
  return ids;
}

// The node alone, with its ids `gap` elements apart between samples.
class Runner {
 public:
  Runner(const Case& c, std::vector<int32_t> ids, std::vector<float> table, std::vector<float> residual,
         int64_t gap = 0)
      : case_(c),
        table_(std::move(table)),
        residual_(std::move(residual)),
        shards_(Shards::cut(c.samples, c.shards)) {
    Attributes a;
    if (c.learned_positions) a.values["positions"] = true;
    node_ = make_node("embedding", a);
    specs_ = {{{c.samples, c.positions}, DType::i32},
              {{c.vocabulary, c.d}, DType::f32},
              {{c.samples, c.positions, c.d}, DType::f32}};
    needs_.inputs_ = {c.learned_positions ? nullptr : &specs_[0], &specs_[1], c.residual ? &specs_[2] : nullptr};
    needs_.parameter_ = {false, true, false};
    needs_.gathered_ = {false, false, false};
    needs_.wants_ = {false, true, c.residual};
    needs_.shards_ = &shards_;
    node_->infer(needs_);
    const int64_t stride = c.positions + gap;
    ids_.assign(static_cast<size_t>(c.samples * stride), -7);
    for (int64_t b = 0; b < c.samples; ++b)
      std::copy_n(ids.begin() + b * c.positions, c.positions, ids_.begin() + b * stride);
    run_.in_ = {c.learned_positions ? Tensor{} : Tensor{ids_.data(), c.samples, c.positions, stride, DType::i32},
                Tensor{table_.data(), c.vocabulary, c.d, c.d},
                c.residual ? Tensor{residual_.data(), c.rows(), c.d, c.d} : Tensor{}};
    scratch_.assign(static_cast<size_t>(std::max(needs_.scratch_forward_, needs_.scratch_backward_)) + 64,
                    std::byte{0x7f});
    run_.scratch_ = scratch_.data();
    run_.shards_ = &shards_;
    step_.cache_length = c.cache_length;
    run_.step_ = &step_;
  }

  std::vector<float> forward() {
    std::vector<float> y(static_cast<size_t>(case_.rows() * case_.d), 1e30f);
    run_.out_ = {Tensor{y.data(), case_.rows(), case_.d, case_.d}};
    node_->forward(run_);
    return y;
  }

  std::vector<float> backward(const std::vector<float>& dy, const std::vector<const float*>& adds = {}) {
    std::vector<float> out(table_.size(), 1e30f), copy(dy);
    run_.dout_ = {Tensor{copy.data(), case_.rows(), case_.d, case_.d}};
    run_.din_.assign(3, Tensor{});
    run_.sink_.assign(3, GradSink{});
    run_.sink_[1].out = out.data();
    for (const float* a : adds) run_.sink_[1].add[run_.sink_[1].n_add++] = a;
    node_->backward(run_);
    return out;
  }

  // Into rows, which may be one of the adds.
  void backward_rows(const std::vector<float>& dy, RowGradient* out, const std::vector<const RowGradient*>& adds) {
    std::vector<float> copy(dy);
    run_.dout_ = {Tensor{copy.data(), case_.rows(), case_.d, case_.d}};
    run_.din_.assign(3, Tensor{});
    run_.sink_.assign(3, GradSink{});
    run_.sink_[1].out_rows = out;
    for (const RowGradient* a : adds) run_.sink_[1].add_rows[run_.sink_[1].n_add++] = a;
    CHECK(run_.wants(1));
    node_->backward(run_);
  }

  Node& node() { return *node_; }

 private:
  Case case_;
  std::vector<float> table_, residual_;
  Shards shards_;
  std::unique_ptr<Node> node_;
  std::vector<TensorSpec> specs_;
  Inference needs_;
  std::vector<int32_t> ids_;
  std::vector<std::byte> scratch_;
  StepInput step_;
  Run run_;
};

inline Runner make(const Case& c) {
  return {c, ids_of(c), numbers(1, c.vocabulary * c.d),
          c.residual ? numbers(2, c.rows() * c.d) : std::vector<float>{}};
}

// A row list with room for `room` rows, which has the rows of an earlier step.
struct Rows : RowGradient {
  Rows(const Case& c, int64_t room)
      : numbers(static_cast<size_t>(room * c.d), 1e30f),
        listed(static_cast<size_t>(room), -7),
        places(c.vocabulary) {
    table_rows = c.vocabulary, width = c.d, capacity = room;
    values = numbers.data(), ids = listed.data(), place = places.data();
    for (int64_t id = 0; id < std::min(room, c.vocabulary); ++id) CHECK(insert(static_cast<int32_t>(id)));
  }
  Rows(const Rows&) = delete;
  std::vector<float> whole() const {
    std::vector<float> all(static_cast<size_t>(table_rows * width));
    copy(0, static_cast<int64_t>(all.size()), all.data());
    return all;
  }
  std::vector<float> numbers;
  std::vector<int32_t> listed, places;
};

}  // namespace mudd::test::embedding
