// Cases of depth_mix: their inputs, the node that runs them, the double reference and its gradients.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "complex_step.h"
#include "mudd/ops/depth_mix/depth_mix.h"
#include "mudd/ops/depth_mix/reference.h"
#include "node_runner.h"

namespace mudd::test::depth_mix {

using Floats = std::vector<float>;

struct Case {
  int64_t samples = 2, t = 3, d = 13, hidden = 5;  // hidden 0: the same weights for all tokens
  int streams = 4, sources = 3, gains = 3;
  bool generator_gain = false, newest = false, direct = false, post_norm = false;
  Activation activation = Activation::gelu_tanh;
  DType compute = DType::f32;
  bool narrow_states = false, narrow_newest = false, narrow_streams = false;  // they are bf16 in memory

  int64_t rows() const { return samples * t; }
  int count() const { return streams * sources; }
};

// As distance, but of numbers around one: a normalised stream of one state has gradients that cancel to nothing.
template <class Got, class Want>
double apart(const Got& got, const Want& want) {
  std::vector<double> g(got.begin(), got.end()), w(want.begin(), want.end());
  g.push_back(1), w.push_back(1);
  return distance(g, w, g.size());
}

// The inputs of the node in its order; absent ones are empty.
inline std::vector<Floats> inputs(const Case& c) {
  const auto shifted = [](Floats v) {
    for (float& x : v) x += 1.5f;
    return v;
  };
  std::vector<Floats> in(9);
  in[0] = numbers(1, c.count());
  if (c.hidden) in[1] = numbers(2, c.d * c.hidden), in[2] = numbers(3, c.hidden * c.count());
  if (c.generator_gain) in[3] = shifted(numbers(4, c.d));
  for (int g = 0; g < c.gains; ++g) in[4 + g] = shifted(numbers(5 + g, c.d));
  if (c.newest) in[8] = numbers(9, c.rows() * c.d);
  for (int j = 0; j < c.sources; ++j) in.push_back(numbers(10 + j, c.rows() * c.d));
  for (size_t i = 1; c.compute == DType::bf16 && i < in.size(); ++i)
    if (i < 3 || i > 7) in[i] = rounded(in[i]);
  return in;
}

inline std::vector<std::vector<int64_t>> shapes(const Case& c) {
  const int64_t k = std::max<int64_t>(1, c.hidden);  // absent: any shape that is not empty
  std::vector<std::vector<int64_t>> s{{c.streams, c.sources}, {c.d, k}, {k, c.count()}};
  s.resize(8, {c.d});
  s.resize(9 + c.sources, {c.samples, c.t, c.d});
  return s;
}

template <class N>
reference::DepthMixReference<N> reference_of(const Case& c, const std::vector<std::vector<N>>& in) {
  reference::DepthMixReference<N> r;
  r.rows = c.rows(), r.width = c.d, r.hidden = c.hidden, r.streams = c.streams;
  r.direct = c.direct, r.post_norm = c.post_norm, r.activation = c.activation;
  r.bias = in[0], r.w1 = in[1], r.w2 = in[2], r.generator_gain = in[3], r.newest = in[8];
  r.gains.assign(in.begin() + 4, in.begin() + 4 + c.gains);
  r.states.assign(in.begin() + 9, in.end());
  return r;
}

inline std::vector<Floats> stream_gradients(const Case& c) {
  std::vector<Floats> dy;
  for (int s = 0; s < c.streams; ++s) dy.push_back(numbers(40 + s, c.rows() * c.d));
  return dy;
}

// d(sum of dy y over streams)/d(input of) by the complex step on the reference.
inline std::vector<double> gradient(const Case& c, const std::vector<Floats>& dy, size_t of) {
  Floats together;
  for (const Floats& stream : dy) together.insert(together.end(), stream.begin(), stream.end());
  return complex_step(inputs(c), of, together, [&](const auto& in) {
    auto streams = reference_of(c, in).run();
    auto y = streams[0];
    for (size_t s = 1; s < streams.size(); ++s) y.insert(y.end(), streams[s].begin(), streams[s].end());
    return y;
  });
}

inline NodeRunner runner(const Case& c, int shards = 2, int64_t padding = 3) {
  Attributes a;
  a.values["direct"] = c.direct;
  a.values["post_norm"] = c.post_norm;
  a.values["activation"] = std::string(name_of(c.activation));
  std::vector<NodeRunner::Input> values;
  const auto in = inputs(c);
  const auto shape = shapes(c);
  for (size_t i = 0; i < in.size(); ++i)
    values.push_back({shape[i], in[i], true, i == 8 ? c.narrow_newest : i > 8 && c.narrow_states});
  return {"depth_mix", a, values, Shards::cut(c.samples, shards), padding, {c.compute, !c.narrow_streams}};
}

}  // namespace mudd::test::depth_mix
