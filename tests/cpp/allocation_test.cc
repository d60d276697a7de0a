// Steps three to ten of a training run allocate nothing: malloc, operator new and mmap are counted over all
// threads.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "compare.h"
#include "mudd/params/init.h"
#include "mudd/train/step.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_allocations{0};

void count() {
  if (g_counting.load(std::memory_order_relaxed)) g_allocations.fetch_add(1);
}

}  // namespace

// glibc's own entry points stay reachable under these names.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t n) {
  count();
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  count();
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  count();
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  count();
  return __libc_memalign(alignment, n);
}
int posix_memalign(void** out, size_t alignment, size_t n) {
  count();
  *out = __libc_memalign(alignment, n);
  return *out ? 0 : ENOMEM;
}
void* mmap(void* at, size_t n, int protection, int flags, int file, off_t offset) {
  count();
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, n, protection, flags, file, offset));
}
}

using namespace mudd;
using namespace mudd::test;

namespace {

struct Recorded {
  Graph graph{true, Shards::cut(2, 2)};
  ValueId loss = 0, count = 0;
};

constexpr int64_t kSamples = 2, kTime = 40, kWidth = 32, kVocabulary = 97;

int declare(ParamStore& store, const char* name, std::vector<int64_t> shape, Role role) {
  return store.declare(
      {.name = name, .shape = std::move(shape), .role = role, .init = "normal", .init_scale = 0.1});
}

// One block with every op of Transformer++, GPT-2 and TokenFormer, over a tied embedding.
Recorded record(ParamStore& store) {
  Recorded r;
  Graph& g = r.graph;
  auto parameter = [&](const char* name) {
    const int slot = store.find(name);
    return g.parameter(name, {store.at(slot).shape, DType::f32}, slot, true);
  };
  Attributes none, heads, gelu;
  heads.values["n_head"] = int64_t{4};
  gelu.values["activation"] = std::string("gelu_tanh");
  Attributes grouped = heads;
  grouped.values["n_kv_head"] = int64_t{4};
  const ValueId inputs = g.input("inputs", {{kSamples, kTime}, DType::i32});
  const ValueId targets = g.input("targets", {{kSamples, kTime}, DType::i32});
  const ValueId table = parameter("embed");
  ValueId x = g.apply("embedding", none, {inputs, table}, "")[0];
  const ValueId a = g.apply("rms_norm", none, {x, parameter("gain")}, "")[0];
  ValueId q = g.apply("linear", none, {a, parameter("q")}, "")[0];
  q = g.apply("rope", heads, {q}, "")[0];
  const ValueId o = g.apply("attention", grouped, {q, a, a}, "")[0];
  x = g.apply("linear", none, {o, parameter("o"), kAbsent, x}, "")[0];
  const ValueId n = g.apply("layer_norm", none, {x, parameter("gain2"), parameter("bias")}, "")[0];
  const ValueId u = g.apply("linear", gelu, {n, parameter("up"), parameter("up_bias")}, "")[0];
  const ValueId y = g.apply("glu", none, {u, u}, "")[0];
  x = g.apply("add", none, {x, g.apply("linear", none, {y, parameter("down")}, "")[0]}, "")[0];
  Attributes dropped;
  dropped.values["drop_path"] = 0.3;
  const ValueId keys = parameter("key"), values = parameter("value");
  const std::vector<ValueId> pair =
      g.apply("pattention", none, {x, keys, values, kAbsent, kAbsent, kAbsent, parameter("key2"), values}, "");
  x = g.apply("pattention", dropped, {pair[1], keys, values, kAbsent, parameter("gain2"), pair[0]}, "")[0];
  const std::vector<ValueId> out = g.apply("cross_entropy", none, {x, table, targets}, "");
  r.loss = out[0];
  r.count = out[1];
  return r;
}

}  // namespace

TEST_CASE("the counter counts") {
  g_counting = true;
  g_allocations = 0;
  int* volatile p = new int(1);
  delete p;
  void* volatile m = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  g_counting = false;
  munmap(m, 4096);
  CHECK(g_allocations == 2);
}

TEST_CASE("no allocation from the third step on, in two micro-batches") {
  ParamStore store;
  declare(store, "embed", {kVocabulary, kWidth}, Role::embedding);
  for (const char* name : {"gain", "gain2", "bias"}) declare(store, name, {kWidth}, Role::gain);
  for (const char* name : {"q", "o"}) declare(store, name, {kWidth, kWidth}, Role::matrix);
  declare(store, "up", {kWidth, 48}, Role::matrix);
  declare(store, "up_bias", {48}, Role::bias);
  declare(store, "down", {48, kWidth}, Role::matrix);
  for (const char* name : {"key", "key2", "value"}) declare(store, name, {20, kWidth}, Role::slots);
  store.allocate();
  initialize(store, 1);
  Recorded r = record(store);
  const ValueId loss = r.loss, counted = r.count;
  ExecutorOptions options;
  options.runs_per_step = 2;
  Executor executor(std::move(r.graph), store, {loss}, {loss, counted}, options);
  TrainStep step(executor, {.loss = loss, .count = counted}, {});
  const FillRun fill = [](int run, Executor& e) {  // the same batch in every step
    for (const char* name : {"inputs", "targets"}) {
      const Tensor t = e.value(e.input(name));
      for (int64_t i = 0; i < t.rows * t.cols; ++i)
        t.i32()[i] = static_cast<int32_t>((number(name[0] + run, i) + 1) * 0.5f * (kVocabulary - 1));
    }
  };
  double first = 0, last = 0;
  for (int i = 0; i < 10; ++i) {
    if (i == 2) {
      g_allocations = 0;
      g_counting = true;
    }
    const StepReport report = step.run({}, i, 1e-2, fill);
    REQUIRE(report.finite);
    (i == 0 ? first : last) = report.loss;
  }
  g_counting = false;
  CHECK(g_allocations == 0);
  CHECK(last < first);
}
