#include "mudd/ops/embedding/embedding.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/graph/table_sink.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/kernels/table_gradient/table_gradient.h"

namespace mudd {

std::span<const KernelRow<EmbeddingKernels>> embedding_rows() {
  static const KernelRow<EmbeddingKernels> rows[] = {MUDD_KERNEL_ROWS(embedding_f32)};
  return rows;
}

namespace {

enum Input { kIds, kTable, kResidual };
constexpr int64_t kRowsPerTask = 64;

class Embedding : public Node {
 public:
  explicit Embedding(const Attributes& a)
      : positions_(a.flag("positions")),
        sinusoids_(a.integer("sinusoids")),
        scale_(static_cast<float>(a.number("scale"))) {}

  const char* op() const override { return "embedding"; }
  bool weight_like(int i) const override { return i == kTable; }
  bool reads_stored(int i) const override { return i == kTable; }
  int64_t gradient_rows(int i) const override { return i == kTable ? gradient_rows_ : 0; }
  bool keeps_f32(int) const override { return true; }  // the residual stream starts here
  bool backward_reads_input(int i) const override { return i == kIds && !positions_; }
  int passes_gradient() const override { return has_residual_ ? kResidual : -1; }
  int in_place_input() const override { return has_residual_ ? kResidual : -1; }

  void infer(Inference& io) override {
    check(io.has_input(kTable) != (sinusoids_ > 0), "embedding", "table: expected f32[V, D]",
          sinusoids_ > 0 ? " only without sinusoids" : ", got nothing");
    if (sinusoids_ > 0) fill_sinusoids(io);
    const TensorSpec computed{{table_.rows, table_.cols}, DType::f32};
    const TensorSpec& table = sinusoids_ > 0 ? computed : io.input(kTable);
    check(table.dtype == DType::f32 && table.shape.size() == 2 && table.size() > 0, "embedding",
          "table: expected f32[V, D], got ", table.text());
    has_residual_ = io.has_input(kResidual);
    TensorSpec y{{}, DType::f32};
    if (positions_) {
      check(!io.has_input(kIds), "embedding", "ids: expected none with positions=true");
      check(has_residual_ && io.input(kResidual).shape.size() >= 2, "embedding",
            "residual: expected f32[B, T, D], which positions=true takes its shape from");
      y.shape = io.input(kResidual).shape;
      positions_per_sample_ = y.shape[y.shape.size() - 2];
    } else {
      check(io.has_input(kIds) && io.input(kIds).dtype == DType::i32, "embedding", "ids: expected i32[B, T], got ",
            io.has_input(kIds) ? io.input(kIds).text() : "nothing");
      y.shape = io.input(kIds).shape;
      y.shape.push_back(table.cols());
    }
    if (has_residual_) {
      TensorSpec wanted = y;
      wanted.shape.back() = table.cols();
      check(io.input(kResidual).shape == wanted.shape && io.input(kResidual).dtype == DType::f32, "embedding",
            "residual: expected ", wanted.text(), ", got ", io.input(kResidual).text());
    }
    check(y.rows() <= std::numeric_limits<int32_t>::max(), "embedding", "ids: expected fewer than 2^31 rows, got ",
          y.rows());
    io.output(y);
    io.scratch_forward(y.rows() * static_cast<int64_t>(sizeof(int32_t)));
    gradient_rows_ = std::min(table.rows(), positions_ ? positions_per_sample_ : y.rows());
    if (io.wants_gradient(kTable)) io.scratch_backward(TableSink::bytes(y.rows(), io.shards().count()));
    kernels_ = &choose(embedding_rows());
  }

  void forward(const Run& run) override {
    const Tensor &table = table_of(run), &y = run.out(0);
    int32_t* ids = run.scratch_as<int32_t>();
    collect_ids(run, y.rows, ids);
    const float* residual = has_residual_ ? run.in(kResidual).f32() : nullptr;
    const int64_t residual_stride = has_residual_ ? run.in(kResidual).stride : 0;
    parallel_for((y.rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
      const int64_t begin = task * kRowsPerTask, end = std::min(begin + kRowsPerTask, y.rows);
      if (table.dtype == DType::f32)
        kernels_->fwd(begin, end, y.cols, ids, table.f32(), table.stride, scale_, residual, residual_stride,
                      y.f32(), y.stride);
      else
        for (int64_t r = begin; r < end; ++r) forward_row(table, ids[r], run, r);
    });
  }

  void backward(const Run& run) override {
    if (!run.wants(kTable)) return;
    const Tensor& dy = run.dout(0);
    const int64_t rows = dy ? dy.rows : 0;
    TableSink sink(run.scratch(), rows, run.shards().count());
    collect_ids(run, rows, sink.ids());
    sink.write(dy, table_of(run).rows, table_of(run).cols, scale_, run.shards(), run.sink(kTable));
  }

 private:
  // Compute row r of the output from a 16-bit table, converted to fp32.
  void forward_row(const Tensor& table, int64_t id, const Run& run, int64_t r) const {
    constexpr int32_t kFirst = 0;
    const WorkerFloats row(table.cols);
    copy_wide(table.cols, table.cells() + id * table.stride, row.data());
    const Tensor &y = run.out(0), &x = run.in(kResidual);
    kernels_->fwd(0, 1, y.cols, &kFirst, row.data(), 0, scale_, has_residual_ ? x.f32() + r * x.stride : nullptr,
                  0, y.f32() + r * y.stride, 0);
  }

  const Tensor& table_of(const Run& run) const { return sinusoids_ > 0 ? table_ : run.in(kTable); }

  // Row p is sin(p w_0), sin(p w_1), ..., cos(p w_0), ...: w from 1 down to 1/10000 in equal ratios.
  void fill_sinusoids(const Inference& io) {
    check(io.has_input(kResidual) && io.input(kResidual).cols() % 2 == 0 && io.input(kResidual).cols() > 0,
          "embedding", "residual: expected an even width with sinusoids, got ", io.input(kResidual).text());
    const int64_t half = io.input(kResidual).cols() / 2;
    sines_.resize(static_cast<size_t>(sinusoids_ * 2 * half));
    for (int64_t i = 0; i < half; ++i) {
      const double w = math::exp(-math::log(10000.0) * static_cast<double>(i) / std::max<double>(1, half - 1.0));
      for (int64_t p = 0; p < sinusoids_; ++p) {
        float* row = sines_.data() + p * 2 * half;
        row[i] = static_cast<float>(math::sin(static_cast<double>(p) * w));
        row[half + i] = static_cast<float>(math::cos(static_cast<double>(p) * w));
      }
    }
    table_ = {sines_.data(), sinusoids_, 2 * half, 2 * half};
  }

  // Copy the ids of all rows to `ids` and check each.
  void collect_ids(const Run& run, int64_t rows, int32_t* ids) const {
    const int64_t vocabulary = table_of(run).rows;
    if (positions_) {
      const int64_t first = run.step().cache_length, last = first + std::min(rows, positions_per_sample_) - 1;
      check(last < vocabulary, "embedding", "positions: expected at most ", vocabulary,
            " (rows of the table), got ", last + 1);
      for (int64_t r = 0; r < rows; ++r) ids[r] = static_cast<int32_t>(first + r % positions_per_sample_);
      return;
    }
    const Tensor& in = run.in(kIds);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t sample = r / in.cols, t = r % in.cols;
      const int32_t id = in.i32()[sample * in.stride + t];
      if (id < 0 || id >= vocabulary)
        fail("embedding", "ids: expected values in [0, ", vocabulary, "), got ", id, " at [", sample, ", ", t,
             "]");
      ids[r] = id;
    }
  }

  bool positions_, has_residual_ = false;
  int64_t sinusoids_;  // rows of a table that is computed instead of given
  float scale_;
  std::vector<float> sines_;
  Tensor table_;
  int64_t positions_per_sample_ = 1;
  int64_t gradient_rows_ = 0;
  const EmbeddingKernels* kernels_ = nullptr;
};

}  // namespace

const OpSpec& embedding_op() {
  static const OpSpec spec{
      .name = "embedding",
      .help = R"(y = scale table[ids] (+ residual). ids int32 [B, T], table [V, D].

positions: use the position t as the row of a token. sinusoids: row p is sin(p w), then cos(p w), with w from 1 down
to 1/10000 in equal ratios (Vaswani et al. 2017) and the width of the residual.)",
      .inputs = {{"ids", OpInput::kOptional | OpInput::kIndex},
                 {"table", OpInput::kOptional},
                 {"residual", OpInput::kOptional}},
      .outputs = {{"y"}},
      .options = {option::flag("positions", false, "without ids: the row of a token is its position"),
                  option::integer("sinusoids", 0, from_to(0, (1 << 24) - 1),
                                  "number of rows of sines and cosines, which replace the table"),
                  option::number("scale", 1, {}, "factor of the rows of the table")},
      .make = make<Embedding>,
      .kernels = [] { return std::vector{chosen(embedding_rows()), chosen(table_gradient_rows())}; },
  };
  return spec;
}

}  // namespace mudd
