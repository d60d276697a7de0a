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

#include "block_graph.h"
#include "compare.h"
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
  ParamStore store = block_store();
  Recorded r = record(store);
  const ValueId loss = r.loss, counted = r.count;
  ExecutorOptions options;
  options.runs_per_step = 2;
  Executor executor(std::move(r.graph), store, {loss}, {loss, counted}, options);
  TrainStep step(executor, {.loss = loss, .count = counted}, {});
  // The same batch in every step.
  const FillRun fill = [](const RunSamples& samples, Executor& e) {
    fill_ids(e, e.workspace(), static_cast<int>(samples.in_batch / samples.count));
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
