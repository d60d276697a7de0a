#include "mudd/base/parallel.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "mudd/base/check.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define MUDD_NOT_WATCHED __attribute__((no_sanitize("thread")))
#else
#define MUDD_NOT_WATCHED
#endif

namespace mudd {
namespace {

std::atomic<int> g_threads{0};        // 0: not set
std::atomic<bool> g_computed{false};  // a parallel region has run in this process
std::atomic<bool> g_forked{false};    // this process is the child of a process that had computed

void in_child() {
  if (g_computed.load()) g_forked.store(true);
}

int default_threads() { return std::clamp(omp_get_max_threads(), 1, kMaxThreads); }

// Round to nearest, flush-to-zero and denormals-are-zero during the lifetime of the object.
class FloatState {
 public:
#if defined(__x86_64__)
  FloatState() : before_(_mm_getcsr()) { _mm_setcsr((before_ & ~0x6000u) | 0x8040u); }
  ~FloatState() { _mm_setcsr((before_ & ~0x3fu) | (_mm_getcsr() & 0x3fu)); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FloatState() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before_));
    set((before_ & ~(uint64_t{3} << 22)) | uint64_t{1} << 24);  // FZ is FTZ and DAZ
  }
  ~FloatState() { set(before_); }

 private:
  static void set(uint64_t state) { __asm__ volatile("msr fpcr, %0" : : "r"(state)); }

  uint64_t before_;
#else
  FloatState() {}
#endif
};

struct Failure {
  std::exception_ptr first;
  std::atomic<bool> raised{false};

  void keep() {
    bool expected = false;
    if (raised.compare_exchange_strong(expected, true)) first = std::current_exception();
  }
};

// The two barriers of a parallel region for ThreadSanitizer, which does not see the barriers of libgomp (not
// instrumented). Tasks stay unordered, so it finds a race between two of them.
struct Barriers {
#if defined(__SANITIZE_THREAD__)
  void before() { __tsan_release(&begin); }
  void enter() { __tsan_acquire(&begin); }
  void leave() { __tsan_release(&end); }
  void after() { __tsan_acquire(&end); }
  char begin = 0, end = 0;
#else
  void before() {}
  void enter() {}
  void leave() {}
  void after() {}
#endif
};

void run_alone(int64_t n_tasks, detail::TaskFn fn, void* context) {
  FloatState state;
  for (int64_t i = 0; i < n_tasks; ++i) fn(context, i, 0);
}

}  // namespace

void set_num_threads(int n) {
  check(n >= 0 && n <= kMaxThreads, "set_num_threads", "n: expected 0 to ", kMaxThreads, ", got ", n);
  g_threads.store(n);
}

int num_threads() {
  const int asked = g_threads.load();
  return asked > 0 ? asked : default_threads();
}

// Not checked by ThreadSanitizer: libgomp passes the variables of the region through code that it cannot see.
// Tasks are.
MUDD_NOT_WATCHED void detail::run_tasks(int64_t n_tasks, TaskFn fn, void* context) {
  static const bool registered = [] {
    pthread_atfork(nullptr, nullptr, in_child);
    return true;
  }();
  (void)registered;
  if (g_forked.load())
    throw StateError(
        "[parallel] this process was forked after mudd_core had computed; use the 'spawn' start method");
  g_computed.store(true);
  if (n_tasks <= 0) return;
  const int workers = static_cast<int>(std::min<int64_t>(num_threads(), n_tasks));
  if (workers == 1 || omp_in_parallel()) return run_alone(n_tasks, fn, context);
  Failure failure;
  std::atomic<int64_t> next{0};
  Barriers barriers;
  barriers.before();
#pragma omp parallel num_threads(workers)
  {
    barriers.enter();
    FloatState state;
    const int worker = omp_get_thread_num();
    for (int64_t i = claim(next); i < n_tasks; i = claim(next)) {
      if (failure.raised.load(std::memory_order_relaxed)) continue;
      try {
        fn(context, i, worker);
      } catch (...) {
        failure.keep();
      }
    }
    barriers.leave();
  }
  barriers.after();
  if (failure.raised.load()) std::rethrow_exception(failure.first);
}

}  // namespace mudd
