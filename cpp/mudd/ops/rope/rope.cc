#include "mudd/ops/rope/rope.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_sums.h"
#include "mudd/kernels/convert/wide_rows.h"
#include "mudd/ops/rope/heads.h"

namespace mudd {

std::span<const KernelRow<RopeKernels>> rope_rows() {
  static const KernelRow<RopeKernels> rows[] = {MUDD_KERNEL_ROWS(rope_f32)};
  return rows;
}

namespace {

// theta by the scaling.
double scaled(double theta, const RopeFrequencies& f) {
  if (f.scaling == RopeScaling::none) return theta;
  if (f.scaling == RopeScaling::linear) return theta / f.factor;
  constexpr double kTurn = 6.283185307179586476925286766559;
  const double turns =
      static_cast<double>(f.original) * theta / kTurn;  // within the positions of the first training
  if (turns > f.high_freq) return theta;
  if (turns < f.low_freq) return theta / f.factor;
  const double kept = (turns - f.low_freq) / (f.high_freq - f.low_freq);
  return (1 - kept) * theta / f.factor + kept * theta;
}

}  // namespace

void rope_table(int64_t positions, int64_t pairs, const RopeFrequencies& f, float* table) {
  for (int64_t i = 0; i < pairs; ++i) {
    const double theta = scaled(math::pow(f.base, -static_cast<double>(i) / static_cast<double>(pairs)), f);
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * theta;
      table[p * 2 * pairs + i] = static_cast<float>(math::cos(angle));
      table[p * 2 * pairs + pairs + i] = static_cast<float>(math::sin(angle));
    }
  }
}

namespace {

enum Input { kX, kPositions };
constexpr int64_t kMostPositions = 1ll << 24;  // a table of more would not fit into memory
using Table = std::shared_ptr<const std::vector<float>>;

// Return a table that all nodes with the same arguments share (every layer's q and k).
Table shared_table(int64_t positions, int64_t pairs, const RopeFrequencies& f) {
  static std::mutex mutex;
  static std::map<std::tuple<int64_t, int64_t, RopeFrequencies>, std::weak_ptr<const std::vector<float>>> known;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& slot = known[{positions, pairs, f}];
  Table table = slot.lock();
  if (table) return table;
  std::vector<float> fresh(static_cast<size_t>(positions * 2 * pairs));
  rope_table(positions, pairs, f, fresh.data());
  table = std::make_shared<const std::vector<float>>(std::move(fresh));
  slot = table;
  return table;
}

class Rope : public Node {
 public:
  explicit Rope(const Attributes& a)
      : heads_(a.integer("n_head")),
        frequencies_{.base = a.number("base"),
                     .scaling = a.choice<RopeScaling>("scaling"),
                     .factor = a.number("factor"),
                     .low_freq = a.number("low_freq"),
                     .high_freq = a.number("high_freq"),
                     .original = a.integer("original")},
        fraction_(a.number("fraction")),
        max_positions_(a.integer("max_positions")) {}

  const char* op() const override { return "rope"; }
  bool backward_reads_input(int i) const override { return i == kPositions; }
  bool native_bf16() const override { return true; }
  int in_place_input() const override { return kX; }
  int gradient_in_place_input() const override { return kX; }

  void infer(Inference& io) override {
    const TensorSpec& x = io.input(kX);
    check(frequencies_.scaling != RopeScaling::llama3 || frequencies_.low_freq < frequencies_.high_freq, "rope",
          "high_freq: expected more than low_freq, ", frequencies_.low_freq, ", got ", frequencies_.high_freq);
    shape_ = head_shape("rope", "x", x, heads_);
    pairs_ = static_cast<int64_t>(fraction_ * static_cast<double>(shape_.dim) + 1e-9) / 2;
    check(static_cast<double>(2 * pairs_) > fraction_ * static_cast<double>(shape_.dim) - 1e-6, "rope",
          "fraction: expected an even number of rotated dims, got ", fraction_, " of ", shape_.dim);
    if (io.has_input(kPositions)) {
      const TensorSpec& p = io.input(kPositions);
      check(p.dtype == DType::i32 && p.shape == std::vector<int64_t>{shape_.batch, shape_.time}, "rope",
            "positions: expected i32[", shape_.batch, ", ", shape_.time, "], got ", p.text());
    }
    known_ = max_positions_ ? max_positions_ : shape_.time;
    table_ = shared_table(known_, pairs_, frequencies_);
    io.output(x);
    kernels_ = &choose(rope_rows());
  }

  void forward(const Run& run) override { rotate(run, run.in(kX), run.out(0), false, false); }

  void backward(const Run& run) override {
    if (run.wants(kX)) rotate(run, run.dout(0), run.din(kX), true, run.accumulate(kX));
  }

 private:
  void rotate(const Run& run, const Tensor& x, const Tensor& y, bool negative, bool accumulate) const {
    RopeBlock whole;
    whole.time = shape_.time;
    whole.heads = shape_.heads;
    whole.dim = shape_.dim;
    whole.pairs = pairs_;
    whole.table = table_->data();
    whole.negative = negative;
    whole.accumulate = accumulate;
    const int64_t rows = shape_.rows();
    if (run.has_in(kPositions)) {
      whole.positions = run.in(kPositions).i32();
      for (int64_t r = 0; r < rows; ++r)
        check(whole.positions[r] >= 0 && whole.positions[r] < known_, "rope", "positions: expected 0 to ",
              known_ - 1, " (option max_positions), got ", whole.positions[r], " in row ", r);
    } else {
      whole.first_position = run.step().cache_length;
      check(whole.first_position + shape_.time <= known_, "rope", "max_positions: expected at least ",
            whole.first_position + shape_.time, ", got ", known_);
    }
    parallel_for((rows + kRowBlock - 1) / kRowBlock, [&](int64_t task, int) {
      RopeBlock block = whole;
      block.begin = task * kRowBlock;
      block.end = std::min(block.begin + kRowBlock, rows);
      const WideRows from(rows_of(x), block.begin, block.end);
      const NarrowRows to(rows_of(y), block.begin, block.end);
      block.x = from.base();
      block.x_row = shape_.row_stride(x);
      block.x_head = shape_.head_stride(x);
      block.y = to.base();
      block.y_row = shape_.row_stride(y);
      block.y_head = shape_.head_stride(y);
      kernels_->rotate(block);
    });
  }

  // bf16 values are contiguous: a row contains all heads of a token.
  Tensor rows_of(const Tensor& t) const {
    const int64_t width = shape_.heads * shape_.dim;
    return t.dtype == DType::bf16 ? Tensor{t.data, shape_.rows(), width, width, t.dtype} : t;
  }

  int64_t heads_;
  RopeFrequencies frequencies_;
  double fraction_;
  int64_t max_positions_;
  int64_t pairs_ = 0, known_ = 0;  // known_: positions in the table
  HeadShape shape_;
  Table table_;
  const RopeKernels* kernels_ = nullptr;
};

}  // namespace

const OpSpec& rope_op() {
  static const OpSpec spec{
      .name = "rope",
      .help = R"(Rotary positions in the half layout (Su et al. 2021).

x [B, T, H*hd], positions int32 [B, T] or 0..T-1.)",
      .inputs = {{"x"}, {"positions", OpInput::kOptional | OpInput::kIndex}},
      .outputs = {{"y"}},
      .options =
          {option::integer("n_head", 0, at_least(0), "heads of x; 0: the third of its four axes"),
           option::number("base", 10000, above(0), "wavelength of the slowest pair"),
           option::word(
               "scaling", "none", {"none", "linear", "llama3"},
               "scaling of the frequencies: none, linear (all divided by factor), llama3 (only the slow ones)"),
           option::number("factor", 1, above(0), "divisor of scaled frequencies"),
           option::number("low_freq", 1, above(0),
                          "llama3: turns within original, below which a frequency is divided by factor"),
           option::number("high_freq", 4, above(0),
                          "llama3: turns within original, above which a frequency is kept"),
           option::integer("original", 8192, at_least(1), "llama3: sequence length of pretraining"),
           option::number("fraction", 1, from_to(0, 1), "fraction of each head that is rotated"),
           option::integer("max_positions", 0, from_to(0, kMostPositions), "largest position + 1; 0: T")},
      .make = make<Rope>,
      .kernels = [] { return std::vector{chosen(rope_rows())}; },
  };
  return spec;
}

}  // namespace mudd
