#include "mudd/graph/fingerprint.h"

#include <algorithm>

#include "mudd/kernels/convert/convert.h"

namespace mudd {
namespace {

double element(const Tensor& t, int64_t at) {
  const int64_t place = at / t.cols * t.stride + at % t.cols;
  float wide = 0;
  switch (t.dtype) {
    case DType::f32: return t.f32()[place];
    case DType::f64: return static_cast<const double*>(t.data)[place];
    case DType::i32: return t.i32()[place];
    case DType::u8: return static_cast<const uint8_t*>(t.data)[place];
    case DType::bf16:
    case DType::f16: copy_wide(1, ConstCells(t.data, t.dtype) + place, &wide); return wide;
  }
  return 0;
}

}  // namespace

void Fingerprint::see(const Observed& value) {
  const Tensor& t = value.tensor;
  DigestLine line{.value = value, .digest = digest_of(t), .samples = {}, .rows = {}};
  line.value.tensor.data = nullptr;
  const int64_t n = t.rows * t.cols, count = std::min<int64_t>(n, kSamples);
  for (int64_t k = 0; k < count; ++k)
    line.samples.push_back(element(t, count == 1 ? 0 : k * ((n - 1) / (count - 1))));
  const int64_t sequences = value.stage == StepStage::data ? value.shape[0] : 0;
  for (int64_t s = 0; s < sequences; ++s)
    line.rows.push_back(rows_digest(t, s * (t.rows / sequences), t.rows / sequences)[0]);
  lines_.push_back(std::move(line));
}

void Values::see(const Observed& value) {
  if (inner_) inner_->see(value);
  const bool wanted = std::any_of(wanted_.begin(), wanted_.end(), [&](const Wanted& w) {
    return w.stage == value.stage && w.run == value.run && w.place == value.place && w.value == value.value;
  });
  if (!wanted) return;
  Kept kept{.value = value, .bytes = bytes_of(value.tensor)};
  kept.value.tensor.data = nullptr;
  kept_.push_back(std::move(kept));
}

}  // namespace mudd
