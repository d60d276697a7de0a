#include "mudd/data/mixed_rows.h"

#include <utility>

#include "mudd/base/check.h"

namespace mudd {
namespace {

const BatchSource& first_of(const std::vector<BatchSource*>& sources) {
  check(!sources.empty(), "mix", "sources: expected at least one");
  return *sources[0];
}

}  // namespace

MixedRows::MixedRows(std::vector<BatchSource*> sources, MixSchedule schedule, int64_t rows)
    : BatchSource(first_of(sources).seq_len(), first_of(sources).parts()),
      sources_(std::move(sources)),
      schedule_(std::move(schedule)),
      rows_(rows) {
  check(static_cast<int64_t>(sources_.size()) == schedule_.n_sources(), "mix", "sources: expected ",
        schedule_.n_sources(), " as in the schedule, got ", sources_.size());
  for (const BatchSource* source : sources_) {
    const BatchParts ours = parts(), its = source->parts();
    check(source->seq_len() == seq_len() && its.positions == ours.positions && its.segments == ours.segments &&
              its.key_mask == ours.key_mask,
          "mix", "sources: expected the same length and parts in all");
  }
}

int64_t MixedRows::fill_row(int64_t sample, const BatchRows& row) {
  const MixPlace place = schedule_.place(sample);
  return sources_[static_cast<size_t>(place.source)]->fill(place.index, 1, row);
}

}  // namespace mudd
