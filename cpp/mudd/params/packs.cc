#include "mudd/params/packs.h"

#include <algorithm>

#include "mudd/base/parallel.h"
#include "mudd/kernels/gemm/gemm.h"
#include "mudd/kernels/gemm/pack_block.h"
#include "mudd/params/units.h"

namespace mudd {

void Packs::request(int i, Pack how) {
  StoreBlock& pack = copy(i, how);
  if (pack.data) return;
  pack = memory_.take(matrices(i) * stride(i, how), share_ && parameters_.holds_whole(i));
  requested_.emplace_back(i, how);
  if (memory_.booked_only()) return;
  if (pack.own.data() || i % memory_.share().size == memory_.share().rank) pack_weights_of(i, how);
  if (!pack.own.data()) memory_.share().barrier();
}

void Packs::drop_after(size_t requests) {
  for (; requested_.size() > requests; requested_.pop_back()) {
    StoreBlock& pack = copy(requested_.back().first, requested_.back().second);
    if (pack.own.data()) pack = {};  // shared memory lives as long as the store
  }
}

std::byte* Packs::by_update(int i, Pack how) const { return is_own(i, how) ? nullptr : copy(i, how).data; }

// Return true for a copy in this process only of weights that the host shares and other processes update too.
bool Packs::is_own(int i, Pack how) const {
  return memory_.shared() && copy(i, how).own.data() && parameters_.holds_whole(i);
}

int64_t Packs::stride(int i, Pack how) const {
  const Parameter& p = parameters_.at(i);
  return how == Pack::plain ? mudd::packed_bytes(p.matrix_rows(), p.cols(), compute_)
                            : mudd::packed_bytes(p.cols(), p.matrix_rows(), compute_);
}

int64_t Packs::first_matrix(int i) const {
  const Parameter& p = parameters_.at(i);
  return p.size() > 0 ? parameters_.held(i).begin / (p.matrix_rows() * p.cols()) : 0;
}

int64_t Packs::matrices(int i) const {
  const Parameter& p = parameters_.at(i);
  return p.size() > 0 ? parameters_.held(i).size() / (p.matrix_rows() * p.cols()) : 0;
}

void Packs::pack_weights_of(int i, Pack how) {
  const Parameter& p = parameters_.at(i);
  for (int64_t s = 0; s < matrices(i); ++s)
    pack_weight(planes_.weights(i).cells() + s * p.matrix_rows() * p.cols(), p.matrix_rows(), p.cols(),
                how == Pack::transposed, at(i, how) + s * stride(i, how), compute_);
}

void Packs::refresh_own() {
  if (!memory_.shared() || !own_stale_) return;
  for (int i = 0; i < parameters_.count(); ++i)
    for (Pack how : {Pack::plain, Pack::transposed})
      if (is_own(i, how)) pack_weights_of(i, how);
  own_stale_ = false;
}

bool Packs::has_own() const {
  return std::any_of(requested_.begin(), requested_.end(),
                     [this](const auto& request) { return is_own(request.first, request.second); });
}

void Packs::repack(int i) {
  for (Pack how : {Pack::plain, Pack::transposed})
    if (at(i, how)) pack_weights_of(i, how);
}

void Packs::repack(const Part& part) {
  const Parameter& p = parameters_.at(part.parameter);
  const int64_t matrix = p.matrix_rows() * p.cols();
  for (int64_t s = part.begin / matrix; part.size() > 0 && s * matrix < part.end; ++s) {
    const auto panels = [&](Pack how) -> void* {
      std::byte* all = by_update(part.parameter, how);
      return all ? all + (s - first_matrix(part.parameter)) * stride(part.parameter, how) : nullptr;
    };
    const PackedMatrix packed{.w = planes_.master_at(part.parameter, s * matrix),
                              .rows = p.matrix_rows(),
                              .cols = p.cols(),
                              .plain = panels(Pack::plain),
                              .transposed = panels(Pack::transposed),
                              .compute = compute_};
    if (!packed.plain && !packed.transposed) continue;
    const int64_t first = std::max(part.begin - s * matrix, int64_t{0}) / p.cols();
    const int64_t end = std::min(part.end - s * matrix, matrix) / p.cols();
    parallel_for((end - first + kUnitRows - 1) / kUnitRows, [&](int64_t task, int) {
      const int64_t r = first + task * kUnitRows;
      pack_block(packed, r, std::min(r + kUnitRows, end), 0, p.cols());
    });
  }
}

void Packs::repack_all() {
  if (!memory_.shared()) {
    for (int i = 0; i < parameters_.count(); ++i) repack(i);
    return;
  }
  memory_.share().barrier();  // all processes write the masters
  for (int i = 0; i < parameters_.count(); ++i) {
    if (parameters_.holds_whole(i) && i % memory_.share().size != memory_.share().rank) continue;
    for (Pack how : {Pack::plain, Pack::transposed})
      if (by_update(i, how)) pack_weights_of(i, how);
  }
  own_stale_ = true;
  refresh_own();
  memory_.share().barrier();
}

int64_t Packs::bytes() const {
  int64_t all = 0;
  for (const Copies& p : copies_) all += p.plain.bytes + p.transposed.bytes;
  return all;
}

}  // namespace mudd
