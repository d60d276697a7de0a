#include "mudd/base/stop.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "mudd/base/check.h"

namespace mudd {
namespace {

// A handler may only touch lock-free atomics and call async-signal-safe functions.
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic<int> g_stop{0};  // 0 none, -1 without a signal, else the signal
std::atomic<int> g_save{0};

// The signals of a stop; the ones that quit come first. A shell and its terminal send one SIGHUP each.
constexpr std::array kStops = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
constexpr std::span<const int> kQuits = std::span(kStops).first(2);
constexpr int kSave = SIGUSR2;
constexpr int kCount = kStops.size() + 1;
struct sigaction g_before[kCount];
bool g_installed = false;
bool g_says = true;  // answer a request on standard error

int signal_at(int i) { return i + 1 < kCount ? kStops[i] : kSave; }

void say(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  (void)written;  // no place to report it
}

void on_signal(int signal) {
  const int saved_errno = errno;
  if (signal == kSave) {
    g_save.store(1);
  } else if (int none = 0; g_stop.compare_exchange_strong(none, signal)) {
    if (g_says) say("\nstop requested; a second signal leaves at once\n");
  } else if (std::ranges::find(kQuits, signal) != kQuits.end()) {
    _exit(128 + signal);
  }
  errno = saved_errno;
}

}  // namespace

std::span<const int> stop_signals() { return kStops; }
std::span<const int> quit_signals() { return kQuits; }
int save_signal() { return kSave; }

void install_stop_handlers(bool says) {
  if (g_installed) throw StateError("[stop] signals: the handlers are installed already");
  g_says = says;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // a stop request must not fail a read or write of a file
  for (int i = 0; i < kCount; ++i) {
    sigaction(signal_at(i), &action, &g_before[i]);
    const bool nohup = signal_at(i) == SIGHUP && g_before[i].sa_handler == SIG_IGN;
    if (nohup) sigaction(SIGHUP, &g_before[i], nullptr);
  }
  g_installed = true;
}

void remove_stop_handlers() {
  if (!g_installed) return;
  for (int i = 0; i < kCount; ++i) sigaction(signal_at(i), &g_before[i], nullptr);
  g_installed = false;
}

bool stop_requested() { return g_stop.load(std::memory_order_relaxed) != 0; }

int stop_signal() {
  const int stop = g_stop.load();
  return stop > 0 ? stop : 0;
}

void request_stop() {
  int none = 0;
  g_stop.compare_exchange_strong(none, -1);
}

bool take_save_request() { return g_save.exchange(0) != 0; }

void clear_requests() {
  g_stop.store(0);
  g_save.store(0);
}

}  // namespace mudd
