#include "mudd/dist/comm_timer.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "mudd/base/check.h"
#include "mudd/kernels/reduce/reduce.h"

namespace mudd::dist {
namespace {

// Return (first, count): the i-th of n parts of a flat buffer.
std::pair<int64_t, int64_t> share(int64_t elements, int i, int n) {
  const int64_t first = elements * i / n;
  return {first, elements * (i + 1) / n - first};
}

constexpr int64_t kFloat = sizeof(float);

}  // namespace

CommTimer::CommTimer(Comm& comm, int64_t largest)
    : comm_(comm), largest_(largest), window_(comm.window(largest)), gathered_(static_cast<size_t>(largest)) {}

void CommTimer::message(int64_t bytes) {
  const int other = comm_.nodes() > 1 ? comm_.world() - comm_.node_size() : comm_.world() - 1;
  comm_.broadcast(gathered_.data(), bytes, 0);
  comm_.broadcast(gathered_.data(), bytes, other);
}

void CommTimer::all_gather(int64_t bytes) {
  comm_.all_gather(window_->part(comm_.node_rank()), bytes / comm_.world(), gathered_.data());
}

void CommTimer::node_sum(int64_t bytes) {
  const auto [first, count] = share(bytes / kFloat, comm_.node_rank(), comm_.node_size());
  std::vector<const float*> planes;
  for (int r = 0; r < comm_.node_size(); ++r)
    planes.push_back(reinterpret_cast<const float*>(window_->part(r)) + first);
  if (count > 0) sum_planes(planes, reinterpret_cast<float*>(window_->part(comm_.node_rank())) + first, count);
  comm_.node_barrier();
}

std::vector<OwnedRange> CommTimer::pieces(int64_t bytes) const {
  const auto [begin, length] = share(bytes / kFloat, comm_.node_rank(), comm_.node_size());
  std::vector<OwnedRange> pieces;
  for (int node = 0; node < comm_.nodes(); ++node) {
    const auto [first, count] = share(length, node, comm_.nodes());
    pieces.push_back({.offset = begin + first, .length = count, .owner = node});
  }
  return pieces;
}

double CommTimer::seconds(const std::string& what, int64_t bytes, int repeats) {
  check(bytes >= kFloat && bytes <= largest_ && repeats > 0, "commbench", "bytes: expected 4 to ", largest_,
        ", got ", bytes);
  auto* plane = reinterpret_cast<float*>(window_->part(comm_.node_rank()));
  const std::vector<OwnedRange> parts = pieces(bytes);
  const auto finish = [&](const std::shared_ptr<Pending>& work) { comm_.wait([&] { return work->done(); }); };
  std::function<void()> once;
  if (what == "message") once = [&] { message(bytes); };
  if (what == "all_gather") once = [&] { all_gather(bytes); };
  if (what == "node_sum") once = [&] { node_sum(bytes); };
  if (what == "sum") once = [&] { finish(comm_.sum_between_nodes(plane, parts)); };
  if (what == "gather") once = [&] { finish(comm_.gather_between_nodes(plane, kFloat, parts)); };
  check(once != nullptr, "commbench", "what: expected message, all_gather, node_sum, sum or gather, got ", what);
  std::vector<double> taken;
  for (int i = 0; i <= repeats; ++i) {
    comm_.barrier();
    const auto start = std::chrono::steady_clock::now();
    once();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (i > 0) taken.push_back(what == "message" ? time.count() / 2 : time.count());
  }
  std::nth_element(taken.begin(), taken.begin() + repeats / 2, taken.end());
  return taken[static_cast<size_t>(repeats / 2)];
}

}  // namespace mudd::dist
