#include "mudd/data/batch_source.h"

#include <limits>

#include "mudd/base/check.h"

namespace mudd {
namespace {

int32_t* moved(int32_t* array, int64_t by) { return array == nullptr ? nullptr : array + by; }

}  // namespace

BatchRows BatchRows::from_row(int64_t row, int64_t length) const {
  const int64_t by = row * length;
  return {moved(inputs, by), moved(targets, by), moved(positions, by), moved(segments, by), moved(key_mask, by)};
}

BatchSource::BatchSource(int64_t seq_len, BatchParts parts) : seq_len_(seq_len), parts_(parts) {
  check(seq_len >= 1 && seq_len <= std::numeric_limits<int32_t>::max(), "batcher",
        "seq_len: expected 1 to 2147483647, got ", seq_len);
}

void BatchSource::repeat(int64_t samples) {
  check(samples >= 0, "batcher", "repeat: expected at least 0, got ", samples);
  repeat_ = samples;
}

int64_t BatchSource::fill(int64_t first_sample, int64_t n_samples, const BatchRows& out) {
  check(first_sample >= 0 && n_samples >= 0 && first_sample <= std::numeric_limits<int64_t>::max() - n_samples,
        "batcher", "samples: expected non-negative numbers, got ", n_samples, " from ", first_sample);
  int64_t targets = 0;
  for (int64_t b = 0; b < n_samples; ++b) {
    const int64_t sample = first_sample + b;
    targets += fill_row(repeat_ > 0 ? sample % repeat_ : sample, out.from_row(b, seq_len_));
  }
  return targets;
}

}  // namespace mudd
