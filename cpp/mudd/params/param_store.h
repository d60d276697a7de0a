// ParamStore: the parameters of a model: what was declared, the planes that hold the numbers, and the packed
// copies that GEMMs read.
#pragma once

#include <memory>
#include <utility>

#include "mudd/base/busy.h"
#include "mudd/params/declarations.h"
#include "mudd/params/packs.h"
#include "mudd/params/planes.h"
#include "mudd/params/store_memory.h"

namespace mudd {

// Weights that are on their way from other nodes.
class Arrival {
 public:
  virtual ~Arrival() = default;
  // Returns when the weights of parameter i are here.
  virtual void await(int i) = 0;
};

class ParamStore {
 public:
  // compute: type of the packed copies, and of the graphs over this store (f32 or bf16; the masters are fp32).
  explicit ParamStore(DType compute = DType::f32)
      : memory_(std::make_unique<StoreMemory>()),
        parameters_(std::make_unique<Declarations>()),
        planes_(std::make_unique<Planes>(*parameters_, *memory_)),
        packs_(std::make_unique<Packs>(*parameters_, *planes_, *memory_, compute)) {}

  DType compute() const { return packs_->compute(); }
  Declarations& parameters() { return *parameters_; }
  const Declarations& parameters() const { return *parameters_; }
  Planes& planes() { return *planes_; }
  const Planes& planes() const { return *planes_; }
  Packs& packs() { return *packs_; }
  const Packs& packs() const { return *packs_; }

  // Ends declaring: allocates the master plane (zeros). booked_only: this store and the executors over it only
  // book addresses, so that models of any size can be planned; nothing of them may be read, written or run.
  // share: the master, and the packed copies requested while packs().share(true) is in force, lie in memory of the
  // node.
  void allocate(bool booked_only = false, NodeShare share = {});
  bool allocated() const { return planes_->count() > 0; }
  bool booked_only() const { return memory_->booked_only(); }
  const NodeShare& share() const { return memory_->share(); }

  // arrival: asked before a graph reads a parameter, until it is null again.
  void set_arrival(Arrival* arrival) { arrival_ = arrival; }
  void forget_arrival(const Arrival* arrival) {
    if (arrival_ == arrival) arrival_ = nullptr;
  }
  void await(int i) const {
    if (arrival_) arrival_->await(i);
  }

  // Held by the caller that runs a graph over this store, or writes it, where several threads may try (the
  // bindings).
  BusyFlag& busy() { return busy_; }

 private:
  // On the heap, since the later ones refer to the earlier ones and a store may be moved.
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Declarations> parameters_;
  std::unique_ptr<Planes> planes_;
  std::unique_ptr<Packs> packs_;
  Arrival* arrival_ = nullptr;
  BusyFlag busy_;
};

}  // namespace mudd
