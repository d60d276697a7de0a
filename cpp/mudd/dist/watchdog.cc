#include "mudd/dist/watchdog.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include "mudd/base/stop.h"

namespace mudd::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::duration<double> kForNotes{10};  // at most
constexpr int kLooks = 4;                               // after SIGTERM; mpirun kills after a second

}  // namespace

Watchdog::Watchdog(const NodeStatus& status, const Partners& partners, double seconds,
                   std::function<void(const std::string&)> hangs)
    : status_(status), partners_(partners), seconds_(seconds), hangs_(std::move(hangs)) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::run() {
  const auto limit = std::chrono::duration<double>(seconds_);
  const auto between = std::chrono::duration<double>(std::min(0.1, seconds_ / 8));
  std::vector<uint64_t> beats(static_cast<size_t>(status_.ranks()), ~uint64_t{0});
  std::vector<Clock::time_point> heard(beats.size(), Clock::now());
  auto last = Clock::now();
  for (std::unique_lock lock(mutex_); !wake_.wait_for(lock, between, [&] { return stop_; });) {
    const auto now = Clock::now();
    // This process was stopped as well, or the machine slept: all ranks get the whole time again.
    const bool absent = now - last > limit / 2;
    last = now;
    tell_missing();
    int quiet = 0, suspect = -1;
    for (int r = 0; r < status_.ranks(); ++r) {
      if (status_.newly_gone(r))
        std::fprintf(stderr, "[ranks] %s is gone: its process was killed\n", status_.where(r).c_str());
      const uint64_t seen = status_.slot(r).beats.load(std::memory_order_relaxed);
      if (absent || seen != beats[r]) {
        beats[r] = seen;
        heard[r] = now;
      }
      if (now - heard[r] <= limit) continue;
      ++quiet;
      if (suspect < 0 && status_.slot(r).waiting.load() == 0) suspect = r;
    }
    // A rank that waits for a working rank is not hung.
    if (suspect < 0 && quiet < status_.ranks()) continue;
    // All wait: for a rank of another host, or for the one with the least progress, which was stopped while it
    // waited.
    const int partner = suspect < 0 ? partners_.missing() : -1;
    if (suspect < 0) suspect = static_cast<int>(std::min_element(beats.begin(), beats.end()) - beats.begin());
    std::string first = status_.where(suspect);
    if (partner >= 0) {
      // That rank may wait for a third one, which only a line of its host reports: wait for these lines.
      std::fprintf(stderr, "[ranks] %s; the first of them is rank %d\n", first.c_str(), partner);
      if (wake_.wait_for(lock, std::min(limit / 4, kForNotes), [&] { return stop_; })) return;
      first = partners_.where(partner) + ", unless a line above names a rank that it waits for";
    }
    lock.unlock();
    return hangs_(report(first));
  }
}

// Report once, after some polls, so that this rank has reached its next message: the missing ranks, else all
// that sent one.
void Watchdog::tell_missing() {
  static const bool launched = std::getenv("MUDD_JOB_PROCESS") != nullptr;
  if (!launched || stop_signal() != SIGTERM || ++looks_after_term_ != kLooks) return;
  bool some = false;
  for (int r = 0; r < partners_.ranks(); ++r) some = some || partners_.is_missing(r);
  for (int r = 0; r < partners_.ranks(); ++r)
    if (const std::string line = partners_.where(r); !line.empty() && (!some || partners_.is_missing(r)))
      std::fprintf(stderr, "[ranks] at the end: %s\n", line.c_str());
}

std::string Watchdog::report(const std::string& suspect) const {
  std::ostringstream text;
  text << "no progress for " << seconds_ << " s (dist.hang_timeout); look first at " << suspect
       << "; last phases:";
  for (int r = 0; r < status_.ranks(); ++r) text << "\n  " << status_.where(r);
  for (int r = 0; r < partners_.ranks(); ++r)
    if (const std::string sender = partners_.where(r); !sender.empty()) text << "\n  " << sender;
  return text.str();
}

}  // namespace mudd::dist
