// Threads. The only file (with parallel.cc) that knows OpenMP.
//
// Work is cut by shape into tasks; which thread runs a task never changes its result, so bits do not
// depend on the thread count. Every worker runs with round-to-nearest, denormals kept flushed to zero
// (FTZ and DAZ), and gets its caller's floating-point state back afterwards (contracts 6).
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace mudd {

// Threads used from now on by this process; 0 asks for the default (OMP_NUM_THREADS or the CPU mask).
void set_num_threads(int n);
int num_threads();

namespace detail {
using TaskFn = void (*)(void* context, int64_t task, int worker);
void run_tasks(int64_t n_tasks, TaskFn fn, void* context);
}  // namespace detail

// The next task of several workers. Orders nothing between their tasks, so that ThreadSanitizer finds a race of
// two.
inline int64_t claim(std::atomic<int64_t>& next) { return next.fetch_add(1, std::memory_order_relaxed); }

// Upper bound of `worker` in parallel_for: scratch is booked per worker where a task needs some.
constexpr int kMaxThreads = 256;

// Calls body(task, worker) for task in [0, n_tasks); worker < num_threads() names a scratch slot. Tasks begin in
// the order of their numbers: one may wait for the end of lower ones if none of them can throw.
// An exception in a task is rethrown here after all workers have stopped.
// In a forked child of a process that has computed, throws StateError instead of hanging.
template <class Body>
void parallel_for(int64_t n_tasks, Body&& body) {
  using B = std::remove_reference_t<Body>;
  detail::run_tasks(
      n_tasks, [](void* c, int64_t task, int worker) { (*static_cast<B*>(c))(task, worker); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace mudd
