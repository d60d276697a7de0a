// Every large product of the bench shapes beside oneDNN's sgemm, interleaved: one line per product with GFLOP/s
// of both (best of the rounds), their ratio, and our share of the peak measured in the same run.
//
// bench_gemm [threads=2] [rounds=15] [filter]      (MUDD_MAX_ISA=avx2 caps both)
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
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
#include "mudd/ops/gemm/gemm.h"
#include "mudd/ops/peak/peak.h"

using namespace mudd;

namespace {

struct Product {
  const char* model;
  const char* what;
  int64_t rows, k, n;  // y[rows, n] = x[rows, k] w[k, n]
  int shards;
};

constexpr Product kProducts[] = {
    {"9M", "qkvo", 2048, 256, 256, 8},    {"9M", "gate/up", 2048, 256, 704, 8},
    {"9M", "down", 2048, 704, 256, 8},    {"9M", "head", 2048, 256, 8192, 8},
    {"55M", "qkvo", 2048, 512, 512, 4},   {"55M", "gate/up", 2048, 512, 1408, 4},
    {"55M", "down", 2048, 1408, 512, 4},  {"55M", "head", 2048, 512, 16384, 4},
    {"162M", "qkvo", 1024, 768, 768, 2},  {"162M", "gate/up", 1024, 768, 2048, 2},
    {"162M", "down", 1024, 2048, 768, 2}, {"162M", "head", 1024, 768, 50304, 2},
};

// Memory as the arena gives it: on cache lines.
template <class T>
struct OnLines {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t{64}); }
  bool operator==(const OnLines&) const { return true; }
};
using Floats = std::vector<float, OnLines<float>>;

Floats filled(int64_t n, float scale) {
  Floats v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = scale * static_cast<float>(i % 1013 - 506);
  return v;
}

bool alone = false;  // one thread: its own CPU time is measured, so other programs disturb only the caches

template <class Body>
double seconds(Body body) {
  const clockid_t clock = alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  timespec start, end;
  clock_gettime(clock, &start);
  body();
  clock_gettime(clock, &end);
  return static_cast<double>(end.tv_sec - start.tv_sec) + 1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec);
}

// Best seconds of both, run one after the other in every round.
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

void report(const Product& p, const char* form, Pair best, double peak) {
  const double flops = 2e-9 * static_cast<double>(p.rows) * static_cast<double>(p.k) * static_cast<double>(p.n);
  std::printf("| %-4s | %-7s | %-7s | %5ld x %5ld x %5ld | %6.1f | %6.1f | %5.2f | %5.1f %% |\n", p.model, p.what,
              form, static_cast<long>(p.rows), static_cast<long>(p.k), static_cast<long>(p.n), flops / best.ours,
              flops / best.theirs, best.theirs / best.ours, 100 * flops / best.ours / peak);
  std::fflush(stdout);
}

void run(const Product& p, int rounds, double peak) {
  const Floats x = filled(p.rows * p.k, 1e-3f), w = filled(p.k * p.n, 2e-3f);
  const Floats dy = filled(p.rows * p.n, 3e-3f);
  Floats y(dy.size()), dx(x.size()), dw(w.size());
  Floats packed(static_cast<size_t>(std::max(packed_size(p.k, p.n), packed_size(p.n, p.k))));
  Floats scratch(static_cast<size_t>(grad_scratch_bytes(p.k, p.n, p.shards)) / sizeof(float));
  std::vector<int64_t> cuts;
  for (int s = 0; s <= p.shards; ++s) cuts.push_back(p.rows * s / p.shards);

  pack_weight(w.data(), p.k, p.n, false, packed.data());
  report(p, "forward",
         race(
             rounds,
             [&] {
               multiply({.a = x.data(),
                         .lda = p.k,
                         .b = packed.data(),
                         .c = y.data(),
                         .ldc = p.n,
                         .m = p.rows,
                         .n = p.n,
                         .k = p.k,
                         .epilogue = {}});
             },
             [&] { dnnl_sgemm('N', 'N', p.rows, p.n, p.k, 1, x.data(), p.k, w.data(), p.n, 0, y.data(), p.n); }),
         peak);
  pack_weight(w.data(), p.k, p.n, true, packed.data());
  report(p, "dx",
         race(
             rounds,
             [&] {
               multiply({.a = dy.data(),
                         .lda = p.n,
                         .b = packed.data(),
                         .c = dx.data(),
                         .ldc = p.k,
                         .m = p.rows,
                         .n = p.k,
                         .k = p.n,
                         .epilogue = {}});
             },
             [&] { dnnl_sgemm('N', 'T', p.rows, p.k, p.n, 1, dy.data(), p.n, w.data(), p.n, 0, dx.data(), p.k); }),
         peak);
  report(p, "dw",
         race(
             rounds,
             [&] {
               weight_gradient({.x = x.data(),
                                .ldx = p.k,
                                .dy = dy.data(),
                                .ldy = p.n,
                                .cuts = cuts.data(),
                                .shards = p.shards,
                                .m = p.k,
                                .n = p.n,
                                .out = dw.data(),
                                .ldo = p.n,
                                .scratch = scratch.data(),
                                .scratch_bytes = static_cast<int64_t>(scratch.size() * sizeof(float))});
             },
             [&] { dnnl_sgemm('T', 'N', p.k, p.n, p.rows, 1, x.data(), p.k, dy.data(), p.n, 0, dw.data(), p.n); }),
         peak);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  const char* filter = argc > 3 ? argv[3] : "";
  if (active_isa() == Isa::avx2) setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  alone = threads == 1;
  set_num_threads(threads);
  omp_set_num_threads(threads);
  const double peak = peak_gflops(threads);
  std::printf("%s, %s, %d threads, peak %.1f GFLOP/s (fp32)\n", cpu_name().c_str(), name_of(active_isa()), threads,
              peak);
  std::printf(
      "| model | product | form | rows x k x n | ours | oneDNN | ratio | of peak "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (const Product& p : kProducts)
    if ((std::string(p.model) + " " + p.what).find(filter) != std::string::npos)
      run(p, std::max(3, p.n > 8000 ? rounds / 3 : rounds), peak);
}
