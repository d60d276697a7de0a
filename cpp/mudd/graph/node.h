// A node: one op applied to values. The same class runs in both executors (docs/architecture.md).
//
// A node has a shape rule with the bytes it needs (infer), forward, and backward. It never allocates and does
// not know the executor; all its memory comes from Run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mudd/base/row_gradient.h"
#include "mudd/base/types.h"
#include "mudd/dist/expert_group.h"
#include "mudd/graph/op_spec.h"

namespace mudd {

// The split of the samples of one graph run into logical shards (contracts 2): shard s contains the samples
// [sample_begin[s], sample_begin[s+1]). Sums over tokens run in order inside a shard, then by a balanced binary
// tree over shards.
struct Shards {
  std::vector<int64_t> sample_begin{0, 1};

  int count() const { return static_cast<int>(sample_begin.size()) - 1; }
  int64_t samples() const { return sample_begin.back(); }
  // Return the first row of shard s in a value of `rows` rows (a multiple of the samples).
  int64_t row_begin(int s, int64_t rows) const { return sample_begin[s] * (rows / samples()); }

  // Split `samples` into n shards; n is the largest power of two <= min(wanted, samples). Their sizes differ by
  // at most one, and the larger shards come first.
  static Shards cut(int64_t samples, int wanted);
};

// The output of a weight-like input's gradient: out = add[n-1] + (... + (add[0] + sum)). The adds are the
// binary counter over graph runs (contracts 2) and "accumulate" of the immediate tape. All are contiguous fp32
// of the input's shape; out may equal one of the adds. For an input with Node::gradient_rows all of them may be
// row lists instead.
constexpr int kMaxGradAdds = 16;
struct GradSink {
  float* out = nullptr;
  std::array<const float*, kMaxGradAdds> add{};
  int n_add = 0;
  // For sharded experts: elements between the sums of the ranks whose tokens they see, one after another in all
  // of these arrays; 0: one sum of all ranks.
  int64_t rank_stride = 0;
  RowGradient* out_rows = nullptr;
  std::array<const RowGradient*, kMaxGradAdds> add_rows{};

  explicit operator bool() const { return out || out_rows; }
};

// Adds values over the processes that share a batch.
class BatchSum {
 public:
  virtual ~BatchSum() = default;
  // values: sums over the local samples; replaced by the sums over the whole batch, equal on all processes.
  virtual void add(std::span<double> values) = 0;
};

// Arguments of one graph run (contracts 17).
struct StepInput {
  int64_t cache_length = 0;  // decoding: rows already in the KV cache
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;
  BatchSum* batch_sum = nullptr;  // null: the whole batch is local
  double loss_scale = 1;          // gradient of the losses: the start of backward
};

// The arguments and results of infer().
class Inference {
 public:
  int n_inputs() const { return static_cast<int>(inputs_.size()); }
  bool has_input(int i) const { return i < n_inputs() && inputs_[i] != nullptr; }
  // Return the spec of input i; without axes if it is absent (messages are built before the check they
  // explain).
  const TensorSpec& input(int i) const {
    static const TensorSpec absent;
    return has_input(i) ? *inputs_[i] : absent;
  }
  bool input_is_parameter(int i) const { return parameter_[i]; }
  bool wants_gradient(int i) const { return has_input(i) && wants_[i]; }  // of this input
  bool training() const { return training_; }
  // Return the type of stored results and of GEMM operands: f32 or bf16 (contracts 7).
  DType compute() const { return compute_; }
  const Shards& shards() const { return *shards_; }
  // Return the count of ranks that share a stack of experts; each has an equal part.
  int expert_ranks() const { return expert_ranks_; }
  double expert_room() const { return expert_room_; }  // see dist::ExpertGroup::room

  // Declare a result. Results are declared f32; a bf16 graph stores them in bf16 unless Node::keeps_f32 is
  // true.
  void output(TensorSpec spec) {
    if (spec.dtype == DType::bf16) spec.dtype = DType::f32;  // copied from an input
    outputs_.push_back(std::move(spec));
  }
  // likely: the bytes that a plan expects, if a run touches all of them only in the worst case; -1: all.
  void saved(int64_t bytes, int64_t likely = -1) {  // kept from forward to backward; order = index
    saved_.push_back(bytes);
    saved_likely_.push_back(likely < 0 ? bytes : likely);
  }
  void scratch_forward(int64_t bytes, int64_t likely = -1) {
    scratch_forward_ = bytes;
    likely_forward_ = likely < 0 ? bytes : likely;
  }
  void scratch_backward(int64_t bytes, int64_t likely = -1) {
    scratch_backward_ = bytes;
    likely_backward_ = likely < 0 ? bytes : likely;
  }
  // Return true if the node packs matrix i in its scratch at use, in a GEMM of `rows` rows. Always true for a
  // matrix that is no parameter. In fp32 also for parameters in a GEMM of many rows: packing costs a few per
  // cent of it, but a copy in the store costs memory, and time at every optimizer update.
  bool packs_when_used(int i, int64_t rows) const {
    return !may_stay_packed(i) || (compute_ == DType::f32 && rows >= kManyRows);
  }
  // Return true if the store can keep input i packed: a parameter whose weights stay local between runs.
  bool may_stay_packed(int i) const { return parameter_[i] && !gathered_[i]; }
  static constexpr int64_t kManyRows = 256;  // more than a chunk of a prompt, fewer than a training run
  // Request that the parameter store keeps input i packed; a no-op for inputs that are not parameters.
  void pack(int i, Pack how) { packs_.push_back({i, how}); }

  struct PackRequest {
    int input;
    Pack how;
  };
  // Set by the executor before infer(), read by it afterwards.
  std::vector<const TensorSpec*> inputs_;
  std::vector<bool> parameter_, gathered_, wants_;
  bool training_ = false;
  DType compute_ = DType::f32;
  const Shards* shards_ = nullptr;
  int expert_ranks_ = 1;
  double expert_room_ = 0;
  std::vector<TensorSpec> outputs_;
  std::vector<int64_t> saved_, saved_likely_;
  int64_t scratch_forward_ = 0, scratch_backward_ = 0, likely_forward_ = 0, likely_backward_ = 0;
  std::vector<PackRequest> packs_;
};

// The arguments of forward() and backward(). Filled by an executor once (planned) or per call (immediate).
class Run {
 public:
  // Values. An absent optional input is an empty Tensor.
  const Tensor& in(int i) const { return in_[i]; }
  bool has_in(int i) const { return i < static_cast<int>(in_.size()) && in_[i].data != nullptr; }
  const Tensor& out(int i) const { return out_[i]; }
  std::byte* saved(int i) const { return saved_[i]; }
  template <class T>
  T* saved_as(int i) const {
    return reinterpret_cast<T*>(saved_[i]);
  }
  std::byte* scratch() const { return scratch_; }
  template <class T>
  T* scratch_as() const {
    return reinterpret_cast<T*>(scratch_);
  }

  // Gradients. dout(i) is empty if output i has no reader (treat it as zero).
  const Tensor& dout(int i) const { return dout_[i]; }
  // Return true if the node must compute the gradient of input i.
  bool wants(int i) const { return i < static_cast<int>(din_.size()) && (din_[i].data || sink_[i]); }
  // Return the gradient of an activation-like input: write it (accumulate(i) false) or add to it (true). It may
  // share memory with dout(j) if the node declares passes_gradient.
  const Tensor& din(int i) const { return din_[i]; }
  bool accumulate(int i) const { return accumulate_[i]; }
  // Return the gradient output of a weight-like input (a sum over tokens).
  const GradSink& sink(int i) const { return sink_[i]; }

  // Return the copy of parameter input i packed for the graph's compute type, or nullptr: then the node packs
  // into its scratch.
  const void* packed(int i, Pack how) const {
    return how == Pack::plain ? packed_plain_[i] : packed_transposed_[i];
  }
  const Shards& shards() const { return *shards_; }
  const StepInput& step() const { return *step_; }
  // Return the ranks that share the experts; null: only this one.
  const dist::ExpertGroup* experts() const { return experts_; }
  // Add values of this run's samples over the whole batch.
  void add_over_batch(std::span<double> values) const {
    if (step_->batch_sum) step_->batch_sum->add(values);
  }

  std::vector<Tensor> in_, out_, dout_, din_;
  std::vector<std::byte*> saved_;
  std::byte* scratch_ = nullptr;
  std::vector<uint8_t> accumulate_;
  std::vector<GradSink> sink_;
  std::vector<const void*> packed_plain_, packed_transposed_;
  const Shards* shards_ = nullptr;
  const StepInput* step_ = nullptr;
  const dist::ExpertGroup* experts_ = nullptr;
};

class Node {
 public:
  virtual ~Node() = default;
  virtual const char* op() const = 0;  // name of the folder: "rms_norm"
  virtual void infer(Inference& io) = 0;
  virtual void forward(const Run& run) = 0;
  virtual void backward(const Run& run) = 0;
  // Recomputes output 0, the only output, from the saved bytes alone; inputs are empty. Call at most once per
  // forward: it may overwrite the saved tensor with the form that backward needs.
  virtual void remake(const Run&) {}

  // Properties for the planner. Lifetimes follow from them: claim only what backward reads.
  virtual bool backward_reads_input(int) const { return true; }
  virtual bool backward_reads_output(int) const { return false; }
  // Weight-like inputs have a GradSink, all others a din tensor.
  virtual bool weight_like(int) const { return false; }
  // Return true for a weight that the node reads in its stored type (Tensor::dtype f32, bf16 or f16): by
  // packing, or row by row. All other inputs must be fp32 in the store.
  virtual bool reads_stored(int /*input*/) const { return false; }
  // Return the most rows of weight-like input i with a nonzero gradient after one run, if backward can write a
  // GradSink with a row list; else 0.
  virtual int64_t gradient_rows(int /*input*/) const { return 0; }
  // Return the input whose gradient is dout(0) unchanged plus its previous value (a residual): -1 for none.
  // Such a node must not touch din of that input: the executor passes or adds it.
  virtual int passes_gradient() const { return -1; }
  // Return true for an input that forward writes into (a KV cache): its memory must belong to the caller.
  virtual bool writes_input(int) const { return false; }
  // Return the input whose memory output 0 may use (forward then works in place): -1 for none.
  virtual int in_place_input() const { return -1; }
  // Return true if backward overwrites the saved bytes: forward has to run again before a second backward.
  virtual bool spends_saved() const { return false; }
  // Return true if backward also does the work of forward (the loss): the planned training executor then skips
  // forward(), and backward() must write the outputs as well.
  virtual bool computes_in_backward() const { return false; }
  // Return true if remake() can recompute the output in one elementwise pass: then only forward readers keep
  // it.
  virtual bool remakes_output() const { return false; }
  // Return true if recomputing forward is cheap compared with keeping the output until backward (norms, gates).
  virtual bool cheap_to_recompute() const { return false; }
  // Return true if the node reads and writes bf16 itself: any activation and its gradient may then have either
  // type (Tensor::dtype), and each element is rounded once, when it is stored. Other nodes only see fp32: in a
  // bf16 graph the executor loads their inputs as fp32 and stores their results as bf16.
  virtual bool native_bf16() const { return false; }
  // Return true if output i stays fp32 in a bf16 graph: streams that many nodes add to, statistics, logits.
  virtual bool keeps_f32(int /*output*/) const { return passes_gradient() >= 0; }
  // Return the input whose gradient differs from dout(0) but may use its memory: -1 for none.
  virtual int gradient_in_place_input() const { return -1; }

  // Return the FLOPs of a forward pass (a multiply-add counts two), for the profile after infer(); 0 if
  // memory-bound.
  double forward_flops() const { return flops_; }
  // Return the FLOPs of a backward pass for the requested gradients, without forward's work if backward does
  // that too.
  double backward_flops() const { return backward_flops_; }

 protected:
  double flops_ = 0, backward_flops_ = 0;
};

// Return true if output i of a node, declared to `io`, is stored in bf16.
inline bool stored_bf16(const Inference& io, const Node& node, int i) {
  return io.compute() == DType::bf16 && io.outputs_[i].dtype == DType::f32 && !node.keeps_f32(i);
}

}  // namespace mudd
