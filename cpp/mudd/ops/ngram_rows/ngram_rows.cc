#include "mudd/ops/ngram_rows/ngram_rows.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/graph/table_sink.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/table_gradient/table_gradient.h"
#include "mudd/ops/ngram_rows/hash.h"

namespace mudd {

std::span<const KernelRow<NgramRowsKernels>> ngram_rows_rows() {
  static const KernelRow<NgramRowsKernels> rows[] = {MUDD_KERNEL_ROWS(ngram_rows_f32)};
  return rows;
}

namespace {

enum Input { kIds, kTable, kSegments, kCache };
constexpr int64_t kRowsPerTask = 64;
constexpr int64_t kCachedBelow = 1 << 24;  // fp32 holds all integers below it

// Return the orders of "2,3".
std::vector<int64_t> orders_of(const std::string& text) {
  std::vector<int64_t> orders;
  bool is_list = text.size() % 2 == 1;
  for (size_t i = 0; i < text.size(); ++i) {
    const int64_t order = text[i] - '0';
    const bool is_new = std::find(orders.begin(), orders.end(), order) == orders.end();
    is_list &= i % 2 == 1 ? text[i] == ',' : order >= 1 && order <= kMostNgramOrder && is_new;
    if (i % 2 == 0) orders.push_back(order);
  }
  check(is_list, "ngram_rows", "orders: expected different numbers from 1 to 3 such as 2,3, got '", text, "'");
  return orders;
}

class NgramRows : public Node {
 public:
  explicit NgramRows(const Attributes& a)
      : orders_(orders_of(a.word("orders"))), seed_(a.integer("seed")), end_(a.integer("end")) {}

  const char* op() const override { return "ngram_rows"; }
  bool weight_like(int i) const override { return i == kTable; }
  bool reads_stored(int i) const override { return i == kTable; }
  bool writes_input(int i) const override { return i == kCache; }
  int64_t gradient_rows(int i) const override { return i == kTable ? gradient_rows_ : 0; }
  bool backward_reads_input(int i) const override { return i == kIds || i == kSegments; }

  void infer(Inference& io) override {
    const TensorSpec &ids = io.input(kIds), &table = io.input(kTable);
    check(ids.dtype == DType::i32 && ids.shape.size() == 2, "ngram_rows", "ids: expected int32[B, T], got ",
          ids.text());
    check(table.dtype == DType::f32 && table.shape.size() == 2 && table.size() > 0 &&
              table.rows() <= std::numeric_limits<int32_t>::max(),
          "ngram_rows", "table: expected float32[R, D] with R < 2^31, got ", table.text());
    if (io.has_input(kSegments))
      check(io.input(kSegments).dtype == DType::i32 && io.input(kSegments).shape == ids.shape, "ngram_rows",
            "segments: expected int32[", ids.shape[0], ", ", ids.shape[1], "], got ", io.input(kSegments).text());
    check_cache(io);
    const int64_t look_ups = ids.size() * per_row();
    check(look_ups <= std::numeric_limits<int32_t>::max(), "ngram_rows",
          "ids: expected fewer than 2^31 n-grams, got ", look_ups);
    io.output({{ids.shape[0], ids.shape[1], table.cols()}, DType::f32});
    io.scratch_forward(TableSink::bytes(look_ups, io.shards().count(), per_row(), true));
    if (io.wants_gradient(kTable))
      io.scratch_backward(TableSink::bytes(look_ups, io.shards().count(), per_row(), true));
    gradient_rows_ = std::min(table.rows(), look_ups);
    kernels_ = &choose(ngram_rows_rows());
  }

  void forward(const Run& run) override {
    const Tensor &table = run.in(kTable), &y = run.out(0);
    const TableSink look_ups(run.scratch(), y.rows * per_row(), run.shards().count(), per_row(), true);
    look_up(run, look_ups);
    if (run.has_in(kCache)) extend_cache(run);
    parallel_for((y.rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
      const int64_t begin = task * kRowsPerTask, end = std::min(begin + kRowsPerTask, y.rows);
      if (table.dtype == DType::f32)
        kernels_->fwd(begin, end, y.cols, per_row(), look_ups.ids(), look_ups.signs(), table.f32(), table.stride,
                      y.f32(), y.stride);
      else
        for (int64_t r = begin; r < end; ++r) forward_row(table, look_ups, y, r);
    });
  }

  void backward(const Run& run) override {
    if (!run.wants(kTable)) return;
    const Tensor &dy = run.dout(0), &table = run.in(kTable);
    TableSink sink(run.scratch(), dy ? dy.rows * per_row() : 0, run.shards().count(), per_row(), true);
    if (dy) look_up(run, sink);
    sink.write(dy, table.rows, table.cols, 1, run.shards(), run.sink(kTable));
  }

 private:
  int64_t per_row() const { return std::ssize(orders_); }

  void check_cache(const Inference& io) {
    if (!io.has_input(kCache)) return;
    const TensorSpec &cache = io.input(kCache), &ids = io.input(kIds);
    check(!io.has_input(kSegments), "ngram_rows", "segments: not together with cache");
    check(!io.wants_gradient(kTable), "ngram_rows", "cache: there is no backward through a cache");
    check(cache.dtype == DType::f32 && cache.shape.size() == 4 && cache.shape[0] == ids.shape[0] &&
              cache.shape[1] == 1 && cache.shape[2] >= ids.shape[1] && cache.shape[3] == 1,
          "ngram_rows", "cache: expected float32[", ids.shape[0], ", 1, Tmax, 1] with Tmax >= ", ids.shape[1],
          ", got ", cache.text());
    cache_rows_ = cache.shape[2];
  }

  NgramTokens tokens_of(const Run& run, int64_t b) const {
    NgramTokens found{.ids = run.in(kIds).i32() + b * run.in(kIds).stride, .end = end_};
    if (run.has_in(kSegments)) found.segments = run.in(kSegments).i32() + b * run.in(kSegments).stride;
    if (run.has_in(kCache)) {
      found.cached = run.step().cache_length;
      found.cache_rows = cache_rows_;
      found.cache = run.in(kCache).f32() + b * found.cache_rows;
    }
    return found;
  }

  void check_ids(const Run& run) const {
    const Tensor& ids = run.in(kIds);
    const int64_t below = run.has_in(kCache) ? kCachedBelow : int64_t{1} << 31;
    for (int64_t b = 0; b < ids.rows; ++b)
      for (int64_t t = 0; t < ids.cols; ++t)
        if (const int32_t id = ids.i32()[b * ids.stride + t]; id < 0 || id >= below)
          fail("ngram_rows", "ids: expected values in [0, ", below, "), got ", id, " at [", b, ", ", t, "]");
  }

  // Check the length of the cache, and its ids that belong to n-grams of this call.
  void check_cached(const Run& run) const {
    const int64_t length = run.step().cache_length;
    check(run.has_in(kCache) || length == 0, "ngram_rows", "cache: expected one for tokens after ", length,
          " tokens of a KV cache");
    if (!run.has_in(kCache)) return;
    const int64_t rows = cache_rows_, time = run.in(kIds).cols;
    check(length >= 0 && (length + time <= rows || time == 1), "ngram_rows", "cache_length: expected at most ",
          rows - time, " (Tmax - T), got ", length);
    const int64_t before = *std::max_element(orders_.begin(), orders_.end()) - 1;
    check(length <= rows || before <= rows, "ngram_rows", "cache: expected Tmax >= ", before,
          " after Tmax tokens, got ", rows);
    for (int64_t b = 0; b < run.in(kIds).rows; ++b)
      for (int64_t p = std::max<int64_t>(0, length - std::min(kMostNgramOrder - 1, rows)); p < length; ++p) {
        const float id = run.in(kCache).f32()[b * rows + p % rows];
        check(id >= 0 && id < static_cast<float>(kCachedBelow), "ngram_rows", "cache: expected ids in [0, ",
              kCachedBelow, "), got ", id, " for token ", p, " of sample ", b);
      }
  }

  // Write the ids and signs of all n-grams.
  void look_up(const Run& run, const TableSink& to) const {
    const Tensor& ids = run.in(kIds);
    check_ids(run);
    check_cached(run);
    const int64_t tasks = (ids.cols + kRowsPerTask - 1) / kRowsPerTask, n = run.in(kTable).rows;
    parallel_for(ids.rows * tasks, [&](int64_t task, int) {
      const int64_t b = task / tasks, first = task % tasks * kRowsPerTask;
      const NgramTokens tokens = tokens_of(run, b);
      for (int64_t t = first; t < std::min(first + kRowsPerTask, ids.cols); ++t) {
        const int64_t at = (b * ids.cols + t) * per_row();
        hash_ngrams(tokens, t, orders_, seed_, n, to.ids() + at, to.signs() + at);
      }
    });
  }

  void extend_cache(const Run& run) const {
    const Tensor& ids = run.in(kIds);
    const int64_t length = run.step().cache_length, rows = cache_rows_;
    for (int64_t b = 0; b < ids.rows; ++b)
      for (int64_t t = 0; t < ids.cols; ++t)
        run.in(kCache).f32()[b * rows + (length + t) % rows] = static_cast<float>(ids.i32()[b * ids.stride + t]);
  }

  // Compute row r of the output from a 16-bit table, converted to fp32.
  void forward_row(const Tensor& table, const TableSink& look_ups, const Tensor& y, int64_t r) const {
    const int32_t places[kMostNgramOrder] = {0, 1, 2};
    const WorkerFloats rows(per_row() * table.cols);
    for (int64_t o = 0; o < per_row(); ++o)
      copy_wide(table.cols, table.cells() + look_ups.ids()[r * per_row() + o] * table.stride,
                rows.data() + o * table.cols);
    kernels_->fwd(0, 1, y.cols, per_row(), places, look_ups.signs() + r * per_row(), rows.data(), table.cols,
                  y.f32() + r * y.stride, 0);
  }

  std::vector<int64_t> orders_;
  int64_t seed_, end_, gradient_rows_ = 0;
  int64_t cache_rows_ = 0;  // Tmax
  const NgramRowsKernels* kernels_ = nullptr;
};

}  // namespace

const OpSpec& ngram_rows_op() {
  static const OpSpec spec{
      .name = "ngram_rows",
      .help = R"(y = sum over orders of sign * table[row]: a row for each n-gram that ends at a token.

ids int32 [B, T], table [R, D], y [B, T, D]. Tokens before the sequence, of another segment (segments int32 [B, T]), or
of a document that ended with the token `end` count as absent. Let x_k be the token at t - k plus 1, or 0 if it is
absent. In integers modulo 2^64, h = mix(4 seed + order); h = mix(h + x_k) for k = order - 1, ..., 0. The row is
(h >> 32) R >> 32, and the sign is 1 for an even h, else -1. mix is the finalizer of SplitMix64 (Steele et al. 2014).
Signs let the rows of colliding n-grams cancel on average (Weinberger et al. 2009). cache [B, 1, Tmax, 1]: the ids so
far, for decoding; scopes.cached(length) sets their number.)",
      .inputs = {{"ids", OpInput::kIndex},
                 {"table"},
                 {"segments", OpInput::kOptional | OpInput::kIndex},
                 {"cache", OpInput::kOptional | OpInput::kState}},
      .outputs = {{"y"}},
      .options = {option::word("orders", "2,3", {}, "numbers of tokens of the n-grams: of 1, 2 and 3"),
                  option::integer("seed", 0, from_to(0, std::numeric_limits<int32_t>::max()), "seed of the hash"),
                  option::integer("end", -1, from_to(-1, std::numeric_limits<int32_t>::max()),
                                  "token that ends a document; -1: none")},
      .make = make<NgramRows>,
      .kernels = [] { return std::vector{chosen(ngram_rows_rows()), chosen(table_gradient_rows())}; },
  };
  return spec;
}

}  // namespace mudd
