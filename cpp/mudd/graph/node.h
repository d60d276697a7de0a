// A node: one op applied to values. The same class runs in both executors (docs/architecture.md).
//
// Duties of a node, in one place: its shape rule and the bytes it needs (infer), forward, backward.
// A node never allocates and never knows which executor runs it; all memory that it touches comes from Run.
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

// Cuts of the samples of one graph run into logical shards (contracts 2): shard s holds the samples
// [sample_begin[s], sample_begin[s+1]). Sums over tokens run in order inside a shard, then by a
// balanced binary tree over shards.
struct Shards {
  std::vector<int64_t> sample_begin{0, 1};

  int count() const { return static_cast<int>(sample_begin.size()) - 1; }
  int64_t samples() const { return sample_begin.back(); }
  // First row of shard s in a value of `rows` rows (rows is a multiple of the samples).
  int64_t row_begin(int s, int64_t rows) const { return sample_begin[s] * (rows / samples()); }

  // Cuts `samples` into the largest power of two of shards not above min(wanted, samples); sizes differ by
  // at most one, the larger ones first.
  static Shards cut(int64_t samples, int wanted);
};

// Where the gradient of a weight-like input goes: out = add[n-1] + (... + (add[0] + sum)).
// The adds carry the binary counter over graph runs (contracts 2) and "accumulate" of the immediate tape.
// All are contiguous fp32 of the input's shape; out may equal one of the adds. For an input with
// Node::gradient_rows all of them may be given by their rows instead.
constexpr int kMaxGradAdds = 16;
struct GradSink {
  float* out = nullptr;
  std::array<const float*, kMaxGradAdds> add{};
  int n_add = 0;
  // Of experts that are dealt out: elements between the sums of the ranks whose tokens they see, one after the
  // other in all of these arrays; 0: one sum of all ranks.
  int64_t rank_stride = 0;
  RowGradient* out_rows = nullptr;
  std::array<const RowGradient*, kMaxGradAdds> add_rows{};

  explicit operator bool() const { return out || out_rows; }
};

// Adds numbers over the processes that share a batch.
class BatchSum {
 public:
  virtual ~BatchSum() = default;
  // values: sums over the samples that are here; becomes the sums over the whole batch, alike everywhere.
  virtual void add(std::span<double> values) = 0;
};

// Run-time fields of one execution (contracts 17).
struct StepInput {
  int64_t cache_length = 0;  // decoding: rows already in the KV cache
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t first_sample = 0;
  BatchSum* batch_sum = nullptr;  // null: the whole batch is here
  double loss_scale = 1;          // gradient of the losses: what backward begins with
};

// What infer() sees and fills in.
class Inference {
 public:
  int n_inputs() const { return static_cast<int>(inputs_.size()); }
  bool has_input(int i) const { return i < n_inputs() && inputs_[i] != nullptr; }
  // The spec of input i; of an absent input one without axes (messages are built before the check they explain).
  const TensorSpec& input(int i) const {
    static const TensorSpec absent;
    return has_input(i) ? *inputs_[i] : absent;
  }
  bool input_is_parameter(int i) const { return parameter_[i]; }
  bool wants_gradient(int i) const { return has_input(i) && wants_[i]; }  // of this input
  bool training() const { return training_; }
  // Type in which results are stored and operands of products are rounded: f32 or bf16. (contracts 7)
  DType compute() const { return compute_; }
  const Shards& shards() const { return *shards_; }
  // Ranks that the experts of a stack of parameters are dealt out to; each has an equal part of it here.
  int expert_ranks() const { return expert_ranks_; }
  double expert_room() const { return expert_room_; }  // see dist::ExpertGroup::room

  // Results are declared f32; in a bf16 graph they are stored in bf16 unless Node::keeps_f32 says otherwise.
  void output(TensorSpec spec) {
    if (spec.dtype == DType::bf16) spec.dtype = DType::f32;  // taken over from an input
    outputs_.push_back(std::move(spec));
  }
  // likely: bytes that a plan counts where a run touches all of them in the worst case only; -1: all.
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
  // Whether the node packs matrix i in its own scratch at use, in a GEMM of `rows` rows. Always true of a matrix
  // that is no parameter. In fp32 also of parameters in a GEMM of many rows: packing costs a few per cent of it,
  // while a copy in the store costs memory, and time whenever the optimizer refreshes it.
  bool packs_when_used(int i, int64_t rows) const {
    return !may_stay_packed(i) || (compute_ == DType::f32 && rows >= kManyRows);
  }
  // Whether the store can keep input i packed: a parameter whose weights are here from one run to the next.
  bool may_stay_packed(int i) const { return parameter_[i] && !gathered_[i]; }
  static constexpr int64_t kManyRows = 256;  // more than a piece of a prompt, fewer than a run of training
  // Asks the parameter store to keep input i packed; a no-op for inputs that are not parameters.
  void pack(int i, Pack how) { packs_.push_back({i, how}); }

  struct PackRequest {
    int input;
    Pack how;
  };
  // Filled by the executor before, read by it after infer().
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

// What forward() and backward() touch. Filled by an executor once (planned) or per call (immediate).
class Run {
 public:
  // Values. An absent optional input gives an empty Tensor.
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

  // Gradients. dout(i) is empty when nobody consumed output i (treat as zero).
  const Tensor& dout(int i) const { return dout_[i]; }
  // True when the node must produce the gradient of input i.
  bool wants(int i) const { return i < static_cast<int>(din_.size()) && (din_[i].data || sink_[i]); }
  // Gradient of an activation-like input: write it (accumulate(i) false) or add to it (true).
  // It may be the very memory of dout(j) when the node declared passes_gradient.
  const Tensor& din(int i) const { return din_[i]; }
  bool accumulate(int i) const { return accumulate_[i]; }
  // Gradient of a weight-like input (a sum over tokens).
  const GradSink& sink(int i) const { return sink_[i]; }

  // The copy of parameter input i packed for the graph's compute type, or nullptr: then the node packs into its
  // scratch itself.
  const void* packed(int i, Pack how) const {
    return how == Pack::plain ? packed_plain_[i] : packed_transposed_[i];
  }
  const Shards& shards() const { return *shards_; }
  const StepInput& step() const { return *step_; }
  // The ranks that hold the experts; null: this one alone.
  const dist::ExpertGroup* experts() const { return experts_; }
  // Adds the values, of the samples of this run, over the whole batch.
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

  // Answers for the planner. Lifetimes follow from them: claim what backward reads, nothing more.
  virtual bool backward_reads_input(int) const { return true; }
  virtual bool backward_reads_output(int) const { return false; }
  // Weight-like inputs get a GradSink, all others a din tensor.
  virtual bool weight_like(int) const { return false; }
  // True for a weight that the node reads in the type that it is stored in (Tensor::dtype f32, bf16 or f16): by
  // packing, or row by row. A store must hold all other inputs in fp32.
  virtual bool reads_stored(int /*input*/) const { return false; }
  // Most rows of weight-like input i whose gradient one run can make other than zero, where backward also writes a
  // GradSink given by its rows; 0: it does not.
  virtual int64_t gradient_rows(int /*input*/) const { return 0; }
  // Input whose gradient is dout(0) unchanged plus what is there (a residual): -1 for none. Such a node must
  // not touch din of that input: the executor passes or adds it.
  virtual int passes_gradient() const { return -1; }
  // True for an input that forward writes into (a KV cache): its memory must be the caller's own.
  virtual bool writes_input(int) const { return false; }
  // Input whose memory output 0 may take over (forward then works in place): -1 for none.
  virtual int in_place_input() const { return -1; }
  // True when backward works in what forward saved: before a second one forward has to run again.
  virtual bool spends_saved() const { return false; }
  // True for a node whose backward also does the work of its forward (the loss): the planned training executor
  // then skips forward() and backward() must write the outputs as well.
  virtual bool computes_in_backward() const { return false; }
  // True when remake() can recompute the output in one elementwise pass: then only forward readers keep it.
  virtual bool remakes_output() const { return false; }
  // True when running forward again costs little against keeping the output until backward (norms, gates).
  virtual bool cheap_to_recompute() const { return false; }
  // True when the node itself reads and writes bf16: any activation, gradient included, may then be of either type
  // (Tensor::dtype), and each number is rounded once, when it is stored. Other nodes only ever see fp32: in a bf16
  // graph the executor loads their inputs as fp32 and stores their results as bf16.
  virtual bool native_bf16() const { return false; }
  // True when output i stays fp32 in a bf16 graph: streams that many nodes add to, statistics, logits.
  virtual bool keeps_f32(int /*output*/) const { return passes_gradient() >= 0; }
  // Input whose gradient, of other numbers than dout(0), may take over the memory of dout(0): -1 for none.
  virtual int gradient_in_place_input() const { return -1; }

  // FLOPs of a forward pass (a multiply-add counts two), for the profile after infer(); 0 where memory limits.
  double forward_flops() const { return flops_; }
  // Of a backward pass by the gradients that are wanted; forward's work, where backward does that too, is not in
  // it.
  double backward_flops() const { return backward_flops_; }

 protected:
  double flops_ = 0, backward_flops_ = 0;
};

// Whether output i of a node, declared to `io`, is stored in bf16.
inline bool stored_bf16(const Inference& io, const Node& node, int i) {
  return io.compute() == DType::bf16 && io.outputs_[i].dtype == DType::f32 && !node.keeps_f32(i);
}

}  // namespace mudd
