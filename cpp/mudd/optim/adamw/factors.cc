#include "mudd/optim/adamw/factors.h"

#include <algorithm>

#include "mudd/base/arena.h"
#include "mudd/optim/update.h"

namespace mudd {
namespace {

constexpr int64_t kBlockRows = 64;     // rows whose columns are summed in fp32
constexpr int64_t kPieceCols = 4096;   // columns of a row that are summed in fp32
constexpr int64_t kColumnTask = 1024;  // columns of a task

int64_t row_blocks(const UpdateParameter& p) { return p.row_moment ? (p.rows + kBlockRows - 1) / kBlockRows : 0; }

// Return beta2 moment + (1 - beta2) mean.
float next_moment(float moment, double beta2, double mean) {
  return static_cast<float>(beta2 * moment + (1 - beta2) * mean);
}

// Update the rows of a block, and write the sums of its columns.
void update_rows(const UpdateParameter& p, const UpdateKernels& kernels, double beta2, float grad_scale,
                 int64_t block) {
  float* columns = p.column_sums + block * p.cols;
  std::fill_n(columns, p.cols, 0.0f);
  const int64_t end = std::min((block + 1) * kBlockRows, p.rows);
  for (int64_t row = block * kBlockRows; row < end; ++row) {
    double sum = 0;
    for (int64_t column = 0; column < p.cols; column += kPieceCols) {
      const int64_t n = std::min(kPieceCols, p.cols - column);
      const GradientPiece piece(p, row * p.cols + column, n);
      sum += kernels.squares(n, piece.planes, p.n_grads, grad_scale, columns + column);
    }
    p.row_moment[row] = next_moment(p.row_moment[row], beta2, sum / static_cast<double>(p.cols));
  }
}

void update_columns(const UpdateParameter& p, double beta2, int64_t task) {
  const int64_t begin = task * kColumnTask, n = std::min(kColumnTask, p.cols - begin);
  double sums[kColumnTask] = {};
  for (int64_t block = 0; block < row_blocks(p); ++block) {
    const float* columns = p.column_sums + block * p.cols + begin;
    for (int64_t j = 0; j < n; ++j) sums[j] += columns[j];
  }
  for (int64_t j = 0; j < n; ++j) {
    float& moment = p.column_moment[begin + j];
    moment = next_moment(moment, beta2, sums[j] / static_cast<double>(p.rows));
  }
}

double inverse_of_mean(const UpdateParameter& p) {
  double sum = 0;
  for (int64_t row = 0; row < p.rows; ++row) sum += p.row_moment[row];
  return sum == 0 ? 0 : static_cast<double>(p.rows) / sum;
}

}  // namespace

int64_t factors_bytes(std::span<const UpdateParameter> matrices) {
  Pieces pieces(nullptr);
  for (const UpdateParameter& p : matrices) pieces.take<float>(row_blocks(p) * p.cols);
  return pieces.used();
}

void update_factors(std::span<UpdateParameter> matrices, const UpdateKernels& kernels, double beta2,
                    double grad_scale, std::byte* scratch) {
  Pieces pieces(scratch);
  for (UpdateParameter& p : matrices) p.column_sums = pieces.take<float>(row_blocks(p) * p.cols);
  over_tasks(matrices, row_blocks, [&](const UpdateParameter& p, int64_t task) {
    update_rows(p, kernels, beta2, static_cast<float>(grad_scale), task);
  });
  // The last task of a matrix is the mean of its rows.
  const auto column_tasks = [](const UpdateParameter& p) {
    return p.row_moment ? (p.cols + kColumnTask - 1) / kColumnTask + 1 : 0;
  };
  over_tasks(matrices, column_tasks, [&](UpdateParameter& p, int64_t task) {
    if (task + 1 < column_tasks(p)) update_columns(p, beta2, task);
    else p.per_row_mean = inverse_of_mean(p);
  });
}

}  // namespace mudd
