// Watchdog: a thread that makes no call of the transport. When a rank of the node has given no sign of life for
// too long, it reports what every rank of the node did last, and what came last from ranks of other nodes. A
// stopped rank's own watchdog is stopped too: others see it. Of a rank whose process is gone it prints the last
// phase; the launcher ends the job. Of ranks of other nodes that are missing when mpirun ends this one by SIGTERM
// it tells launch.py, which hears from mpirun who is gone (cli/job_check.py).
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
  // hangs(report): called once, from the watchdog's thread.
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
