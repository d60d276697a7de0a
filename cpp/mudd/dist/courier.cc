#include "mudd/dist/courier.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "mudd/base/steady_seconds.h"

namespace mudd::dist {
namespace {

// Sleep times between polls during computation, during long messages and during a wait
// (docs/decisions/ranks.md, "One thread per rank makes every MPI call").
constexpr std::chrono::microseconds kBeside{1000}, kMoving{200}, kUrgent{20};
constexpr std::chrono::microseconds kLongPoll{300};  // a poll that copied a lot: a fast link
constexpr int kQuickPolls = 100;
constexpr int kInTurn = 2;  // tasks at a time: one computes or waits for its partner while the other sends

}  // namespace

bool Courier::Ticket::done() const {
  if (!done_.load(std::memory_order_acquire)) return false;
  if (error_) std::rethrow_exception(error_);
  return true;
}

Courier::Courier(Transport& transport) : transport_(transport) {
  // The main thread handles signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Courier::~Courier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  bring_news();
  thread_.join();
}

std::shared_ptr<Courier::Ticket> Courier::post(Task task, Turn turn) {
  auto ticket = std::make_shared<Ticket>();
  {
    const std::lock_guard lock(mutex_);
    if (busy_since_ < 0) busy_since_ = steady_seconds();
    posted_.push_back({std::move(task), turn, ticket});
  }
  bring_news();
  return ticket;
}

double Courier::busy_seconds() const {
  const std::lock_guard lock(mutex_);
  return busy_since_ < 0 ? busy_ : busy_ + steady_seconds() - busy_since_;
}

// Stop the clock of busy_seconds if all work is done.
void Courier::rest(const std::vector<Job>& jobs) {
  const std::lock_guard lock(mutex_);
  if (!jobs.empty() || !posted_.empty() || busy_since_ < 0) return;
  busy_ += steady_seconds() - busy_since_;
  busy_since_ = -1;
}

void Courier::abort(int code, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    aborting_ = true;
    abort_code_ = code;
    abort_message_ = message;
  }
  bring_news();
}

// An atomic's wait instead of a condition variable: libstdc++ of GCC 12 gave the latter a symbol that
// manylinux_2_34 of the wheel lacks.
void Courier::bring_news() {
  news_.fetch_add(1, std::memory_order_release);
  news_.notify_one();
}

// Sleep while there is no work; return false when the thread must end.
bool Courier::take_new(std::vector<Job>& jobs) {
  while (true) {
    const int seen = news_.load(std::memory_order_acquire);
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return false;
      if (std::exchange(aborting_, false)) transport_.abort(abort_code_, abort_message_);
      std::move(posted_.begin(), posted_.end(), std::back_inserter(jobs));
      posted_.clear();
    }
    if (!jobs.empty()) return true;
    news_.wait(seen, std::memory_order_acquire);
  }
}

// Call every task in turn once; return true if one of them ended.
bool Courier::advance(std::vector<Job>& jobs) {
  int in_turn = 0;
  const auto left = std::remove_if(jobs.begin(), jobs.end(), [&](Job& job) {
    if (job.turn == Turn::in_turn && ++in_turn > kInTurn) return false;
    bool ended = true;
    try {
      ended = job.task();
    } catch (...) {
      job.ticket->error_ = std::current_exception();
    }
    if (!ended) return false;
    job.task = nullptr;
    job.ticket->done_.store(true, std::memory_order_release);
    return true;
  });
  const bool some = left != jobs.end();
  jobs.erase(left, jobs.end());
  return some;
}

void Courier::run() {
  std::vector<Job> jobs;
  for (int polls = 0; take_new(jobs); ++polls) {
    if (std::string message; transport_.failure(&message)) {
      jobs.clear();  // no thread waits for them, and their memory may be freed
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    const bool moving = transport_.progress() || std::chrono::steady_clock::now() - start > kLongPoll;
    if (advance(jobs)) polls = 0;
    rest(jobs);
    if (jobs.empty()) continue;
    const bool urgent =
        std::any_of(jobs.begin(), jobs.end(), [](const Job& job) { return job.turn == Turn::urgent; });
    if (!urgent) std::this_thread::sleep_for(moving ? kMoving : kBeside);
    else if (polls < kQuickPolls) std::this_thread::yield();
    else std::this_thread::sleep_for(kUrgent);
  }
}

}  // namespace mudd::dist
