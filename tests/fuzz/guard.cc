#include "guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Of the sanitizers' allocator_interface.h, which gcc 12 does not install.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                                         void (*on_free)(const volatile void*));
extern "C" std::size_t __sanitizer_get_allocated_size(const volatile void* data);

namespace fuzz {
namespace {

constexpr int kSeconds = 10;  // of a run

// The run of the child, where its parent finds it.
struct Running {
  std::atomic<bool> inside{false};
  std::uint64_t run = 0;
  std::size_t size = 0;
  std::uint8_t data[1 << 20];
};

Running* running = nullptr;
std::atomic<int> ticks{0};
std::atomic<std::size_t> live{0}, peak{0};

void on_tick(int) {
  if (running->inside && ++ticks > kSeconds) end_with("a run of more than 10 s");
}

void on_malloc(const volatile void*, std::size_t size) {
  const std::size_t now = live += size;
  if (now > peak) peak = now;
}

void on_free(const volatile void* data) {
  if (data != nullptr) live -= std::min<std::size_t>(live, __sanitizer_get_allocated_size(data));
}

void watch() {
  __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  signal(SIGALRM, on_tick);
  const itimerval second = {{1, 0}, {1, 0}};
  setitimer(ITIMER_REAL, &second, nullptr);
}

}  // namespace

int run_guarded(const std::string& folder, std::uint64_t seed, const std::function<void()>& session) {
  void* shared = mmap(nullptr, sizeof(Running), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error("no shared memory");
  running = new (shared) Running;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no child process");
  if (child == 0) {
    watch();
    session();
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  const std::string name(target.name);
  if (running->inside) {
    const std::string file = folder + "/" + name + "-" + std::to_string(seed) + "-" + std::to_string(running->run);
    write_file(file, {running->data, running->size});
    std::fprintf(stderr, "fuzz %s: FAILED at run %llu of seed %llu; the input is %s\n", name.c_str(),
                 static_cast<unsigned long long>(running->run), static_cast<unsigned long long>(seed),
                 file.c_str());
  } else {
    std::fprintf(stderr, "fuzz %s: FAILED behind the last run of seed %llu\n", name.c_str(),
                 static_cast<unsigned long long>(seed));
  }
  return 1;
}

void enter_run(const Bytes& input, std::uint64_t run) {
  running->run = run;
  running->size = std::min(input.size(), sizeof running->data);
  if (!input.empty()) std::memcpy(running->data, input.data(), running->size);
  ticks = 0;
  live = 0;
  peak = 0;
  running->inside = true;
}

void leave_run() {
  const std::size_t allowed = 4 * running->size + (std::size_t{16} << 20);
  require(peak <= allowed, "memory of at most 4 x input + 16 MiB");
  running->inside = false;
}

void end_with(const char* reason) {
  std::fprintf(stderr, "fuzz %.*s: %s\n", static_cast<int>(target.name.size()), target.name.data(), reason);
  _exit(1);
}

}  // namespace fuzz
