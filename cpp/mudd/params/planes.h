// Planes: flat buffers, most with an element for every element of the parameters. Plane 0 is the fp32 master;
// frozen 16-bit parameters are in separate blocks or lent by the caller. The other planes are an optimizer's
// moments, each with a dtype and the parts of parameters that need it. Declarations::held says which weights a
// process has: a whole parameter may be in shared memory of the host, a part is in separate memory.
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
  // Both must outlive it.
  Planes(const Declarations& parameters, const StoreMemory& memory) : parameters_(parameters), memory_(memory) {}

  // Use memory of the caller, such as a mapped file, for parameter i, which is stored in 16 bits and local as a
  // whole. The memory must outlive this object. Call it before allocate.
  void lend(int i, std::byte* where);
  bool is_lent(int i) const { return !lent_.empty() && lent_[i] != nullptr; }
  // Create plane 0 (zeros).
  void allocate();
  // Create a plane of optimizer state (f32 or bf16; zeros) and return its index. parts: the elements of parameters
  // with memory, by ascending parameter. axis: what the plane has for them.
  int add(DType dtype, const std::vector<Part>& parts, PlaneAxis axis = PlaneAxis::elements);

  int count() const { return static_cast<int>(planes_.size()); }
  DType dtype(int p) const { return planes_[p].dtype; }
  PlaneAxis axis(int p) const { return planes_[p].axis; }
  bool holds(int p, int i) const { return planes_[p].places[i] != nullptr; }
  // Return the local elements of the plane; empty if it lacks the parameter.
  Part held(int p, int i) const { return planes_[p].parts[i]; }
  // Return the first local element; nullptr if the plane lacks the parameter.
  std::byte* data(int p, int i) const { return planes_[p].places[i]; }
  float* floats(int p, int i) const { return reinterpret_cast<float*>(data(p, i)); }  // of an f32 plane

  float* master(int i) const { return floats(0, i); }  // the first local element; nullptr if stored in 16 bits
  // Return the address of element `at` of the parameter, which must be local.
  float* master_at(int i, int64_t at) const { return master(i) + (at - parameters_.held(i).begin); }
  // Return the local rows, in their stored type: f32, or bf16 or f16 for a frozen parameter.
  Tensor weights(int i) const;

  int64_t weight_bytes() const;  // of the local weights in their stored type, except lent ones
  int64_t state_bytes() const;   // of all planes but the master

 private:
  struct Plane {
    std::vector<StoreBlock> blocks;
    DType dtype = DType::f32;
    PlaneAxis axis = PlaneAxis::elements;
    std::vector<std::byte*> places;  // per parameter; null: not local
    std::vector<Part> parts;
  };
  // Allocate memory for these parts, elements of `width` bytes, and write the address of each.
  StoreBlock place(const std::vector<Part>& parts, int64_t width, bool shared,
                   std::vector<std::byte*>& places) const;

  const Declarations& parameters_;
  const StoreMemory& memory_;
  std::vector<Plane> planes_;
  std::vector<StoreBlock> narrow_blocks_;  // weights stored in 16 bits
  std::vector<std::byte*> narrow_;         // per parameter; null: it is in plane 0, or not local
  std::vector<std::byte*> lent_;           // per parameter, memory of the caller; empty: none
};

}  // namespace mudd
