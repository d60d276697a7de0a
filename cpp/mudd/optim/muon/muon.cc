#include "mudd/optim/muon/muon.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "mudd/base/arena.h"
#include "mudd/base/check.h"
#include "mudd/base/math.h"
#include "mudd/base/row_tasks.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd {
namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;
constexpr double kLeastNorm = 1e-7;
constexpr int64_t kPiece = 512;  // elements of a moment that are converted to fp32 at a time

struct PolarScratch {
  float *other, *gram, *square;
  void* packed;
  int64_t bytes;

  PolarScratch(std::byte* base, int64_t rows, int64_t cols) {
    Pieces pieces(base);
    other = pieces.take<float>(rows * cols);
    gram = pieces.take<float>(rows * rows);
    square = pieces.take<float>(rows * rows);
    packed =
        pieces.bytes(std::max({packed_bytes(cols, rows), packed_bytes(rows, rows), packed_bytes(rows, cols)}));
    bytes = pieces.used();
  }
};

// Compute C [m, n] = A [m, k] B, with B [k, n] stored as is or, transposed, as [n, k].
void matmul(const float* a, const float* b, bool transposed, float* c, int64_t m, int64_t n, int64_t k,
            void* packed) {
  GemmBlock block;
  block.a = a;
  block.lda = k;
  block.pack = {
      .w = b, .rows = transposed ? n : k, .cols = transposed ? k : n, .transposed = transposed, .to = packed};
  block.c = c;
  block.ldc = n;
  block.m = m;
  block.n = n;
  block.k = k;
  multiply(block);
}

// Compute square = a I + b gram + c square.
void polynomial(const float* gram, float* square, int64_t rows) {
  parallel_rows(rows, rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t i = r * rows; i < (r + 1) * rows; ++i) square[i] = kB * gram[i] + kC * square[i];
      square[r * rows + r] += kA;
    }
  });
}

class Muon final : public Optimizer {
 public:
  explicit Muon(const OptimizerSettings& settings)
      : Optimizer(settings),
        momentum_(settings.number("momentum")),
        steps_(static_cast<int>(settings.whole("steps"))),
        original_rate_(settings.word("adjust_lr") == "original") {}

  int64_t scratch_bytes(std::span<const UpdateParameter> matrices) const override {
    int64_t bytes = 0;
    for (const UpdateParameter& p : matrices) bytes = std::max(bytes, place(nullptr, p).bytes);
    return bytes;
  }

  bool update(std::span<UpdateParameter> matrices, int64_t, double grad_scale, std::byte* scratch) const override {
    bool finite = true;
    for (const UpdateParameter& p : matrices) finite &= update_matrix(p, static_cast<float>(grad_scale), scratch);
    return finite;
  }

 private:
  struct UpdateScratch {
    float* x;
    std::span<double> blocks;  // of the norm
    std::byte* rest;
    int64_t bytes;
  };

  static UpdateScratch place(std::byte* scratch, const UpdateParameter& p) {
    Pieces pieces(scratch);
    UpdateScratch found{};
    found.x = pieces.take<float>(p.rows * p.cols);
    const int64_t blocks = norm_blocks(p.rows * p.cols);
    found.blocks = {pieces.take<double>(blocks), static_cast<size_t>(blocks)};
    found.rest = pieces.bytes(orthogonalize_bytes(std::min(p.rows, p.cols), std::max(p.rows, p.cols)));
    found.bytes = pieces.used();
    return found;
  }

  bool update_matrix(const UpdateParameter& p, float grad_scale, std::byte* scratch) const {
    const UpdateScratch at = place(scratch, p);
    const bool turned = p.rows > p.cols;
    bool finite = momentum(p, grad_scale, at.x);
    GradientPlanes whole{.n_planes = 1, .n = p.rows * p.cols};
    whole.planes[0] = at.x;
    block_squares({&whole, 1}, at.blocks);
    const double norm = math::sqrt(squared_norm(at.blocks));
    const auto scale = static_cast<float>(1 / std::max(norm, kLeastNorm));
    parallel_rows(p.rows, p.cols, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * p.cols; i < end * p.cols; ++i) at.x[i] *= scale;
    });
    orthogonalize(at.x, std::min(p.rows, p.cols), std::max(p.rows, p.cols), steps_, at.rest);
    finite &= apply(p, at.x, turned);
    if (p.packed_plain) pack_weight(p.w, p.rows, p.cols, false, p.packed_plain, p.packed);
    if (p.packed_transposed) pack_weight(p.w, p.rows, p.cols, true, p.packed_transposed, p.packed);
    return finite;
  }

  // Update the moment and write U to x, transposed if rows > cols. Return false if a moment is not finite.
  bool momentum(const UpdateParameter& p, float grad_scale, float* x) const {
    const auto keep = static_cast<float>(momentum_);
    const auto rest = static_cast<float>(1 - momentum_);
    for (int i = 0; i < p.n_grads; ++i)
      check(p.grads[i] != nullptr, "muon", "gradient: expected a whole matrix, got rows of a table");
    std::atomic<bool> finite{true};
    parallel_rows(p.rows, p.cols, [&](int64_t begin, int64_t end) {
      float wide[kPiece], zeros = 0;
      const int64_t last = end * p.cols;
      for (int64_t at = begin * p.cols; at < last; at += kPiece) {
        const int64_t n = std::min(kPiece, last - at);
        read(p, at, n, wide);
        for (int64_t k = 0; k < n; ++k) {
          float g = p.grads[0][at + k];
          for (int i = 1; i < p.n_grads; ++i) g += p.grads[i][at + k];
          g *= grad_scale;
          wide[k] = keep * wide[k] + rest * g;
          const int64_t r = (at + k) / p.cols, c = (at + k) % p.cols;
          x[p.rows > p.cols ? c * p.rows + r : at + k] = keep * wide[k] + rest * g;
        }
        write(p, at, n, wide);
        for (int64_t k = 0; k < n; ++k) zeros += 0 * wide[k];  // 0, or NaN if one is not finite
      }
      if (!(zeros == 0)) finite.store(false, std::memory_order_relaxed);
    });
    return finite.load();
  }

  void read(const UpdateParameter& p, int64_t at, int64_t n, float* to) const {
    if (moment() == DType::f32) std::memcpy(to, static_cast<const float*>(p.m) + at, n * sizeof(float));
    else convert_kernels().widen(n, static_cast<const bf16*>(p.m) + at, to);
  }
  // Round `from` to the stored type.
  void write(const UpdateParameter& p, int64_t at, int64_t n, float* from) const {
    if (moment() == DType::f32) {
      std::memcpy(static_cast<float*>(p.m) + at, from, n * sizeof(float));
      return;
    }
    convert_kernels().narrow(n, from, static_cast<bf16*>(p.m) + at);
    convert_kernels().widen(n, static_cast<const bf16*>(p.m) + at, from);
  }

  bool apply(const UpdateParameter& p, const float* x, bool turned) const {
    const double sides = static_cast<double>(std::max(p.rows, p.cols));
    const double ratio = static_cast<double>(p.fan_out) / static_cast<double>(std::max<int64_t>(1, p.fan_in));
    const double adjust = original_rate_ ? math::sqrt(std::max(1.0, ratio)) : 0.2 * math::sqrt(sides);
    const auto step = static_cast<float>(p.lr * adjust), decay = static_cast<float>(p.decay);
    std::atomic<bool> finite{true};
    parallel_rows(p.rows, p.cols, [&](int64_t begin, int64_t end) {
      float zeros = 0;
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < p.cols; ++c) {
          float& w = p.w[r * p.cols + c];
          w -= decay * w;
          w -= step * x[turned ? c * p.rows + r : r * p.cols + c];
          zeros += 0 * w;
        }
      if (!(zeros == 0)) finite.store(false, std::memory_order_relaxed);
    });
    return finite.load();
  }

  double momentum_;
  int steps_;
  bool original_rate_;  // of adjust in muon.h
};

}  // namespace

const OptimizerSpec& muon_spec() {
  static const OptimizerSpec spec{
      .name = "muon",
      .help = "for the matrices of blocks, adamw for all else",
      .whole_matrices = true,
      .takes = {Role::matrix, Role::slots, Role::router, Role::mix},
      .by_default = {Role::matrix, Role::slots},
      .rest = "adamw",
      .settings =
          {fraction("momentum", 0.95, "fraction of its moment that stays (Nesterov)", "muon_momentum"),
           {option::integer("steps", 5, from_to(1, 99), "Newton-Schulz steps that make its update orthogonal"),
            "muon_steps", "steps"},
           {option::word("adjust_lr", "match_rms_adamw", {"match_rms_adamw", "original"},
                         "factor of a matrix's rate; match_rms_adamw 0.2 sqrt(longer side), so that the rate "
                         "of adamw fits; original sqrt(max(1, fan_out / fan_in))"),
            "muon_adjust_lr"}},
      .make = make<Muon>,
      .kernels = [] { return std::vector{chosen(gemm_rows())}; }};
  return spec;
}

int64_t orthogonalize_bytes(int64_t rows, int64_t cols) { return PolarScratch(nullptr, rows, cols).bytes; }

void orthogonalize(float* x, int64_t rows, int64_t cols, int steps, std::byte* scratch) {
  const PolarScratch w(scratch, rows, cols);
  float *now = x, *next = w.other;
  for (int i = 0; i < steps; ++i) {
    matmul(now, now, true, w.gram, rows, rows, cols, w.packed);
    matmul(w.gram, w.gram, false, w.square, rows, rows, rows, w.packed);
    polynomial(w.gram, w.square, rows);
    matmul(w.square, now, false, next, rows, cols, rows, w.packed);
    std::swap(now, next);
  }
  if (now != x) std::memcpy(x, now, rows * cols * sizeof(float));
}

}  // namespace mudd
