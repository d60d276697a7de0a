#include "mudd/data/row_batcher.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "mudd/base/check.h"

namespace mudd {
namespace {

BatchParts parts_of(RowShift shift) {
  BatchParts parts;
  parts.positions = parts.segments = shift == RowShift::packed;
  parts.key_mask = shift == RowShift::inside;
  return parts;
}

}  // namespace

RowBatcher::RowBatcher(TokenFileSpec file, std::unique_ptr<RowPlan> plan, const RowRule& rule, int64_t seq_len)
    : RowBatcher(std::make_unique<TokenFile>(std::move(file)), std::move(plan), rule, seq_len) {}

RowBatcher::RowBatcher(std::unique_ptr<TokenIds> ids, std::unique_ptr<RowPlan> plan, const RowRule& rule,
                       int64_t seq_len)
    : BatchSource(seq_len, parts_of(rule.shift)), source_(std::move(ids)), plan_(std::move(plan)), rule_(rule) {
  for (const int32_t id : {rule.pad_id, rule.bos_id})
    check(id >= 0 && id < source_->vocab_size(), "rows", "pad_id, bos_id: expected ids below ",
          source_->vocab_size(), ", got ", id);
  const auto T = static_cast<size_t>(seq_len);
  ids_.resize(rule.shift == RowShift::next ? T + 1 : T);
  if (rule.shift == RowShift::packed) {
    positions_.resize(T);
    segments_.resize(T);
  }
}

// Read the ids of a sequence and pad them; return their count.
int64_t RowBatcher::gather(int64_t sample) {
  plan_->pieces(sample, pieces_);
  const int64_t capacity = static_cast<int64_t>(ids_.size());
  int64_t filled = 0;
  int32_t segment = 0, position = 0;
  for (const TokenRange& piece : pieces_) {
    const int64_t n = std::min(piece.count, capacity - filled);
    source_->read(piece.first, n, ids_.data() + filled);
    if (!piece.joined) {
      ++segment;
      position = 0;
    }
    if (!segments_.empty()) {
      std::fill_n(segments_.begin() + filled, n, segment);
      std::iota(positions_.begin() + filled, positions_.begin() + filled + n, position);
    }
    position += static_cast<int32_t>(n);
    filled += n;
  }
  std::fill(ids_.begin() + filled, ids_.end(), rule_.pad_id);
  if (!segments_.empty()) {
    std::fill(segments_.begin() + filled, segments_.end(), 0);
    std::fill(positions_.begin() + filled, positions_.end(), 0);
  }
  return filled;
}

int64_t RowBatcher::fill_row(int64_t sample, const BatchRows& row) {
  const int64_t ids = gather(sample);
  if (pieces_.empty()) {  // after the end of a validation
    for (int32_t* part : {row.positions, row.segments, row.key_mask})
      if (part != nullptr) std::fill_n(part, seq_len(), 0);
    std::fill_n(row.inputs, seq_len(), rule_.pad_id);
    std::fill_n(row.targets, seq_len(), -1);
    return 0;
  }
  switch (rule_.shift) {
    case RowShift::next: return next_rule(ids, row);
    case RowShift::inside: return inside_rule(ids, row);
    case RowShift::behind_bos: return bos_rule(row);
    case RowShift::packed: return packed_rule(row);
  }
  return 0;
}

int64_t RowBatcher::next_rule(int64_t ids, const BatchRows& row) const {
  int64_t targets = 0;
  for (int64_t t = 0; t < seq_len(); ++t) {
    const int32_t target = ids_[static_cast<size_t>(t) + 1];
    const bool counts = target != rule_.ignored_id && (rule_.pad_counts || t + 1 < ids);
    row.inputs[t] = ids_[static_cast<size_t>(t)];
    row.targets[t] = counts ? target : -1;
    targets += counts ? 1 : 0;
  }
  return targets;
}

int64_t RowBatcher::inside_rule(int64_t ids, const BatchRows& row) const {
  for (int64_t t = 0; t < seq_len(); ++t) {
    row.inputs[t] = ids_[static_cast<size_t>(t)];
    row.targets[t] = t + 1 < ids ? ids_[static_cast<size_t>(t) + 1] : -1;
    if (row.key_mask != nullptr) row.key_mask[t] = t < ids ? 1 : 0;
  }
  return std::max<int64_t>(ids - 1, 0);
}

int64_t RowBatcher::bos_rule(const BatchRows& row) const {
  int64_t targets = 0;
  bool open = true;
  for (int64_t t = 0; t < seq_len(); ++t) {
    const int32_t id = ids_[static_cast<size_t>(t)];
    row.inputs[t] = t == 0 ? rule_.bos_id : ids_[static_cast<size_t>(t) - 1];
    row.targets[t] = open ? id : -1;
    targets += open ? 1 : 0;
    open = open && id != rule_.stop_id && id != rule_.pad_id;
  }
  return targets;
}

int64_t RowBatcher::packed_rule(const BatchRows& row) const {
  int64_t targets = 0;
  int32_t before = 0;
  for (int64_t t = 0; t < seq_len(); ++t) {
    const auto i = static_cast<size_t>(t);
    const int32_t id = ids_[i], segment = id != 0 ? segments_[i] : 0;
    row.inputs[t] = t > 0 && segment == before ? ids_[i - 1] : 0;
    row.targets[t] = id != 0 ? id : -1;
    if (row.positions != nullptr) row.positions[t] = positions_[i];
    if (row.segments != nullptr) row.segments[t] = segment;
    targets += id != 0 ? 1 : 0;
    before = segment;
  }
  return targets;
}

}  // namespace mudd
