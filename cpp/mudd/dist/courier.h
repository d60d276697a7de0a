// Courier: the communication thread of a rank. It makes every call of the transport, polls, and sleeps between
// polls; it never blocks inside a call, so that an abort always gets through. Without work it sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "mudd/dist/comm.h"
#include "mudd/dist/transport.h"

namespace mudd::dist {

class Courier {
 public:
  // Work that is called repeatedly until it returns true.
  using Task = std::function<bool()>;
  // The schedule of a task. urgent: a thread waits for it, so poll often. beside: at the same time as all
  // others. in_turn: in the order of posting, few at a time, so that the first ones do not share the link with
  // all others.
  enum class Turn { urgent, beside, in_turn };

  // One task; done() throws the exception of the task.
  class Ticket final : public Pending {
   public:
    bool done() const override;

   private:
    friend class Courier;
    std::atomic<bool> done_{false};
    std::exception_ptr error_;
  };

  explicit Courier(Transport& transport);
  ~Courier();  // drops unfinished tasks
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  std::shared_ptr<Ticket> post(Task task, Turn turn);
  // Return the seconds so far in which a task was posted and not done.
  double busy_seconds() const;
  // Abort the transport before any other work; does not wait.
  void abort(int code, const std::string& message);

 private:
  struct Job {
    Task task;
    Turn turn;
    std::shared_ptr<Ticket> ticket;
  };
  void run();
  void bring_news();
  bool take_new(std::vector<Job>& jobs);
  static bool advance(std::vector<Job>& jobs);
  void rest(const std::vector<Job>& jobs);

  Transport& transport_;
  mutable std::mutex mutex_;
  std::atomic<int> news_{0};  // counts the events of post(), abort() and the destructor; the thread waits on it
  std::vector<Job> posted_;
  double busy_ = 0, busy_since_ = -1;  // seconds without the current work; its start, or negative without work
  bool stop_ = false, aborting_ = false;
  int abort_code_ = 0;
  std::string abort_message_;
  std::thread thread_;
};

}  // namespace mudd::dist
