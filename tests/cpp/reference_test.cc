// The references that every kernel is held against, held against Eigen in double: matrices as one reads them.
#include <Eigen/Dense>

#include "compare.h"
#include "mudd/kernels/gemm/reference.h"
#include "mudd/ops/attention/reference.h"
#include "mudd/ops/rms_norm/reference.h"

using namespace mudd;
using namespace mudd::test;

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix random(uint64_t seed, int64_t rows, int64_t cols) {
  Matrix m(rows, cols);
  for (int64_t i = 0; i < m.size(); ++i) m.data()[i] = number(seed, static_cast<uint64_t>(i));
  return m;
}

constexpr double kRounding = 1e-13;  // of doubles in sums of some dozens of terms

}  // namespace

TEST_CASE("products and weight gradients") {
  for (int64_t m : {1, 5}) {
    const int64_t n = 7, k = 11;
    const Matrix a = random(1, m, k), b = random(2, k, n), dy = random(3, m, n);
    Matrix c(m, n), ct(m, n), dw(k, n);
    reference::gemm<double>(m, n, k, a.data(), b.data(), false, c.data());
    CHECK((c - a * b).norm() < kRounding);
    const Matrix b_transposed = b.transpose();
    reference::gemm<double>(m, n, k, a.data(), b_transposed.data(), true, ct.data());
    CHECK((ct - a * b).norm() < kRounding);
    reference::weight_gradient<double>(m, k, n, a.data(), dy.data(), dw.data());
    CHECK((dw - a.transpose() * dy).norm() < kRounding);
  }
}

TEST_CASE("rms_norm scales every row to the root mean square of its gain") {
  const Matrix x = random(4, 3, 9), gain = random(5, 1, 9);
  Matrix y(3, 9);
  reference::rms_norm<double>(3, 9, x.data(), gain.data(), 1e-6, y.data());
  for (int64_t r = 0; r < 3; ++r) {
    const double inverse = 1.0 / std::sqrt(x.row(r).squaredNorm() / 9 + 1e-6);
    CHECK((y.row(r) - inverse * x.row(r).cwiseProduct(gain.row(0))).norm() < kRounding);
  }
}

TEST_CASE("attention is a softmax of q k^T times v") {
  const int64_t time = 6, dim = 4;
  const Matrix q = random(6, time, dim), k = random(7, time, dim), v = random(8, time, dim);
  for (bool causal : {false, true}) {
    reference::AttentionCase c{.time = time, .dim = dim};
    c.scale = 0.5, c.causal = causal;
    Matrix o(time, dim), p = (0.5 * q * k.transpose()).array().exp();
    if (causal) p = Matrix(p.triangularView<Eigen::Lower>());
    const Matrix want = p.rowwise().sum().cwiseInverse().asDiagonal() * (p * v);
    reference::attention<double>(c, q.data(), k.data(), v.data(), o.data(), nullptr);
    CHECK((o - want).norm() < kRounding);
  }
}
