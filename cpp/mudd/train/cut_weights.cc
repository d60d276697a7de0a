#include "mudd/train/cut_weights.h"

#include <cstring>

#include "mudd/base/check.h"
#include "mudd/kernels/convert/convert.h"

namespace mudd {
namespace {

constexpr int64_t kWidth =
    2;  // bytes of a unit of a gather; weights have 2 or 4 bytes, so any type is whole units

}  // namespace

CutWeights::CutWeights(ParamStore& store, dist::Comm& comm) : store_(store), comm_(comm) {
  check(store_.cut() && store_.cut()->slices.owners() == comm_.world(), "ranks",
        "weights: expected a store that is ", "cut over ", comm_.world(), " ranks");
  progress_ = comm_.window(sizeof(Progress));
  store_.set_source(this);
}

std::byte* CutWeights::memory(int64_t bytes) {
  if (bytes > largest_) {
    windows_.push_back(comm_.window(comm_.node_rank() == 0 ? bytes : 0));
    largest_ = bytes;
  }
  return windows_.back()->part(0);
}

void CutWeights::wait_for_node(std::atomic<uint64_t> Progress::* count, uint64_t at_least) {
  for (int r = 0; r < comm_.node_size(); ++r)
    comm_.wait([&] { return (progress(r).*count).load(std::memory_order_acquire) >= at_least; });
}

void CutWeights::post(std::span<const Wanted> wanted, std::byte* to) {
  const uint64_t turn = progress(comm_.node_rank()).posted.fetch_add(1, std::memory_order_acq_rel) + 1;
  wait_for_node(&Progress::posted, turn);  // no rank of the host reads the previous content
  std::vector<dist::OwnedRange> pieces;
  for (const Wanted& w : wanted) {
    copy_own(w, to);
    for (int node = 0; node < comm_.nodes(); ++node) {
      const Part part = store_.cut()->slices.part(w.parameter, owner_of(comm_, node, comm_.node_rank()));
      const int64_t number = size_of(w.dtype);
      pieces.push_back({.offset = (w.offset + part.begin * number) / kWidth,
                        .length = part.size() * number / kWidth,
                        .owner = node});
    }
  }
  on_their_way_.push_back(comm_.gather_between_nodes(to, kWidth, pieces));
}

// Copy the own slice in the type of the readers.
void CutWeights::copy_own(const Wanted& wanted, std::byte* to) const {
  const Part own = store_.cut()->own(wanted.parameter);
  if (own.size() == 0) return;
  const Tensor held = store_.planes().weights(wanted.parameter);
  const int64_t number = size_of(wanted.dtype);
  std::byte* at = to + wanted.offset + own.begin * number;
  if (held.dtype == wanted.dtype) std::memcpy(at, held.data, static_cast<size_t>(own.size() * number));
  else narrow(own.size(), held.f32(), reinterpret_cast<bf16*>(at));
}

void CutWeights::await() {
  const dist::InnerPhase phase(comm_, dist::Phase::gather);
  const auto first = on_their_way_.front();
  comm_.wait([&] { return first->done(); });
  on_their_way_.pop_front();
  const uint64_t turn = progress(comm_.node_rank()).arrived.fetch_add(1, std::memory_order_acq_rel) + 1;
  wait_for_node(&Progress::arrived, turn);
}

}  // namespace mudd
