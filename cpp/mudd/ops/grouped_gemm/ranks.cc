// Forward and backward of grouped_gemm over the ranks that share the experts: rows of slots are sent to the
// owners of their experts, and results are sent back, where a token adds its results in slot order.
#include <cstring>

#include "mudd/base/check.h"
#include "mudd/base/row_tasks.h"
#include "mudd/ops/grouped_gemm/node.h"

namespace mudd {

const dist::ExpertGroup& GroupedGemm::group_of_ranks(const Run& run) const {
  if (!run.experts() || run.experts()->ranks() != ranks_)
    throw StateError("[grouped_gemm] experts: this graph was made for " + std::to_string(ranks_) +
                     " ranks that hold the experts");
  return *run.experts();
}

// Set to[i] to the row of `from` of slot i, contiguous.
void GroupedGemm::gather_rows(const Tensor& from, const ExpertSlots& slots, std::byte* to) {
  const int64_t bytes = from.cols * size_of(from.dtype), stride = from.stride * size_of(from.dtype);
  const auto* rows = static_cast<const std::byte*>(from.data);
  parallel_rows(slots.rows(), from.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to + i * bytes, rows + slots.token[i] * stride, static_cast<size_t>(bytes));
  });
}

void GroupedGemm::forward_over_ranks(const Run& run, const ExpertSlots& slots) {
  const dist::ExpertGroup& ranks = group_of_ranks(run);
  const ExpertSlots own = own_slots_of(run);
  std::byte* home = run.scratch() + home_at_;
  const auto bytes_of = [](float* numbers) { return reinterpret_cast<std::byte*>(numbers); };
  exchange_.begin(ranks, slots, own, ranks.rows_allowed(likely_rows(), most_));
  gather_rows(run.in(kX), slots, home);
  exchange_.dispatch(ranks, slots, own,
                     {{home, run.saved(own_saved_ + 1), d_ * size_of(x_type_)},
                      {bytes_of(slots.gate), bytes_of(own.gate), kFloat}});
  pack_adapters(run, own, Pack::plain);
  for_each_group([&](Group group) { forward_of(run, own, {received(run)}, group); });
  exchange_.collect(ranks, slots, own, {{home, run.scratch() + rows_at_, d_ * kFloat}});
  finish_forward(run, slots, at(run, home_at_));
}

void GroupedGemm::backward_over_ranks(const Run& run, const ExpertSlots& slots) {
  const dist::ExpertGroup& ranks = group_of_ranks(run);
  const ExpertSlots own = own_slots_of(run);
  const DType type = run.dout(0).dtype;
  std::byte* home = run.scratch() + home_at_;
  gather_rows(run.dout(0), slots, home);
  exchange_.dispatch(ranks, slots, own, {{home, run.scratch() + dy_at_, d_ * size_of(type)}});
  const SlotTensor dy{{run.scratch() + dy_at_, most_, d_, d_, type}};
  pack_adapters(run, own, Pack::transposed);
  for_each_group([&](Group group) { backward_of(run, own, dy, group); });
  const SlotExchange::Rows dx{home, run.scratch() + rows_at_, d_ * kFloat};
  const SlotExchange::Rows dgate{run.scratch() + home_dgate_at_, run.scratch() + dgate_at_, kFloat};
  if (run.wants(kX)) exchange_.collect(ranks, slots, own, {dx, dgate});
  else exchange_.collect(ranks, slots, own, {dgate});
  finish_backward(run, slots, at(run, home_at_), at(run, home_dgate_at_));
  weight_gradients_of(run, own, {received(run)}, dy);
}

}  // namespace mudd
