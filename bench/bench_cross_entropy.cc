// The loss op on the bench shapes: logits, softmax, loss and both gradients as a training step runs them, and the
// loss alone as evaluation runs it; "tune" has a frozen head. One line each with ms, GFLOP/s (6, 4 or 2 x counted
// rows x V x D; best of the rounds), the percentage of the peak measured in the same run, and the scratch memory
// it reserves.
//
// bench_cross_entropy [threads=2] [rounds=5] [filter] [chunk MiB=0: default] [counted %=100]
//                                                                      (MUDD_MAX_ISA=avx2 caps the level)
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/peak/peak.h"

using namespace mudd;

namespace {

struct Shape {
  const char* model;
  int64_t samples, positions, d, vocabulary;
  int shards;           // of one graph run
  bool frozen = false;  // no gradient of the head
};
constexpr Shape kShapes[] = {
    {"9M", 8, 256, 256, 8192, 8},
    {"9M/4", 2, 256, 256, 8192, 2},
    {"55M", 4, 512, 512, 16384, 4},
    {"55M/4", 1, 512, 512, 16384, 1},
    {"162M", 2, 512, 768, 50304, 2},
    {"162M/2", 1, 512, 768, 50304, 1},
    {"gemma-3-270m", 4, 512, 640, 262144, 4, true},
};

std::vector<float> filled(int64_t n, float scale) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = scale * static_cast<float>(i % 1013 - 506);
  return v;
}

// With one thread, measure its CPU time: other programs then disturb only the caches.
double now(bool alone) {
  timespec t;
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void run(const Shape& s, bool training, int rounds, int64_t chunk_bytes, int64_t percent, double peak,
         bool alone) {
  const int64_t rows = s.samples * s.positions;
  Attributes attributes;
  if (chunk_bytes > 0) attributes.values["chunk_bytes"] = chunk_bytes;
  const auto node = make_node("cross_entropy", attributes);
  const std::vector<TensorSpec> specs{{{s.samples, s.positions, s.d}, DType::f32},
                                      {{s.vocabulary, s.d}, DType::f32},
                                      {{s.samples, s.positions}, DType::i32}};
  const Shards shards = Shards::cut(s.samples, s.shards);
  Inference needs;
  for (const TensorSpec& spec : specs) needs.inputs_.push_back(&spec);
  needs.parameter_ = {false, true, false};
  needs.gathered_ = {false, false, false};
  needs.wants_ = {training, training && !s.frozen, false};
  needs.training_ = training;
  needs.shards_ = &shards;
  node->infer(needs);

  std::vector<float> h = filled(rows * s.d, 1e-3f), head = filled(s.vocabulary * s.d, 1e-4f), dh(h.size()),
                     dhead(training && !s.frozen ? head.size() : 0);
  std::vector<float> plain(static_cast<size_t>(packed_bytes(s.vocabulary, s.d)) / sizeof(float)),
      transposed(static_cast<size_t>(packed_bytes(s.d, s.vocabulary)) / sizeof(float));
  pack_weight(head.data(), s.vocabulary, s.d, false, plain.data());
  pack_weight(head.data(), s.vocabulary, s.d, true, transposed.data());
  std::vector<int32_t> targets(static_cast<size_t>(rows));
  int64_t counted = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const bool counts = r * 61 % 100 < percent;  // scattered: 61 and 100 have no common factor
    targets[static_cast<size_t>(r)] = counts ? static_cast<int32_t>(r * 7919 % s.vocabulary) : -1;
    counted += int64_t{counts};
  }
  const int64_t booked = training ? needs.scratch_backward_ : needs.scratch_forward_;
  std::vector<std::byte> scratch(static_cast<size_t>(booked) + 64);
  std::vector<double> loss(static_cast<size_t>(shards.count())), count(loss);
  std::vector<float> guessed(static_cast<size_t>(2 * s.samples));
  const StepInput step;
  Run r;
  const int64_t n = shards.count();
  r.in_ = {Tensor{h.data(), rows, s.d, s.d}, Tensor{head.data(), s.vocabulary, s.d, s.d},
           Tensor{targets.data(), s.samples, s.positions, s.positions, DType::i32}};
  r.out_ = {Tensor{loss.data(), 1, n, n, DType::f64}, Tensor{count.data(), 1, n, n, DType::f64},
            Tensor{guessed.data(), s.samples, 2, 2}};
  r.scratch_ = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  r.packed_plain_ = {nullptr, plain.data(), nullptr};
  r.packed_transposed_ = {nullptr, transposed.data(), nullptr};
  r.shards_ = &shards;
  r.step_ = &step;
  r.dout_.assign(3, Tensor{});
  r.din_.assign(3, Tensor{});
  r.accumulate_.assign(3, 0);
  r.sink_.assign(3, GradSink{});
  if (training) {
    r.din_[0] = Tensor{dh.data(), rows, s.d, s.d};
    if (!s.frozen) r.sink_[1].out = dhead.data();
  }
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const double start = now(alone);
    if (training) node->backward(r);
    else node->forward(r);
    best = std::min(best, now(alone) - start);
  }
  const double flops = (training ? s.frozen ? 4e-9 : 6e-9 : 2e-9) * static_cast<double>(counted * s.vocabulary) *
                       static_cast<double>(s.d);
  std::printf("| %-6s | %-5s | %5ld x %5ld x %3ld | %8.1f | %6.1f | %5.1f %% | %7.1f |\n", s.model,
              training ? s.frozen ? "tune" : "train" : "loss", static_cast<long>(counted),
              static_cast<long>(s.vocabulary), static_cast<long>(s.d), 1e3 * best, flops / best,
              100 * flops / best / peak, static_cast<double>(booked) / (1 << 20));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2, rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  const std::string filter = argc > 3 ? argv[3] : "";
  const int64_t chunk_bytes = argc > 4 ? static_cast<int64_t>(std::atof(argv[4]) * (1 << 20)) : 0,
                percent = argc > 5 ? std::atoll(argv[5]) : 100;
  set_num_threads(threads);
  const double peak = peak_gflops(threads);
  std::printf("%s, %s, %d threads, peak %.1f GFLOP/s (fp32)\n", cpu_name().c_str(), name_of(active_isa()), threads,
              peak);
  std::printf(
      "| model | pass | rows x V x D | ms | GFLOP/s | of peak | scratch MiB |\n|---|---|---|---|---|---|---|\n");
  for (const Shape& s : kShapes)
    for (bool training : {true, false})
      if ((std::string(s.model) + " ").find(filter) != std::string::npos)
        run(s, training, rounds, chunk_bytes, percent, peak, threads == 1);
}
