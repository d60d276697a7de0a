// A library for LD_PRELOAD: the allocation by operator new after `new_countdown` others throws std::bad_alloc.
#include <cstdlib>
#include <new>

extern "C" {
int new_countdown = -1;  // negative: none fails
}

void* operator new(std::size_t bytes) {
  if (new_countdown >= 0 && new_countdown-- == 0) throw std::bad_alloc();
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
