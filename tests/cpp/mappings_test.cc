// A second mapping of shared memory, on systems with pages of 4, 16 and 64 KiB.
#include "mudd/dist/mappings.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "compare.h"

namespace {

long page = 0;  // 0: the page size of this system
constexpr size_t kLargest = size_t{64} << 10, kWindow = 4 * kLargest;

// Shared memory whose start is a multiple of the largest page size.
class Window {
 public:
  Window() {
    void* found = mmap(nullptr, kWindow + kLargest, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) throw std::runtime_error("mmap");
    all_ = static_cast<std::byte*>(found);
    const auto start = reinterpret_cast<uintptr_t>(all_);
    data = all_ + (kLargest - start % kLargest) % kLargest;
  }
  ~Window() { munmap(all_, kWindow + kLargest); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  std::byte* data = nullptr;

 private:
  std::byte* all_ = nullptr;
};

void check_pages(long bytes) {
  CAPTURE(bytes);
  page = bytes;
  const Window window;
  const auto room = std::make_shared<std::atomic<int64_t>>(int64_t{kWindow});
  {
    mudd::dist::Mappings mappings(room, 3000);
    CHECK(*room == int64_t{kWindow} - 3000);
    CHECK(mappings.add(window.data, 0) == nullptr);
    // Parts that start and end inside a page, across pages, and at the end of the window.
    for (const auto& [begin, size] :
         {std::pair<size_t, size_t>{0, 1}, {64, 5000}, {70000, 100000}, {kWindow - 9, 9}}) {
      std::byte* second = mappings.add(window.data + begin, static_cast<int64_t>(size));
      REQUIRE(second != window.data + begin);
      window.data[begin] = std::byte{7};
      second[size - 1] = std::byte{9};
      CHECK((second[0] == std::byte{7} || size == 1));
      CHECK(window.data[begin + size - 1] == std::byte{9});
    }
  }
  CHECK(*room == int64_t{kWindow});
  page = 0;
}

}  // namespace

// In place of libc's, so that the code under test sees the page size of another system and its refusals.
extern "C" long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE && page != 0) return page;
  static const auto real = reinterpret_cast<long (*)(int)>(dlsym(RTLD_NEXT, "sysconf"));
  return real(name);
}

extern "C" void* mremap(void* old, size_t old_bytes, size_t bytes, int flags, ...) noexcept {
  if (page != 0 && reinterpret_cast<uintptr_t>(old) % static_cast<uintptr_t>(page) != 0) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mremap, old, old_bytes, bytes, flags, nullptr));
}

TEST_CASE("parts of a window are mapped again with every page size") {
  check_pages(0);
  for (const long bytes : {16L << 10, 64L << 10})
    if (bytes >= sysconf(_SC_PAGESIZE)) check_pages(bytes);
}
