// Compares every large matmul of the bench shapes with oneDNN, interleaved: one line per matmul with the GFLOP/s
// of both (best of the rounds), their ratio, and our percentage of the fp32 peak measured in the same run.
//
// bench_gemm [threads=2] [rounds=15] [filter] [fp32|bf16]      (MUDD_MAX_ISA=avx2 caps both)
//
// fp32 is compared with oneDNN's sgemm, bf16 with oneDNN's matmul on prepacked weights. On levels without hardware
// bf16 oneDNN has only reference code, so bf16 is compared with our own fp32 matmuls.
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "mudd/base/isa.h"
#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/peak/peak.h"
#include "one_dnn.h"

using namespace mudd;

namespace {

struct Matmul {
  const char* model;
  const char* what;
  int64_t rows, k, n;  // y[rows, n] = x[rows, k] w[k, n]
  int shards;
};

constexpr Matmul kMatmuls[] = {
    {"9M", "qkvo", 2048, 256, 256, 8},    {"9M", "gate/up", 2048, 256, 704, 8},
    {"9M", "down", 2048, 704, 256, 8},    {"9M", "head", 2048, 256, 8192, 8},
    {"55M", "qkvo", 2048, 512, 512, 4},   {"55M", "gate/up", 2048, 512, 1408, 4},
    {"55M", "down", 2048, 1408, 512, 4},  {"55M", "head", 2048, 512, 16384, 4},
    {"162M", "qkvo", 1024, 768, 768, 2},  {"162M", "gate/up", 1024, 768, 2048, 2},
    {"162M", "down", 1024, 2048, 768, 2}, {"162M", "head", 1024, 768, 50304, 2},
};

// Memory aligned to cache lines, as in the arena.
template <class T>
struct OnLines {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t{64}); }
  bool operator==(const OnLines&) const { return true; }
};
using Floats = std::vector<float, OnLines<float>>;
using Halves = std::vector<bf16, OnLines<bf16>>;

Floats filled(int64_t n, float scale) {
  Floats v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = scale * static_cast<float>(i % 1013 - 506);
  return v;
}

// Truncates instead of rounding: only speed matters here.
Halves halved(const Floats& x) {
  Halves v(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &x[i], sizeof bits);
    v[i].bits = static_cast<uint16_t>(bits >> 16);
  }
  return v;
}

bool alone = false;  // one thread: measure its CPU time, so that other programs disturb only the caches

template <class Body>
double seconds(Body body) {
  const clockid_t clock = alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  timespec start, end;
  clock_gettime(clock, &start);
  body();
  clock_gettime(clock, &end);
  return static_cast<double>(end.tv_sec - start.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec);
}

// Returns the best seconds of both; they run one after the other in every round.
struct Pair {
  double ours = 1e30, theirs = 1e30;
};
template <class Ours, class Theirs>
Pair race(int rounds, Ours ours, Theirs theirs) {
  Pair best;
  for (int r = 0; r < rounds; ++r) {
    best.ours = std::min(best.ours, seconds(ours));
    best.theirs = std::min(best.theirs, seconds(theirs));
  }
  return best;
}

void report(const Matmul& p, const char* form, Pair best, double peak) {
  const double flops = 2e-9 * static_cast<double>(p.rows) * static_cast<double>(p.k) * static_cast<double>(p.n);
  std::printf("| %-4s | %-7s | %-7s | %5ld x %5ld x %5ld | %6.1f | %6.1f | %5.2f | %5.1f %% |\n", p.model, p.what,
              form, static_cast<long>(p.rows), static_cast<long>(p.k), static_cast<long>(p.n), flops / best.ours,
              flops / best.theirs, best.theirs / best.ours, 100 * flops / best.ours / peak);
  std::fflush(stdout);
}

// Our three matmuls of one weight in one compute type; every operand except sums has that type.
class Ours {
 public:
  Ours(const Matmul& p, DType compute)
      : p_(p),
        compute_(compute),
        scratch_(static_cast<size_t>(grad_scratch_bytes(p.k, p.n, p.shards, 1, compute)) / sizeof(float)) {
    const Floats w = filled(p.k * p.n, 2e-3f);
    for (int64_t s = 0; s <= p.shards; ++s) cuts_.push_back(p.rows * s / p.shards);
    plain_.resize(static_cast<size_t>(packed_bytes(p.k, p.n, compute)) / sizeof(float));
    transposed_.resize(static_cast<size_t>(packed_bytes(p.n, p.k, compute)) / sizeof(float));
    pack_weight(w.data(), p.k, p.n, false, plain_.data(), compute);
    pack_weight(w.data(), p.k, p.n, true, transposed_.data(), compute);
  }

  void forward(ConstCells x, Cells y) const { multiply(x, p_.k, plain_, y, p_.n); }
  void dx(ConstCells dy, Cells dx) const { multiply(dy, p_.n, transposed_, dx, p_.k); }
  void dw(ConstCells x, ConstCells dy, float* out) {
    weight_gradient({.x = x,
                     .ldx = p_.k,
                     .dy = dy,
                     .ldy = p_.n,
                     .cuts = cuts_.data(),
                     .shards = p_.shards,
                     .m = p_.k,
                     .n = p_.n,
                     .out = out,
                     .ldo = p_.n,
                     .scratch = scratch_.data(),
                     .scratch_bytes = static_cast<int64_t>(scratch_.size() * sizeof(float)),
                     .compute = compute_});
  }

 private:
  void multiply(ConstCells a, int64_t k, const Floats& b, Cells c, int64_t n) const {
    multiply({.a = a,
              .lda = k,
              .b = b.data(),
              .c = c,
              .ldc = n,
              .m = p_.rows,
              .n = n,
              .k = k,
              .compute = compute_,
              .epilogue = {}});
  }

  Matmul p_;
  DType compute_;
  Floats plain_, transposed_, scratch_;
  std::vector<int64_t> cuts_;
};

void run_fp32(const Matmul& p, int rounds, double peak) {
  const Floats x = filled(p.rows * p.k, 1e-3f), w = filled(p.k * p.n, 2e-3f), dy = filled(p.rows * p.n, 3e-3f);
  Floats y(dy.size()), dx(x.size()), dw(w.size());
  Ours ours(p, DType::f32);
  report(p, "forward",
         race(
             rounds, [&] { ours.forward(x.data(), y.data()); },
             [&] { dnnl_sgemm('N', 'N', p.rows, p.n, p.k, 1, x.data(), p.k, w.data(), p.n, 0, y.data(), p.n); }),
         peak);
  report(p, "dx",
         race(
             rounds, [&] { ours.dx(dy.data(), dx.data()); },
             [&] { dnnl_sgemm('N', 'T', p.rows, p.k, p.n, 1, dy.data(), p.n, w.data(), p.n, 0, dx.data(), p.k); }),
         peak);
  report(p, "dw",
         race(
             rounds, [&] { ours.dw(x.data(), dy.data(), dw.data()); },
             [&] { dnnl_sgemm('T', 'N', p.k, p.n, p.rows, 1, x.data(), p.k, dy.data(), p.n, 0, dw.data(), p.n); }),
         peak);
}

void run_bf16(const Matmul& p, int rounds, double peak) {
  const Floats x32 = filled(p.rows * p.k, 1e-3f), w32 = filled(p.k * p.n, 2e-3f);
  const Floats dy32 = filled(p.rows * p.n, 3e-3f);
  const Halves x = halved(x32), w = halved(w32), dy = halved(dy32);
  Floats y32(dy.size()), dx32(x.size()), dw(w.size());
  Halves y(dy.size()), dx(x.size());
  Ours ours(p, DType::bf16);
  if (active_isa() < Isa::avx512_bf16) {
    Ours fp32(p, DType::f32);
    report(p, "forward",
           race(
               rounds, [&] { ours.forward(x.data(), y.data()); }, [&] { fp32.forward(x32.data(), y32.data()); }),
           peak);
    report(p, "dx",
           race(rounds, [&] { ours.dx(dy.data(), dx.data()); }, [&] { fp32.dx(dy32.data(), dx32.data()); }), peak);
    report(p, "dw",
           race(
               rounds, [&] { ours.dw(x.data(), dy.data(), dw.data()); },
               [&] { fp32.dw(x32.data(), dy32.data(), dw.data()); }),
           peak);
    return;
  }
  OneDnnBf16 forward(p.rows, p.n, p.k, x.data(), false, w.data(), false, true, y.data(), true);
  report(p, "forward", race(rounds, [&] { ours.forward(x.data(), y.data()); }, [&] { forward.run(); }), peak);
  OneDnnBf16 back(p.rows, p.k, p.n, dy.data(), false, w.data(), true, true, dx.data(), true);
  report(p, "dx", race(rounds, [&] { ours.dx(dy.data(), dx.data()); }, [&] { back.run(); }), peak);
  OneDnnBf16 gradient(p.k, p.n, p.rows, x.data(), true, dy.data(), false, false, dw.data(), false);
  report(p, "dw", race(rounds, [&] { ours.dw(x.data(), dy.data(), dw.data()); }, [&] { gradient.run(); }), peak);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  const char* filter = argc > 3 ? argv[3] : "";
  const bool half = argc > 4 && std::string(argv[4]) == "bf16";
  if (active_isa() == Isa::avx2) setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  alone = threads == 1;
  set_num_threads(threads);
  omp_set_num_threads(threads);
  const double peak = peak_gflops(threads);
  std::printf("%s, %s, %s, %d threads, peak %.1f GFLOP/s (fp32)\n", cpu_name().c_str(), name_of(active_isa()),
              half ? "bf16" : "fp32", threads, peak);
  std::printf(
      "| model | product | form | rows x k x n | ours | %s | ratio | of peak "
      "|\n|---|---|---|---|---|---|---|---|\n",
      half && active_isa() < Isa::avx512_bf16 ? "our fp32" : "oneDNN");
  for (const Matmul& p : kMatmuls)
    if ((std::string(p.model) + " " + p.what).find(filter) != std::string::npos)
      (half ? run_bf16 : run_fp32)(p, std::max(3, p.n > 8000 ? rounds / 3 : rounds), peak);
}
