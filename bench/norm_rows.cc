// Rows of the norms, and of the sums of states that depth_mix normalizes.
#include <memory>

#include "mudd/ops/depth_mix/depth_mix.h"
#include "mudd/ops/layer_norm/layer_norm.h"
#include "mudd/ops/rms_norm/rms_norm.h"
#include "rows.h"

namespace mudd::bench {
namespace {

constexpr int64_t kRows = 48, kCols = 512, kAll = kRows * kCols;
constexpr Work moves(double operands) { return {.bytes = 4 * operands * kAll}; }

void add_row_norms() {
  register_rows(rms_norm_rows(), "forward", moves(2), [](const RmsNormKernels& k) {
    return [&k, x = filled(kAll), gain = filled(kCols), y = Floats(kAll), inv = Floats(kRows)]() mutable {
      k.fwd(0, kRows, 1, kCols, x.data(), kCols, gain.data(), 1e-6f, y.data(), kCols, inv.data());
    };
  });
  register_rows(rms_norm_rows(), "backward", moves(3), [](const RmsNormKernels& k) {
    return [&k, x = filled(kAll), gain = filled(kCols), dy = filled(kAll), dx = Floats(kAll),
            inv = Floats(kRows, 1.0f), dgain = Floats(kCols)]() mutable {
      k.bwd(0, kRows, 1, kCols, x.data(), kCols, gain.data(), inv.data(), dy.data(), kCols, dx.data(), kCols,
            false, dgain.data());
    };
  });
  register_rows(layer_norm_rows(), "forward", moves(2), [](const LayerNormKernels& k) {
    return [&k, x = filled(kAll), gain = filled(kCols), bias = filled(kCols), y = Floats(kAll),
            stats = Floats(2 * kRows)]() mutable {
      k.fwd(0, kRows, kCols, x.data(), kCols, gain.data(), bias.data(), {}, y.data(), kCols, stats.data());
    };
  });
  register_rows(layer_norm_rows(), "backward", moves(3), [](const LayerNormKernels& k) {
    return [&k, x = filled(kAll), gain = filled(kCols), dy = filled(kAll), dx = Floats(kAll),
            stats = Floats(2 * kRows, 0.5f), dgain = Floats(kCols), dbias = Floats(kCols)]() mutable {
      k.bwd(0, kRows, kCols, x.data(), kCols, gain.data(), {}, stats.data(), dy.data(), kCols, dx.data(), kCols,
            false, dgain.data(), dbias.data());
    };
  });
}

// Four streams of eight states with the first three normalized: the mix of a middle layer.
struct Mix {
  static constexpr int kStreams = 4, kStates = 8, kNormed = 3;
  Floats state = filled(kAll), out = Floats(kStreams * kAll), weights = filled(kRows * kStreams * kStates);
  Floats gain = filled(kCols), inverse = Floats(kRows * kNormed, 1.0f), scratch = Floats(kStreams * kCols);
  Floats dstates = Floats(kStates * kAll), dweights = weights, dgains = Floats(kNormed * kCols);
  std::vector<const float*> states = std::vector<const float*>(kStates, state.data());
  std::vector<float*> state_gradients;
  std::vector<int64_t> strides = std::vector<int64_t>(kStates, kCols);
  std::vector<uint8_t> accumulate = std::vector<uint8_t>(kStates);
  DepthMixRows rows;
  DepthMixOutputs outputs;
  DepthMixGradients gradients;

  Mix() {
    rows.width = kCols, rows.streams = kStreams, rows.sources = kStates, rows.normed = kNormed;
    rows.states = states.data(), rows.state_strides = strides.data();
    rows.weights = weights.data(), rows.weight_stride = kStreams * kStates;
    rows.eps = 1e-6f, rows.inverse = inverse.data();
    for (int j = 0; j < kStates; ++j) state_gradients.push_back(dstates.data() + j * kAll);
    gradients.states = state_gradients.data(), gradients.state_strides = strides.data();
    gradients.accumulate = accumulate.data(), gradients.weights = dweights.data();
    for (int c = 0; c < kStreams; ++c) {
      outputs.streams[c] = out.data() + c * kAll, outputs.strides[c] = kCols;
      gradients.streams[c] = state.data(), gradients.strides[c] = kCols;
      if (c < kNormed) rows.gains[c] = gain.data(), gradients.gains[c] = dgains.data() + c * kCols;
    }
  }
};

void add_mixes() {
  register_rows(depth_mix_rows(), "forward", moves(Mix::kStates + Mix::kStreams), [](const DepthMixKernels& k) {
    return [&k, mix = std::make_unique<Mix>()] { k.fwd(0, kRows, mix->rows, mix->outputs); };
  });
  register_rows(depth_mix_rows(), "backward", moves(2 * Mix::kStates + Mix::kStreams),
                [](const DepthMixKernels& k) {
                  return [&k, mix = std::make_unique<Mix>()] {
                    k.bwd(0, kRows, mix->rows, mix->gradients, mix->scratch.data());
                  };
                });
  register_rows(depth_mix_rows(), "generator", moves(5), [](const DepthMixKernels& k) {
    return [&k, pre = filled(kAll), scale = filled(kRows), dhidden = filled(kAll), hidden = Floats(kAll),
            dscaled = Floats(kAll)]() mutable {
      k.generator(0, kRows, kCols, Activation::gelu_tanh, pre.data(), scale.data(), dhidden.data(), hidden.data(),
                  dscaled.data());
    };
  });
}

}  // namespace

void add_norms() {
  add_row_norms();
  add_mixes();
}

}  // namespace mudd::bench
