// The memory of plans, and the addresses of a plan that is only booked.
#include "mudd/base/arena.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "compare.h"

using mudd::Arena;

TEST_CASE("an arena has zeros, also after a release") {
  Arena arena(100000);
  CHECK(reinterpret_cast<uintptr_t>(arena.data()) % mudd::kAlignment == 0);
  CHECK(arena.data()[99999] == std::byte{0});
  arena.data()[99999] = std::byte{1};
  arena.release();
  CHECK(arena.data()[99999] == std::byte{0});
}

TEST_CASE("booked addresses cannot be mapped, and an access ends the program") {
  const int64_t bytes = int64_t{1} << 46;
  const Arena arena(bytes, true);
  CHECK(reinterpret_cast<uintptr_t>(arena.data()) % mudd::kAlignment == 0);
  for (const int64_t at : {int64_t{0}, int64_t{1} << 30, bytes - 1}) {
    // ARM ignores the highest byte of an address; with bit 55 it is an address of the kernel.
    CHECK((reinterpret_cast<uintptr_t>(arena.data() + at) >> 55 & 1) == 1);
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGSEGV, SIG_DFL);
      std::signal(SIGBUS, SIG_DFL);
      *const_cast<volatile std::byte*>(arena.data() + at) = std::byte{1};
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
  }
}
