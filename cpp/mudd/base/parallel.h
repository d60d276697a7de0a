// Threads. Only this file and parallel.cc use OpenMP.
//
// Work is split by shape into tasks; the thread of a task never changes its result, so bits do not depend on the
// thread count. Every worker rounds to nearest and flushes denormals to zero (FTZ and DAZ), and restores the
// caller's floating-point state afterwards (contracts 6).
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace mudd {

// Set the thread count of this process; 0 means the default (OMP_NUM_THREADS or the CPU mask).
void set_num_threads(int n);
int num_threads();

namespace detail {
using TaskFn = void (*)(void* context, int64_t task, int worker);
void run_tasks(int64_t n_tasks, TaskFn fn, void* context);
}  // namespace detail

// Return the next task of several workers. It does not order their tasks, so ThreadSanitizer finds a race
// between two.
inline int64_t claim(std::atomic<int64_t>& next) { return next.fetch_add(1, std::memory_order_relaxed); }

// The upper bound of `worker` in parallel_for: scratch is planned per worker.
constexpr int kMaxThreads = 256;

// Call body(task, worker) for task in [0, n_tasks); worker < num_threads() is the index of a scratch slot.
// Tasks start in index order: a task may wait for the end of earlier ones if none of them can throw. An
// exception in a task is rethrown here after all workers have stopped. In a forked child of a process that has
// computed, throws StateError instead of hanging.
template <class Body>
void parallel_for(int64_t n_tasks, Body&& body) {
  using B = std::remove_reference_t<Body>;
  detail::run_tasks(
      n_tasks, [](void* c, int64_t task, int worker) { (*static_cast<B*>(c))(task, worker); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace mudd
