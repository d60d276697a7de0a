// ParamStore: the parameters of a model: the declarations, the planes with the values, and the packed copies
// for GEMMs.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "mudd/base/busy.h"
#include "mudd/io/live_bytes.h"
#include "mudd/params/declarations.h"
#include "mudd/params/expert_parts.h"
#include "mudd/params/packs.h"
#include "mudd/params/planes.h"
#include "mudd/params/slices.h"
#include "mudd/params/store_memory.h"

namespace mudd {

// Weights that are arriving from other hosts.
class Arrival {
 public:
  virtual ~Arrival() = default;
  // Return when the weights of parameter i are here.
  virtual void await(int i) = 0;
};

// Gathers whole weights of which the processes of a run have slices. All processes make the same calls in one
// order.
class WeightSource {
 public:
  // Elements of a parameter that readers get in this type, from byte `offset`.
  struct Wanted {
    int parameter = 0;
    int64_t offset = 0;
    DType dtype = DType::f32;
  };

  virtual ~WeightSource() = default;
  // Return memory for gathered weights, shared by the processes of the host; it lives as long as the source.
  // Graphs of which one runs at a time may get the same.
  virtual std::byte* memory(int64_t bytes) = 0;
  // Start to gather these parameters into `to`, part of memory(). After this call, no process of the host may
  // read the part.
  virtual void post(std::span<const Wanted> wanted, std::byte* to) = 0;
  // Return when the oldest post() without an await() is complete.
  virtual void await() = 0;
};

// The division of weights, gradients and state among the processes of a run: the slices, and the index of this
// process; for sharded experts, gradients and state only.
struct OwnSlices {
  Slices slices;
  int owner = 0;
  ExpertParts experts = {};

  Part own(int i) const { return experts.deals(i) ? experts.own(i) : slices.part(i, owner); }
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

  // End the declarations and allocate the master plane (zeros). booked_only: this store and its executors have
  // addresses only, so that models of any size can be planned; they must not be read, written or run. share:
  // the master, and the packed copies requested while packs().share(true) is in force, are in shared memory of
  // the host.
  void allocate(bool booked_only = false, NodeShare share = {});
  bool allocated() const { return planes_->count() > 0; }
  bool booked_only() const { return memory_->booked_only(); }

  // Let graphs recorded from now on pack 16-bit weights at use; no packed copy is kept.
  void pack_at_use() { packs_at_use_ = true; }
  bool packs_at_use(int i) const { return packs_at_use_ && parameters_->at(i).stored != DType::f32; }
  const NodeShare& share() const { return memory_->share(); }

  // Shard gradients and state; holds_slices: the weights too, except sharded experts. Call it before allocate,
  // after set_experts.
  void set_cut(OwnSlices cut, bool holds_slices);
  const OwnSlices* cut() const { return cut_ ? &*cut_ : nullptr; }
  // Return true if graphs gather parameter i from its owners.
  bool gathers(int i) const { return gathers_ && cut_ && parameters_->at(i).size() > 0 && !deals(i); }
  void set_source(WeightSource* source) { source_ = source; }
  WeightSource* source() const { return source_; }

  // Shard the experts of every stack across the ranks of a group, with this rank's part here. Call it before
  // allocate.
  void set_experts(std::shared_ptr<const dist::ExpertGroup> group);
  const dist::ExpertGroup* experts() const { return experts_.get(); }
  // Return true if parameter i is a sharded stack.
  bool deals(int i) const { return is_dealt(experts_.get(), parameters_->at(i)); }

  // arrival: awaited before a graph reads a parameter, until it is set to null.
  void set_arrival(Arrival* arrival) { arrival_ = arrival; }
  void forget_arrival(const Arrival* arrival) {
    if (arrival_ == arrival) arrival_ = nullptr;
  }
  void await(int i) const {
    if (arrival_) arrival_->await(i);
  }

  // reader: reads the planes from now until before_change(), next to their user.
  void set_reader(std::shared_ptr<io::LiveBytes> reader) { reader_ = std::move(reader); }
  // Return when the planes may change. Everything that writes weights or moments calls it first: the update of a
  // step on all processes, and the bindings. It may wait for the reader.
  void before_change() {
    if (const auto reader = std::exchange(reader_, nullptr)) reader->release();
  }

  // The flag of the caller that runs a graph over this store, or writes it, if several threads may try (the
  // bindings).
  BusyFlag& busy() { return busy_; }

 private:
  // On the heap, because the later ones refer to the earlier ones and a store may be moved.
  std::unique_ptr<StoreMemory> memory_;
  std::unique_ptr<Declarations> parameters_;
  std::unique_ptr<Planes> planes_;
  std::unique_ptr<Packs> packs_;
  Arrival* arrival_ = nullptr;
  std::shared_ptr<io::LiveBytes> reader_;
  std::optional<OwnSlices> cut_;
  bool gathers_ = false, packs_at_use_ = false;
  WeightSource* source_ = nullptr;
  std::shared_ptr<const dist::ExpertGroup> experts_;
  BusyFlag busy_;
};

}  // namespace mudd
