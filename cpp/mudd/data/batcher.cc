#include "mudd/data/batcher.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/data/permutation.h"

namespace mudd {

Batcher::Batcher(TokenFileSpec file, BatchOrder order, int64_t seq_len, uint64_t seed, int32_t pad_id)
    : BatchSource(seq_len, {}),
      file_(std::move(file)),
      order_(order),
      order_key_(philox_key(seed, "data.order")),
      offset_key_(philox_key(seed, "data.offset")),
      pad_id_(pad_id) {
  check(pad_id >= 0 && pad_id < file_.vocab_size(), "batcher", "pad_id: expected an id below ", file_.vocab_size(),
        ", got ", pad_id);
  const int64_t count = file_.count();
  if (order_ == BatchOrder::shuffled) {
    check(count >= seq_len + 1, "batcher", "tokens: expected at least one window of seq_len + 1 = ", seq_len + 1,
          " tokens, got ", count, "; use more text or a smaller seq_len");
    windows_ = std::max<int64_t>(1, (count - seq_len) / seq_len);
    offsets_ = std::min(seq_len, count - windows_ * seq_len);
  } else {
    check(count >= 2, "batcher", "tokens: expected at least 2 tokens to validate, got ", count, "; use more text");
    windows_ = (count - 2) / seq_len + 1;
    offsets_ = 1;
  }
  window_.resize(static_cast<size_t>(seq_len) + 1);
}

int64_t Batcher::start_of(int64_t sample) const {
  check(sample >= 0, "batcher", "sample: expected at least 0, got ", sample);
  if (order_ == BatchOrder::sequential) {
    check(sample < std::numeric_limits<int64_t>::max() / seq_len(), "batcher", "sample: got ", sample);
    return sample * seq_len();
  }
  const int64_t epoch = sample / windows_;
  check(epoch <= std::numeric_limits<uint32_t>::max(), "batcher",
        "sample: expected at most 2^32 epochs, got sample ", sample);
  const uint32_t e = static_cast<uint32_t>(epoch);
  const PhiloxBlock words = philox({e, 0, 0, 0}, offset_key_);
  const uint64_t draw = (uint64_t{words[1]} << 32) | words[0];  // 64 bits: the bias of the modulus is below 2^-32
  const int64_t offset = static_cast<int64_t>(draw % static_cast<uint64_t>(offsets_));
  const Permutation order(static_cast<uint64_t>(windows_), order_key_, e);
  return offset + static_cast<int64_t>(order(static_cast<uint64_t>(sample % windows_))) * seq_len();
}

int64_t Batcher::fill_row(int64_t sample, const BatchRows& row) {
  const int64_t start = start_of(sample);
  // After the last sequence of a validation nothing is left; ids - 1 of the ids present are targets.
  const int64_t ids = std::clamp<int64_t>(file_.count() - start, 0, seq_len() + 1);
  const int64_t targets = std::max<int64_t>(ids - 1, 0);
  if (targets > 0) file_.read(start, ids, window_.data());
  std::copy_n(window_.data(), targets, row.inputs);
  std::fill(row.inputs + targets, row.inputs + seq_len(), pad_id_);
  if (targets > 0) std::copy_n(window_.data() + 1, targets, row.targets);
  std::fill(row.targets + targets, row.targets + seq_len(), -1);
  return targets;
}

}  // namespace mudd
