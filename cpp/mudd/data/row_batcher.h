// Sequences of token ids from the pieces of a plan; a rule turns them into inputs and targets.
//
//   next        ids y[0..T]: inputs y[0..T-1], targets y[1..T]
//   inside      ids y[0..T-1]: inputs y, target t is y[t+1], the last one is ignored; key_mask 1 on ids, 0 on
//               padding
//   behind_bos  ids y[0..T-1]: inputs are `bos_id` and then y, targets y up to the first `stop_id` or padding
//   packed      several documents: inputs are 0 and then y; a target of id 0 is ignored and leaves its segment
//               (0), and an input is 0 if its segment differs from the one before. Padding is 0.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mudd/data/batch_source.h"
#include "mudd/data/row_plan.h"
#include "mudd/data/token_file.h"
#include "mudd/data/token_ids.h"

namespace mudd {

enum class RowShift : uint8_t { next, inside, behind_bos, packed };

struct RowRule {
  RowShift shift = RowShift::next;
  int32_t pad_id = 0;       // after the ids of a short sequence
  int32_t bos_id = 0;       // behind_bos
  int32_t stop_id = -1;     // behind_bos: is a target once
  int32_t ignored_id = -1;  // next: never a target
  bool pad_counts = false;  // next: padding is a target
};

class RowBatcher final : public BatchSource {
 public:
  RowBatcher(TokenFileSpec file, std::unique_ptr<RowPlan> plan, const RowRule& rule, int64_t seq_len);
  RowBatcher(std::unique_ptr<TokenIds> ids, std::unique_ptr<RowPlan> plan, const RowRule& rule, int64_t seq_len);
  int64_t rows() const override { return plan_->rows(); }

 private:
  int64_t fill_row(int64_t sample, const BatchRows& row) override;
  int64_t gather(int64_t sample);
  int64_t next_rule(int64_t ids, const BatchRows& row) const;
  int64_t inside_rule(int64_t ids, const BatchRows& row) const;
  int64_t bos_rule(const BatchRows& row) const;
  int64_t packed_rule(const BatchRows& row) const;

  std::unique_ptr<TokenIds> source_;
  std::unique_ptr<RowPlan> plan_;
  RowRule rule_;
  std::vector<TokenRange> pieces_;
  std::vector<int32_t> ids_;        // of the sequence, with its padding: T + 1 for `next`, else T
  std::vector<int32_t> positions_;  // of `packed`
  std::vector<int32_t> segments_;
};

}  // namespace mudd
