// Packs: the packed copies of weights that GEMMs read, in the compute type. Code that writes a master weight
// must repack it.
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
  // All of them outlive it. compute: type of the copies, f32 or bf16.
  Packs(const Declarations& parameters, const Planes& planes, const StoreMemory& memory, DType compute)
      : parameters_(parameters), planes_(planes), memory_(memory), compute_(compute) {}
  DType compute() const { return compute_; }

  // After the planes are allocated, before the first request.
  void allocate() { copies_.resize(static_cast<size_t>(parameters_.count())); }
  // Whether copies requested from now on are the node's, where its processes share the weights.
  void share(bool on) { share_ = on; }
  // Makes a copy from the weights, unless there is one.
  void request(int i, Pack how);
  // Copies requested so far; drop_after frees those of this process that were requested after so many. No executor
  // made in between may run again: it is bound to them.
  size_t requests() const { return requested_.size(); }
  void drop_after(size_t requests);
  std::byte* at(int i, Pack how) const { return copy(i, how).data; }  // nullptr when not requested
  // The copy that an update refreshes piece by piece: nullptr for one of this process alone where a node shares
  // its weights. Such copies are refreshed by refresh_own, after masters_written.
  std::byte* by_update(int i, Pack how) const;
  // Bytes between the matrices of a stack.
  int64_t stride(int i, Pack how) const;
  // The first matrix of a stack that is here, and how many of them are; copies have these alone.
  int64_t first_matrix(int i) const;
  int64_t matrices(int i) const;

  void masters_written() { own_stale_ = true; }
  void refresh_own();
  // Whether a copy is of this process alone where a node shares its weights.
  bool has_own() const;

  void repack(int i);
  void repack(const Part& part);  // whole units; copies that an update refreshes
  void repack_all();              // where a node shares its weights, by all of its processes together

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
