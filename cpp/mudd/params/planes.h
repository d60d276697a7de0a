// Planes: flat memory with a number per element of the parameters. Plane 0 is the fp32 master of all but the
// frozen parameters that are stored in 16 bits, which have blocks of their own or are lent; the others hold an
// optimizer's moments, each with its own dtype and the parts of parameters that need it. Of the weights a process
// has what Declarations::held says: a parameter that it holds whole may lie in memory of the node, a part is its
// own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mudd/base/types.h"
#include "mudd/params/declarations.h"
#include "mudd/params/store_memory.h"

namespace mudd {

class Planes {
 public:
  // Both outlive it.
  Planes(const Declarations& parameters, const StoreMemory& memory) : parameters_(parameters), memory_(memory) {}

  // Parameter i, stored in 16 bits and held whole, lies in memory of the caller that outlives this, such as a
  // mapped file. Before allocate.
  void lend(int i, std::byte* where);
  bool is_lent(int i) const { return !lent_.empty() && lent_[i] != nullptr; }
  // Makes plane 0 (zeros).
  void allocate();
  // Makes a plane of an optimizer's state (f32 or bf16; zeros) and returns its number. parts: what it has memory
  // for, by ascending parameter.
  int add(DType dtype, const std::vector<Part>& parts);

  int count() const { return static_cast<int>(planes_.size()); }
  DType dtype(int p) const { return planes_[p].dtype; }
  bool holds(int p, int i) const { return planes_[p].places[i] != nullptr; }
  Part held(int p, int i) const { return planes_[p].parts[i]; }  // empty where the plane does not hold it
  // The first element of the part that is held; nullptr where the plane does not hold the parameter.
  std::byte* data(int p, int i) const { return planes_[p].places[i]; }
  float* floats(int p, int i) const { return reinterpret_cast<float*>(data(p, i)); }  // of an f32 plane

  float* master(int i) const { return floats(0, i); }  // the first that is held; nullptr if stored in 16 bits
  // Element `at` of the parameter, which is held.
  float* master_at(int i, int64_t at) const { return master(i) + (at - parameters_.held(i).begin); }
  // The rows that are held, in the type that they are stored in: f32, or bf16 or f16 of a frozen parameter.
  Tensor weights(int i) const;

  int64_t weight_bytes() const;  // of the weights that are held, as they are stored, but for those that are lent
  int64_t state_bytes() const;   // of all planes but the master

 private:
  struct Plane {
    std::vector<StoreBlock> blocks;
    DType dtype = DType::f32;
    std::vector<std::byte*> places;  // per parameter; null: not held
    std::vector<Part> parts;
  };
  // Takes memory for these parts, numbers of `width` bytes, and writes the address of each.
  StoreBlock place(const std::vector<Part>& parts, int64_t width, bool shared,
                   std::vector<std::byte*>& places) const;

  const Declarations& parameters_;
  const StoreMemory& memory_;
  std::vector<Plane> planes_;
  std::vector<StoreBlock> narrow_blocks_;  // weights stored in 16 bits
  std::vector<std::byte*> narrow_;         // per parameter; null: it is in plane 0, or nothing of it is held
  std::vector<std::byte*> lent_;           // per parameter, those of the caller; empty: none
};

}  // namespace mudd
