// Watchdog: a thread that makes no call of the transport. When a rank of the node has given no sign of life for
// too long, it reports what every rank of the node did last, and what came last from ranks of other nodes. A
// stopped rank's own watchdog is stopped too: others see it. Of a rank whose process is gone it prints the last
// phase; the launcher ends the job.
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
  std::string report(const std::string& suspect) const;

  const NodeStatus& status_;
  const Partners& partners_;
  const double seconds_;
  std::function<void(const std::string&)> hangs_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace mudd::dist
