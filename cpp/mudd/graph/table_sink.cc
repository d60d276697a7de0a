#include "mudd/graph/table_sink.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "mudd/base/arena.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/table_gradient/table_gradient.h"

namespace mudd {
namespace {

constexpr int64_t kTasks = 256;  // the rows of the gradient are split into about this many blocks
constexpr int kDigitBits = 11;
constexpr int64_t kDigits = 1 << kDigitBits;
static_assert(kMaxTableAdds == kMaxGradAdds);

const TableGradientKernels& kernels() {
  static const TableGradientKernels& best = choose(table_gradient_rows());
  return best;
}

// Insert every id that occurs, here or in an add, into the sink; an add that is the output keeps its rows.
void insert_rows(std::span<const int32_t> found, const GradSink& sink) {
  RowGradient& out = *sink.out_rows;
  const auto adds = std::span(sink.add_rows).first(static_cast<size_t>(sink.n_add));
  if (std::find(adds.begin(), adds.end(), &out) == adds.end()) out.clear();
  const auto insert = [&](std::span<const int32_t> ids) {
    for (const int32_t id : ids)
      check(out.insert(id), "table_gradient", "rows: expected at most ", out.capacity, ", got more");
  };
  insert(found);
  for (const RowGradient* add : adds)
    if (add != &out) insert({add->ids, static_cast<size_t>(add->count)});
}

// The adds of a sink with a row list, as arrays.
struct Adds {
  std::array<const float*, kMaxGradAdds> values{};
  std::array<const int32_t*, kMaxGradAdds> place{};
  std::array<int64_t, kMaxGradAdds> count{};

  explicit Adds(const GradSink& sink) {
    for (int i = 0; sink.out_rows && i < sink.n_add; ++i) {
      values[i] = sink.add_rows[i]->values;
      place[i] = sink.add_rows[i]->place;
      count[i] = sink.add_rows[i]->count;
    }
  }
};

void run_kernel(const TableGradient& g, int64_t rows) {
  const int64_t rows_per_task = std::max<int64_t>(1, (rows + kTasks - 1) / kTasks);
  const int64_t row_tasks = (rows + rows_per_task - 1) / rows_per_task;
  const int64_t column_tasks = (g.width + kTableColumns - 1) / kTableColumns;
  parallel_for(row_tasks * column_tasks, [&](int64_t task, int) {
    const int64_t first = task / column_tasks * rows_per_task;
    kernels().write(g, first, std::min(first + rows_per_task, rows), task % column_tasks * kTableColumns);
  });
}

}  // namespace

TableSink::TableSink(std::byte* scratch, int64_t look_ups, int shards, int64_t per_row, bool is_signed)
    : look_ups_(look_ups), per_row_(per_row) {
  Pieces pieces(scratch);
  cuts_ = pieces.take<int64_t>(shards + 1);
  ids_ = pieces.take<int32_t>(look_ups);
  order_ = pieces.take<int32_t>(look_ups);
  spare_ = pieces.take<int32_t>(look_ups);
  found_ = pieces.take<int32_t>(look_ups);
  begin_ = pieces.take<int32_t>(look_ups + 1);
  ends_ = pieces.take<int32_t>(kDigits);
  if (is_signed) {
    signs_ = pieces.take<float>(look_ups);
    sorted_signs_ = pieces.take<float>(look_ups);
  }
  bytes_ = pieces.used();
}

// Sort the look-ups in order_ by one digit of their ids to spare_; look-ups with an equal digit keep their order.
void TableSink::sort_by_digit(int shift) {
  const auto digit = [&](int32_t at) { return ids_[at] >> shift & (kDigits - 1); };
  std::fill_n(ends_, kDigits, 0);
  for (int64_t i = 0; i < look_ups_; ++i) ++ends_[digit(order_[i])];
  std::exclusive_scan(ends_, ends_ + kDigits, ends_, 0);
  for (int64_t i = 0; i < look_ups_; ++i) spare_[ends_[digit(order_[i])]++] = order_[i];
}

// Sort the look-ups by (id, look-up) into order_; fill found_ and begin_ (TableGradient), and return their number.
int64_t TableSink::sort(int64_t table_rows) {
  std::iota(order_, order_ + look_ups_, 0);
  for (int shift = 0; (table_rows - 1) >> shift > 0; shift += kDigitBits) {
    sort_by_digit(shift);
    std::swap(order_, spare_);
  }
  int64_t count = 0;
  for (int64_t i = 0; i < look_ups_; ++i) {
    const int32_t id = ids_[order_[i]];
    if (count > 0 && found_[count - 1] == id) continue;
    found_[count] = id;
    begin_[count++] = static_cast<int32_t>(i);
  }
  begin_[count] = static_cast<int32_t>(look_ups_);
  return count;
}

// Replace each look-up in order_ by its row of dy.
void TableSink::refer_to_rows() {
  for (int64_t i = 0; signs_ && i < look_ups_; ++i) sorted_signs_[i] = signs_[order_[i]];
  for (int64_t i = 0; per_row_ > 1 && i < look_ups_; ++i) order_[i] /= static_cast<int32_t>(per_row_);
}

void TableSink::write(const Tensor& dy, int64_t table_rows, int64_t width, float scale, const Shards& shards,
                      const GradSink& sink) {
  for (int i = 0; i <= shards.count(); ++i) cuts_[i] = shards.row_begin(i, look_ups_ / per_row_);
  const int64_t n_found = sort(table_rows);
  refer_to_rows();
  const Adds adds(sink);
  TableGradient g{.dy = dy.f32(),
                  .dy_stride = dy.stride,
                  .order = order_,
                  .signs = sorted_signs_,
                  .found = found_,
                  .begin = begin_,
                  .n_found = n_found,
                  .cuts = cuts_,
                  .shards = shards.count(),
                  .width = width,
                  .out = sink.out,
                  .add = sink.add.data(),
                  .n_add = sink.n_add,
                  .scale = scale};
  if (sink.out_rows) {
    insert_rows(std::span(found_, static_cast<size_t>(n_found)), sink);
    g.out = sink.out_rows->values;
    g.out_ids = sink.out_rows->ids;
    g.add = adds.values.data();
    g.add_place = adds.place.data();
    g.add_count = adds.count.data();
  }
  run_kernel(g, sink.out_rows ? sink.out_rows->count : table_rows);
}

}  // namespace mudd
