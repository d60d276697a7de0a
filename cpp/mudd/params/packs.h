// Packs: the packed copies of weights for GEMMs, in the compute type. Code that writes a master weight must
// repack it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "mudd/base/types.h"
#include "mudd/params/planes.h"

namespace mudd {

class Packs {
 public:
  // All arguments must outlive it. compute: type of the copies, f32 or bf16.
  Packs(const Declarations& parameters, const Planes& planes, const StoreMemory& memory, DType compute)
      : parameters_(parameters), planes_(planes), memory_(memory), compute_(compute) {}
  DType compute() const { return compute_; }

  // Call it after the planes are allocated, before the first request.
  void allocate() { copies_.resize(static_cast<size_t>(parameters_.count())); }
  // Place copies requested from now on in shared memory, if the processes of the host share the weights.
  void share(bool on) { share_ = on; }
  // Create a copy from the weights, unless there is one.
  void request(int i, Pack how);
  // Return the count of requested copies; drop_after frees the copies of this process that were requested after
  // it. No executor created in between may run again: it points at them.
  size_t requests() const { return requested_.size(); }
  void drop_after(size_t requests);
  std::byte* at(int i, Pack how) const { return copy(i, how).data; }  // nullptr if not requested
  // Return the copy that an update refreshes piece by piece: nullptr for a copy of this process only, if the
  // host shares its weights. refresh_own refreshes such copies after masters_written.
  std::byte* by_update(int i, Pack how) const;
  // Return the bytes between the matrices of a stack.
  int64_t stride(int i, Pack how) const;
  // Return the first local matrix of a stack, and the count of local ones; copies have these only.
  int64_t first_matrix(int i) const;
  int64_t matrices(int i) const;

  void masters_written() { own_stale_ = true; }
  void refresh_own();
  // Return true if a copy is in this process only while the host shares its weights.
  bool has_own() const;

  void repack(int i);
  void repack(const Part& part);  // whole units; copies that an update refreshes
  void repack_all();              // if the host shares its weights, by all of its processes together

  int64_t bytes() const;

 private:
  struct Copies {
    StoreBlock plain, transposed;
  };
  StoreBlock& copy(int i, Pack how) { return how == Pack::plain ? copies_[i].plain : copies_[i].transposed; }
  const StoreBlock& copy(int i, Pack how) const {
    return how == Pack::plain ? copies_[i].plain : copies_[i].transposed;
  }
  void pack_weights_of(int i, Pack how);
  bool is_own(int i, Pack how) const;

  const Declarations& parameters_;
  const Planes& planes_;
  const StoreMemory& memory_;
  DType compute_;
  std::vector<Copies> copies_;
  std::vector<std::pair<int, Pack>> requested_;
  bool share_ = false, own_stale_ = false;
};

}  // namespace mudd
