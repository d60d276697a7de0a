#include "mudd/train/totals_exchange.h"

#include <algorithm>
#include <utility>

#include "mudd/base/shard_tree.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {
namespace {

// Values of a record before the metrics.
enum Scalar { kLoss, kCount, kAux, kObjective, kSlots, kLeast, kMost, kStop, kFlags, kScalars };

// Sum value `at` of every process's record by the tree.
double tree_of(const std::vector<double>& records, int64_t width, int64_t at) {
  const int n = static_cast<int>(std::ssize(records) / width);
  shard_tree::Counter<double> sums;
  double total = 0;
  for (int rank = 0; rank < n; ++rank) total = sums.add(rank, n, records[rank * width + at]);
  return total;
}

}  // namespace

TotalsExchange::TotalsExchange(const Executor& executor, dist::Comm& comm, PartOf part)
    : executor_(executor), comm_(comm), part_(std::move(part)) {
  int64_t blocks = 0;
  for (int i = 0; i < executor.store().parameters().count(); ++i) {
    const bool trained = executor.gradients().uses(i) > 0;
    first_block_.push_back(trained ? blocks : -1);
    if (trained) blocks += norm_blocks(executor.store().parameters().at(i).size());
  }
}

// Call body(first, count) for each range of norm blocks of a rank.
template <class Body>
void TotalsExchange::over_blocks(int rank, Body body) const {
  for (int i = 0; i < executor_.store().parameters().count(); ++i) {
    if (first_block_[i] < 0) continue;
    const Part p = part_(i, rank);
    if (p.size() > 0) body(first_block_[i] + p.begin / kNormBlock, norm_blocks(p.size()));
  }
}

void TotalsExchange::book_records(const StepTotals& totals) {
  int64_t most = 0;
  for (int rank = 0; rank < comm_.world(); ++rank) {
    int64_t blocks = 0;
    over_blocks(rank, [&](int64_t, int64_t count) { blocks += count; });
    most = std::max(most, blocks);
  }
  record_.resize(kScalars + totals.metrics.size() + static_cast<size_t>(most));
  records_.resize(record_.size() * static_cast<size_t>(comm_.world()));
}

void TotalsExchange::run(StepTotals& totals, bool summed) {
  if (record_.empty()) book_records(totals);
  const double scalars[kScalars] = {totals.loss,
                                    totals.count,
                                    totals.aux,
                                    totals.objective,
                                    totals.slots,
                                    totals.least_count,
                                    totals.most_count,
                                    totals.stop ? 1.0 : 0.0,
                                    static_cast<double>(totals.flags)};
  auto to = std::copy_n(scalars, kScalars, record_.begin());
  to = std::copy(totals.metrics.begin(), totals.metrics.end(), to);
  over_blocks(comm_.rank(), [&](int64_t first, int64_t count) {
    to = std::copy_n(totals.norm_squares.begin() + first, count, to);
  });
  comm_.all_gather(record_.data(), std::ssize(record_) * static_cast<int64_t>(sizeof(double)), records_.data());
  add_records(totals, summed);
}

void TotalsExchange::add_records(StepTotals& totals, bool summed) const {
  const int64_t width = std::ssize(record_);
  totals.slots = tree_of(records_, width, kSlots);
  if (!summed) {
    totals.loss = tree_of(records_, width, kLoss);
    totals.count = tree_of(records_, width, kCount);
    totals.aux = tree_of(records_, width, kAux);
    totals.objective = tree_of(records_, width, kObjective);
    for (size_t f = 0; f < totals.metrics.size(); ++f)
      totals.metrics[f] = tree_of(records_, width, kScalars + static_cast<int64_t>(f));
  }
  for (int rank = 0; rank < comm_.world(); ++rank) {
    const double* record = records_.data() + rank * width;
    totals.least_count = std::min(totals.least_count, record[kLeast]);
    totals.most_count = std::max(totals.most_count, record[kMost]);
    totals.stop |= record[kStop] != 0;
    totals.flags |= static_cast<uint32_t>(record[kFlags]);
    const double* from = record + kScalars + totals.metrics.size();
    over_blocks(rank, [&](int64_t first, int64_t count) {
      std::copy_n(from, count, totals.norm_squares.begin() + first);
      from += count;
    });
  }
}

bool TotalsExchange::any(bool here) {
  const char mine = here ? 1 : 0;
  std::vector<char>& all = flags_of_all_;
  all.resize(static_cast<size_t>(comm_.world()));
  comm_.all_gather(&mine, 1, all.data());
  return std::any_of(all.begin(), all.end(), [](char flag) { return flag != 0; });
}

void TotalsExchange::add(std::span<double> values) {
  sums_.resize(values.size() * static_cast<size_t>(comm_.world()));
  comm_.all_gather(values.data(), static_cast<int64_t>(values.size_bytes()), sums_.data());
  for (size_t k = 0; k < values.size(); ++k)
    values[k] = tree_of(sums_, std::ssize(values), static_cast<int64_t>(k));
}

}  // namespace mudd
