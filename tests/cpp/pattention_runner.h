// Cases of pattention: their inputs, the node that runs them, the double reference and its gradients.
#pragma once

#include <string>
#include <vector>

#include "complex_step.h"
#include "mudd/ops/pattention/pattention.h"
#include "mudd/ops/pattention/reference.h"
#include "node_runner.h"

namespace mudd::test::pattention {

using Floats = std::vector<float>;

constexpr const char* kNorms[] = {"l2_norm_gelu", "gelu_l2_norm", "l2_norm", "softmax", "gelu", "gelu_layer_norm"};

struct Case {
  int64_t samples = 4, t = 3, d_in = 11, n = 17, d_out = 9;
  SlotNorm norm = SlotNorm::l2_norm_gelu;
  Activation gelu = Activation::gelu_tanh;
  bool biases = true, residual = true, keep_scores = true;
  double zoom = 0, drop_path = 0;
  int groups = 1;
  int64_t rows() const { return samples * t; }

  Theta theta() const {
    return {norm, gelu, static_cast<float>(std::sqrt(zoom > 0 ? zoom : double(n))), 1e-3f, 1.3f};
  }
  Attributes attributes() const {
    Attributes a;
    a.values["norm"] = std::string(kNorms[static_cast<int>(norm)]);
    a.values["gelu"] = std::string(name_of(gelu));
    a.values["eps"] = 1e-3;
    a.values["scale_factor"] = 1.3;
    a.values["zoom"] = zoom;
    a.values["keep_scores"] = keep_scores;
    a.values["drop_path"] = drop_path;
    return a;
  }
};

// x, the first projection's key, value, key bias, value bias, the residual, further projections; absent ones are
// empty.
inline std::vector<Floats> inputs(const Case& c) {
  std::vector<Floats> in{numbers(1, c.rows() * c.d_in)};
  for (int g = 0; g < c.groups; ++g) {
    const uint64_t seed = 10 * static_cast<uint64_t>(g);
    in.push_back(numbers(seed + 3, c.n * c.d_in));
    in.push_back(numbers(seed + 4, c.n * c.d_out));
    in.push_back(c.biases ? numbers(seed + 5, c.n) : Floats{});
    in.push_back(c.biases ? numbers(seed + 6, c.d_out) : Floats{});
    if (g == 0) in.push_back(c.residual ? numbers(2, c.rows() * c.d_out) : Floats{});
  }
  return in;
}

// narrow: x, y and their gradients are bf16 in memory.
inline NodeRunner runner(const Case& c, const std::vector<Floats>& in, int shards = 4, int64_t padding = 3,
                         DType compute = DType::f32, bool narrow = false) {
  const std::vector<int64_t> shapes[4] = {{c.n, c.d_in}, {c.n, c.d_out}, {c.n}, {c.d_out}};
  std::vector<NodeRunner::Input> given{{{c.samples, c.t, c.d_in}, in[0], true, narrow}};
  for (size_t i = 1; i < in.size(); ++i) {
    if (i == 5) given.push_back({{c.samples, c.t, c.d_out}, in[5], false});
    else given.push_back({shapes[(i < 5 ? i - 1 : i - 6) % 4], in[i]});
  }
  return {"pattention", c.attributes(), given, Shards::cut(c.samples, shards), padding, {compute, !narrow}};
}

template <class N>
std::vector<N> reference_of(const Case& c, const std::vector<std::vector<N>>& in) {
  std::vector<N> y(static_cast<size_t>(c.rows() * c.d_out));
  const auto given = [&](size_t i) { return in[i].empty() ? nullptr : in[i].data(); };
  reference::pattention<N>(c.theta(), c.rows(), c.d_in, c.n, c.d_out, in[0].data(), in[1].data(), in[2].data(),
                           given(3), given(4), given(5), y.data());
  return y;
}

// d(sum dy*y)/d(input of) by the complex step on the reference.
inline std::vector<double> gradient(const Case& c, const std::vector<Floats>& at, const Floats& dy, size_t of) {
  return complex_step(at, of, dy, [&](const auto& in) { return reference_of(c, in); });
}

// y and all gradients of one run.
inline std::vector<Floats> everything(const Case& c, const std::vector<Floats>& in, const Floats& dy,
                                      int64_t padding = 3) {
  NodeRunner run = runner(c, in, 4, padding);
  std::vector<Floats> out{run.forward()};
  for (Floats& g : run.backward(dy)) out.push_back(g);
  return out;
}

// Every output and gradient in bf16; dy for each output. Of fp32 memory, what would be stored in bf16 is rounded.
inline std::vector<Floats> everything_bf16(const Case& c, const std::vector<Floats>& in, const Floats& dy,
                                           bool narrow, int64_t padding = 3) {
  NodeRunner run = runner(c, in, 4, padding, DType::bf16, narrow);
  std::vector<Floats> out{run.forward()};
  for (int g = 1; g < c.groups; ++g) out.push_back(run.forward(g));
  if (!c.residual)
    for (Floats& y : out) y = rounded(y);
  for (Floats& g : run.backward_all(std::vector<Floats>(static_cast<size_t>(c.groups), dy))) out.push_back(g);
  out[static_cast<size_t>(c.groups)] = rounded(out[static_cast<size_t>(c.groups)]);  // dx
  return out;
}

}  // namespace mudd::test::pattention
