#include "testing/late_transport.h"

#include <chrono>
#include <cstring>
#include <map>
#include <utility>

namespace mudd::dist {
namespace {

class LateTransport final : public Transport {
 public:
  LateTransport(std::unique_ptr<Transport> inner, double seconds) : inner_(std::move(inner)), delay_(seconds) {}

  RankPlace open() override { return inner_->open(); }
  RankPlace find_node() override { return inner_->find_node(); }

  Request isend(const void* data, int64_t bytes, int to, int tag) override {
    return keep({.posted = true, .request = inner_->isend(data, bytes, to, tag)});
  }

  Request irecv(void* data, int64_t bytes, int from, int tag) override {
    if (bytes > 0) std::memset(data, 0xff, static_cast<size_t>(bytes));
    return keep({.data = data, .bytes = bytes, .from = from, .tag = tag, .due = Clock::now() + delay_});
  }

  bool progress() override { return inner_->progress(); }

  bool test(Request request) override {
    post_due();
    const Open& open = open_.at(request);
    if (!open.posted || !inner_->test(open.request)) return false;
    open_.erase(request);
    return true;
  }

  bool window(int64_t bytes, WindowMemory& made) override { return inner_->window(bytes, made); }
  int64_t shared_bytes_free() const override { return inner_->shared_bytes_free(); }
  void split_nodes() override { inner_->split_nodes(); }
  void abort(int code, const std::string& message) override { inner_->abort(code, message); }
  bool close() override { return inner_->close(); }
  bool failure(std::string* message) const override { return inner_->failure(message); }
  bool wants_own_thread() const override { return inner_->wants_own_thread(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    bool posted = false;  // with the other transport, as `request`
    Request request = 0;
    void* data = nullptr;
    int64_t bytes = 0;
    int from = 0, tag = 0;
    std::chrono::time_point<Clock, std::chrono::duration<double>> due{};
  };

  Request keep(const Open& open) {
    open_.emplace(++last_, open);
    return last_;
  }

  // Post receives in the order of their calls: messages with equal ends and tag arrive in order.
  void post_due() {
    for (auto& [number, open] : open_) {
      if (open.posted) continue;
      if (Clock::now() < open.due) return;
      open.request = inner_->irecv(open.data, open.bytes, open.from, open.tag);
      open.posted = true;
    }
  }

  std::unique_ptr<Transport> inner_;
  std::chrono::duration<double> delay_;
  std::map<Request, Open> open_;
  Request last_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_late(std::unique_ptr<Transport> transport, double seconds) {
  return std::make_unique<LateTransport>(std::move(transport), seconds);
}

}  // namespace mudd::dist
