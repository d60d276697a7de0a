// One block with every op of Transformer++, GPT-2 and TokenFormer, over a tied embedding: a graph for tests of
// executors and steps.
#pragma once

#include <vector>

#include "compare.h"
#include "mudd/graph/executor.h"
#include "mudd/params/init.h"

namespace mudd::test {

struct Recorded {
  Graph graph{true, Shards::cut(2, 2)};
  ValueId loss = 0, count = 0;
};

constexpr int64_t kSamples = 2, kTime = 40, kWidth = 32, kVocabulary = 97;

inline int declare(ParamStore& store, const char* name, std::vector<int64_t> shape, Role role) {
  return store.parameters().declare(
      {.name = name, .shape = std::move(shape), .role = role, .init = "normal", .init_scale = 0.1});
}

inline Recorded record(ParamStore& store) {
  Recorded r;
  Graph& g = r.graph;
  auto parameter = [&](const char* name) {
    const int slot = store.parameters().find(name);
    return g.parameter(name, {store.parameters().at(slot).shape, DType::f32}, slot, true);
  };
  Attributes none, heads, gelu;
  heads.values["n_head"] = int64_t{4};
  gelu.values["activation"] = std::string("gelu_tanh");
  Attributes grouped = heads;
  grouped.values["n_kv_head"] = int64_t{4};
  const ValueId inputs = g.input("inputs", {{kSamples, kTime}, DType::i32});
  const ValueId targets = g.input("targets", {{kSamples, kTime}, DType::i32});
  const ValueId table = parameter("embed");
  ValueId x = g.apply("embedding", none, {inputs, table}, "")[0];
  const ValueId a = g.apply("rms_norm", none, {x, parameter("gain")}, "")[0];
  ValueId q = g.apply("linear", none, {a, parameter("q")}, "")[0];
  q = g.apply("rope", heads, {q}, "")[0];
  const ValueId o = g.apply("attention", grouped, {q, a, a}, "")[0];
  x = g.apply("linear", none, {o, parameter("o"), kAbsent, x}, "")[0];
  const ValueId n = g.apply("layer_norm", none, {x, parameter("gain2"), parameter("bias")}, "")[0];
  const ValueId u = g.apply("linear", gelu, {n, parameter("up"), parameter("up_bias")}, "")[0];
  const ValueId y = g.apply("glu", none, {u, u}, "")[0];
  x = g.apply("add", none, {x, g.apply("linear", none, {y, parameter("down")}, "")[0]}, "")[0];
  Attributes dropped;
  dropped.values["drop_path"] = 0.3;
  const ValueId keys = parameter("key"), values = parameter("value");
  const std::vector<ValueId> pair =
      g.apply("pattention", none, {x, keys, values, kAbsent, kAbsent, kAbsent, parameter("key2"), values}, "");
  x = g.apply("pattention", dropped, {pair[1], keys, values, kAbsent, parameter("gain2"), pair[0]}, "")[0];
  const std::vector<ValueId> out = g.apply("cross_entropy", none, {x, table, targets}, "");
  r.loss = out[0];
  r.count = out[1];
  return r;
}

inline ParamStore block_store() {
  ParamStore store;
  declare(store, "embed", {kVocabulary, kWidth}, Role::embedding);
  for (const char* name : {"gain", "gain2", "bias"}) declare(store, name, {kWidth}, Role::gain);
  for (const char* name : {"q", "o"}) declare(store, name, {kWidth, kWidth}, Role::matrix);
  declare(store, "up", {kWidth, 48}, Role::matrix);
  declare(store, "up_bias", {48}, Role::bias);
  declare(store, "down", {48, kWidth}, Role::matrix);
  for (const char* name : {"key", "key2", "value"}) declare(store, name, {20, kWidth}, Role::slots);
  store.allocate();
  initialize(store, 1);
  return store;
}

// The ids of graph run `run`.
inline void fill_ids(const Executor& executor, const Workspace& workspace, int run) {
  for (const char* name : {"inputs", "targets"}) {
    const Tensor t = workspace.value(executor.input(name));
    for (int64_t i = 0; i < t.rows * t.cols; ++i)
      t.i32()[i] = static_cast<int32_t>((number(name[0] + run, i) + 1) * 0.5f * (kVocabulary - 1));
  }
}

}  // namespace mudd::test
