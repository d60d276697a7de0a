// The end of a rank's part in a job: by close(), by an error, by the watchdog.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "mudd/dist/rank_comm.h"

namespace mudd::dist {
namespace {

constexpr int kHung = 70;                      // exit code of a job without progress
constexpr std::chrono::seconds kLastWords{5};  // for an abort to end the process

// For launch.py (cli/names.py, CODE_FILE): its mpirun may wait without end for a host that it cannot reach.
void leave_code(int code) {
  const char* path = std::getenv("MUDD_JOB_CODE");
  std::FILE* file = path ? std::fopen(path, "w") : nullptr;
  if (!file) return;
  std::fprintf(file, "%d", code);
  std::fclose(file);
}

}  // namespace

void RankComm::watch(double seconds) {
  watchdog_.reset();
  if (seconds > 0 && world() > 1)
    watchdog_ = std::make_unique<Watchdog>(*status_, *partners_, seconds,
                                           [this](const std::string& report) { end_job(kHung, report); });
}

void RankComm::fail(int code, const std::string& message) {
  end_job(code, status_->where(node_rank()) + " failed: " + message);
}

void RankComm::end_job(int code, const std::string& text) {
  const bool first = status_->fail(text);
  if (transport_->wants_own_thread()) end_process(code, first ? text : "");
  if (first) transport_->abort(code, text);
}

// Print, unless another rank of the host has, and exit the job; also exit this process if the abort does not
// get through.
void RankComm::end_process(int code, const std::string& message) {
  if (!message.empty()) {
    std::fprintf(stderr, "[ranks] %s\n", message.c_str());
    std::fflush(stderr);
    leave_code(code);
    courier_->abort(code, message);
  }
  std::this_thread::sleep_for(kLastWords);
  _exit(code);
}

bool RankComm::close(double patience) {
  if (closed_) return true;
  left_ = true;
  status_->mine().left.store(1, std::memory_order_release);
  const auto began = std::chrono::steady_clock::now();
  const auto left = std::make_shared<std::atomic<bool>>(false);
  const auto leave = [this, left, patience, began] {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - began;
    *left = transport_->close();
    return *left || (patience > 0 && waited.count() > patience);
  };
  try {
    run(leave);
  } catch (const PeerError&) {
    // The rank that failed exits the job with its code: wait, because this rank would exit first.
    if (transport_->wants_own_thread()) std::this_thread::sleep_for(kLastWords);
    return false;
  }
  closed_ = *left;
  if (closed_) watchdog_.reset();
  return closed_;
}

}  // namespace mudd::dist
