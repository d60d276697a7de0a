// Watchdog: a thread that makes no call of the transport. When a rank of the host shows no sign of life for too
// long, it reports the last activity of every rank of the host, and the last messages from other hosts. A
// stopped rank's watchdog is stopped too: other ranks report it. If a rank's process is gone it prints the last
// phase; the launcher ends the job. If mpirun ends this rank by SIGTERM, it reports missing ranks of other
// hosts to launch.py, which learns from mpirun which ones are gone (cli/job_check.py).
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "mudd/dist/node_status.h"
#include "mudd/dist/partners.h"

namespace mudd::dist {

class Watchdog {
 public:
  // hangs(report): called once, on the watchdog's thread.
  Watchdog(const NodeStatus& status, const Partners& partners, double seconds,
           std::function<void(const std::string&)> hangs);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();
  void tell_missing();
  std::string report(const std::string& suspect) const;

  const NodeStatus& status_;
  const Partners& partners_;
  const double seconds_;
  std::function<void(const std::string&)> hangs_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  int looks_after_term_ = 0;
  std::thread thread_;
};

}  // namespace mudd::dist
