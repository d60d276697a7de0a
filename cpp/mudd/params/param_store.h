// ParamStore: every parameter of a model in flat planes. Plane 0 is the fp32 master of all but the frozen
// parameters that are stored in 16 bits, which have a block of their own; others (moments) are made when an
// optimizer asks, each with its own dtype and the parameters that need it. Keeps the packed copies that GEMMs
// read; whoever writes a master must repack it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "mudd/base/arena.h"
#include "mudd/base/busy.h"
#include "mudd/base/types.h"

namespace mudd {

// What a parameter is for; decay, init and rates derive from it (contracts 11).
enum class Role : uint8_t { embedding, matrix, gain, bias, head, router, slots, mix };
struct RoleInfo {
  const char* name;
  const char* kind;  // matrix, table (a row for each token) or vector: what optim.decay chooses by
};
std::span<const RoleInfo> roles();  // in the order of Role
const char* name_of(Role role);
Role parse_role(const std::string& name);

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  Role role = Role::matrix;
  int64_t fan_in = 0, fan_out = 0;
  std::string init =
      "normal";             // normal | uniform | constant | zeros | ones | last_column (ones there, zeros else)
  double init_scale = 0.0;  // std of normal, half width of uniform, value of constant
  // Per-parameter factors of the optimizer (contracts 12).
  double lr_scale = 1.0, eps_scale = 1.0, decay_scale = 1.0;
  bool decay_independent = false;  // decay times the schedule's factor only, not times any learning rate
  bool trainable = true;           // false: no gradient, no state of an optimizer, no update
  DType stored = DType::f32;       // bf16 or f16: frozen for good, without an fp32 master

  int64_t size() const;
  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const { return size() / cols(); }
  // A parameter of three axes is a stack of matrices [in, out] (experts), each packed and updated on its own.
  int64_t stack() const { return shape.size() == 3 ? shape[0] : 1; }
  int64_t matrix_rows() const { return rows() / stack(); }
};

// Elements [begin, end) of a parameter, row by row.
struct Part {
  int parameter = 0;
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
};

// The processes of a node that read one copy of the weights. All of them make the same calls in the same order.
struct NodeShare {
  int rank = 0, size = 1;
  // The same zeroed memory for all of them, on a cache line; it lives as long as the store.
  std::function<std::byte*(int64_t bytes)> memory = {};
  std::function<void()> barrier = {};
};

// Weights that are on their way from other nodes.
class Arrival {
 public:
  virtual ~Arrival() = default;
  // Returns when the weights of parameter i are here.
  virtual void await(int i) = 0;
};

// Whether a parameter may be stored in 16 bits when it is frozen: matrices, tables and stacks. Vectors are small,
// and the router computes in fp32.
bool may_be_narrow(const Parameter& parameter);

class ParamStore {
 public:
  // compute: type of the packed copies, and of the graphs over this store (f32 or bf16; the masters are fp32).
  explicit ParamStore(DType compute = DType::f32) : compute_(compute) {}
  DType compute() const { return compute_; }

  // Returns the index. A second declaration of the same name must agree in shape and role.
  int declare(const Parameter& parameter);
  int find(const std::string& name) const;  // -1 when there is none
  int count() const { return static_cast<int>(parameters_.size()); }
  const Parameter& at(int i) const { return parameters_[i]; }
  Parameter& at(int i) { return parameters_[i]; }
  int64_t elements() const;  // of all parameters, without padding
  int64_t trained_elements() const;
  std::vector<int> trained() const;  // the trainable parameters, ascending

  // Ends declaring: allocates the master plane (zeros). booked_only: this store and the executors over it only
  // book addresses, so that models of any size can be planned; nothing of them may be read, written or run.
  // share: the master and the packed copies asked for while share_packs holds lie in memory of the node.
  void allocate(bool booked_only = false, NodeShare share = {});
  const NodeShare& share() const { return share_; }
  bool booked_only() const { return booked_only_; }
  bool allocated() const { return !planes_.empty(); }
  float* master(int i) const { return plane(0, i); }  // nullptr for a parameter stored in 16 bits
  // The weights in the type that they are stored in: f32, or bf16 or f16 of a frozen parameter.
  DType stored(int i) const { return at(i).stored; }
  Tensor weights(int i) const;
  // Which parameters train from now on. Error for one stored in 16 bits.
  void train_only(const std::vector<int>& chosen);

  Part whole(int i) const { return {i, 0, at(i).size()}; }

  // State planes of the optimizer (f32 or bf16), 1-based after the master; zeros when new. parts: what the plane
  // has memory for, by ascending parameter.
  int add_plane(DType dtype, const std::vector<Part>& parts);
  int planes() const { return static_cast<int>(planes_.size()); }
  DType plane_dtype(int p) const { return planes_[p].dtype; }
  bool holds(int p, int i) const { return planes_[p].offsets[i] >= 0; }
  Part held(int p, int i) const { return planes_[p].parts[i]; }  // empty where the plane does not hold it
  // The first element of the part that is held.
  std::byte* plane_data(int p, int i) const {  // nullptr where the plane does not hold the parameter
    const Plane& plane = planes_[p];
    return holds(p, i) ? plane.memory.data + plane.offsets[i] * size_of(plane.dtype) : nullptr;
  }
  float* plane(int p, int i) const { return reinterpret_cast<float*>(plane_data(p, i)); }  // of an f32 plane

  // Packed copies for compute(): request before use, then packed() gives the panels, repack() refreshes from the
  // master. The matrices of a stack lie packed_stride() bytes apart.
  void request_pack(int i, Pack how);
  std::byte* packed(int i, Pack how) const;  // nullptr when not requested
  // Those that an update refreshes piece by piece: all, but copies of this process alone where a node shares its
  // weights. These are refreshed by refresh_own, after masters_written.
  std::byte* packed_by_update(int i, Pack how) const;
  void masters_written() { own_copies_stale_ = true; }
  void refresh_own();
  // Whether a packed copy is of this process alone where a node shares its weights.
  bool has_own_copies() const;
  // arrival: asked before a graph reads a parameter, until it is null again.
  void set_arrival(Arrival* arrival) { arrival_ = arrival; }
  void forget_arrival(const Arrival* arrival) {
    if (arrival_ == arrival) arrival_ = nullptr;
  }
  void await(int i) const {
    if (arrival_) arrival_->await(i);
  }
  void share_packs(bool on) { share_packs_ = on; }
  int64_t packed_stride(int i, Pack how) const;
  void repack(int i);
  void repack(const Part& part);  // whole units; copies that an update refreshes
  void repack_all();              // where a node shares its weights, by all of its processes together

  int64_t plane_bytes() const;  // of all weights as they are stored
  int64_t state_bytes() const;  // of all planes but the master
  int64_t packed_bytes() const;

  // Held by the caller that runs a graph over this store, or writes it, where several threads may try (the
  // bindings).
  BusyFlag& busy() { return busy_; }

 private:
  // Of this process, or of the node.
  struct Memory {
    Arena own;
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  struct Packs {
    Memory plain, transposed;
  };
  struct Plane {
    Memory memory;
    DType dtype = DType::f32;
    std::vector<int64_t> offsets;  // per parameter, in elements; -1: not held
    std::vector<Part> parts;
  };
  Memory take(int64_t bytes, bool shared);
  bool shares() const { return share_.size > 1; }
  Memory& packs(int i, Pack how) { return how == Pack::plain ? packs_[i].plain : packs_[i].transposed; }
  const Memory& packs(int i, Pack how) const {
    return how == Pack::plain ? packs_[i].plain : packs_[i].transposed;
  }
  void pack_master(int i, Pack how);

  DType compute_;
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, int> numbers_;  // by name
  std::vector<Plane> planes_;
  std::vector<Packs> packs_;
  Memory narrow_;                        // weights stored in 16 bits
  std::vector<int64_t> narrow_offsets_;  // per parameter, in elements; -1: it is in plane 0
  NodeShare share_;
  Arrival* arrival_ = nullptr;
  bool booked_only_ = false, share_packs_ = false, own_copies_stale_ = false;
  BusyFlag busy_;
};

}  // namespace mudd
