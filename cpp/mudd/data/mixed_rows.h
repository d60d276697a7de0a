// Sequences of several sources, chosen by a schedule: sample s is the next unread sequence of its source.
#pragma once

#include <cstdint>
#include <vector>

#include "mudd/data/batch_source.h"
#include "mudd/data/mix_schedule.h"

namespace mudd {

class MixedRows final : public BatchSource {
 public:
  // One source for each of the schedule, all with the same length and parts. They must outlive this object, and
  // nobody else may fill from them meanwhile. rows: the sequences of an epoch, which the caller defines.
  MixedRows(std::vector<BatchSource*> sources, MixSchedule schedule, int64_t rows);

  int64_t rows() const override { return rows_; }

 private:
  int64_t fill_row(int64_t sample, const BatchRows& row) override;

  std::vector<BatchSource*> sources_;
  MixSchedule schedule_;
  int64_t rows_;
};

}  // namespace mudd
