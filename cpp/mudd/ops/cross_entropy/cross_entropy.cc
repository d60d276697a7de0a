#include "mudd/ops/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <array>
#include <vector>

#include "mudd/base/math.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/graph/row_tasks.h"
#include "mudd/ops/convert/convert.h"
#include "mudd/ops/gemm/gemm.h"

namespace mudd {

std::span<const KernelRow<CrossEntropyKernels>> cross_entropy_rows() {
  static const KernelRow<CrossEntropyKernels> rows[] = {
#define MUDD_KERNEL(name, level) {#name, #level, &level::name},
#include "mudd/ops/cross_entropy/kernels.inc"
#undef MUDD_KERNEL
  };
  return rows;
}

namespace {

constexpr int64_t kMinRows = 64;      // fewer rows a chunk would read the head too often
constexpr int64_t kRowMultiple = 48;  // chunks are whole row blocks of the products where they can be
constexpr int64_t kDefaultBudget = 16ll << 20;
constexpr int64_t kStripeMultiple = 64;  // of the rows of a stripe: whole panels of every level

int64_t round_up(int64_t a, int64_t to) { return (a + to - 1) / to * to; }

int64_t largest_shard(const Shards& shards, int64_t rows) {
  int64_t most = 0;
  for (int s = 0; s < shards.count(); ++s)
    most = std::max(most, shards.row_begin(s + 1, rows) - shards.row_begin(s, rows));
  return most;
}

// Scratch as it is cut into pieces, each on a cache line of its own.
class Pieces {
 public:
  explicit Pieces(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    std::byte* p = base_ + used_;
    used_ = round_up(used_ + count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(p);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

// Rows [begin, end) of a chunk and the shards it lies in.
struct Chunk {
  int64_t begin, end;
  int first_shard, shards;
  bool first, last;  // of its group of shards

  int64_t rows() const { return end - begin; }
};

}  // namespace

LossCut LossCut::choose(int64_t shard_rows, int shards, int64_t vocabulary, int64_t d_model, int64_t budget,
                        DType compute) {
  LossCut cut;
  const int64_t row_bytes = vocabulary * static_cast<int64_t>(sizeof(float));
  const int64_t fitting = std::max<int64_t>(1, budget / row_bytes);
  if (shard_rows > std::max({fitting, d_model, kMinRows})) {
    const int64_t rows = std::max(fitting, kMinRows);
    cut.chunk_rows = rows >= kRowMultiple ? rows / kRowMultiple * kRowMultiple : rows;
    cut.chunk_rows = std::max(cut.chunk_rows, kMinRows);
    return cut;
  }
  // Twice the shards: as many rows of dlogits more, a sum of V x D less.
  const auto saves = [&] {
    return compute == DType::bf16 && cut.group * shard_rows * size_of(compute) < d_model * size_of(DType::f32);
  };
  while (cut.group < shards && (2 * cut.group * shard_rows <= fitting || saves())) cut.group *= 2;
  cut.chunk_rows = cut.group * shard_rows;
  return cut;
}

namespace {

enum Input { kH, kHead, kTargets, kBias };

class CrossEntropy : public Node {
 public:
  explicit CrossEntropy(const Attributes& a) : budget_(a.integer("chunk_bytes", kDefaultBudget)) {
    a.only("chunk_bytes");
    check(budget_ > 0, "cross_entropy", "chunk_bytes: expected at least 1, got ", budget_);
  }

  const char* op() const override { return "cross_entropy"; }
  bool native_bf16() const override { return true; }
  bool weight_like(int i) const override { return i == kHead || i == kBias; }
  bool computes_in_backward() const override { return training_ && (wants_h_ || wants_head_ || wants_bias_); }

  void infer(Inference& io) override {
    check(io.has_input(kH) && io.has_input(kHead) && io.has_input(kTargets), "cross_entropy",
          "inputs: expected h, head and targets");
    const TensorSpec &h = io.input(kH), &head = io.input(kHead), &targets = io.input(kTargets);
    check(is_real(h) && h.shape.size() >= 2, "cross_entropy", "h: expected f32[B, T, D], got ", h.text());
    check(head.dtype == DType::f32 && head.shape.size() == 2 && head.cols() == h.cols() && head.rows() > 0,
          "cross_entropy", "head: expected f32[V, ", h.cols(), "], got ", head.text());
    const TensorSpec wanted{{h.shape.begin(), h.shape.end() - 1}, DType::i32};
    check(targets.dtype == DType::i32 && targets.shape == wanted.shape, "cross_entropy", "targets: expected ",
          wanted.text(), ", got ", targets.text());
    const TensorSpec& bias = io.input(kBias);
    check(!io.has_input(kBias) || (bias.dtype == DType::f32 && bias.shape == std::vector<int64_t>{head.rows()}),
          "cross_entropy", "bias: expected f32[", head.rows(), "], got ", bias.text());
    const int shards = io.shards().count();
    check((shards & (shards - 1)) == 0, "cross_entropy", "shards: expected a power of two, got ", shards);
    io.output({{shards}, DType::f64});
    io.output({{shards}, DType::f64});
    training_ = io.training();
    compute_ = io.compute();
    wants_h_ = io.wants_gradient(kH);
    wants_head_ = io.wants_gradient(kHead);
    wants_bias_ = io.wants_gradient(kBias);
    const int64_t rows = h.rows();
    packs_ = io.packs_when_used(kHead, rows);
    if (!packs_) io.pack(kHead, Pack::transposed);
    if (!packs_ && wants_h_) io.pack(kHead, Pack::plain);
    stripe_ = stripe_rows(head.rows(), head.cols());
    flops_ = 2.0 * static_cast<double>(rows) * static_cast<double>(head.rows() * head.cols());
    most_rows_ = largest_shard(io.shards(), rows);
    cut_ = LossCut::choose(most_rows_, shards, head.rows(), head.cols(), budget_, compute_);
    gradient_bytes_ = grad_scratch_bytes(head.rows(), head.cols(), cut_.group, 1, compute_);
    io.scratch_forward(layout(nullptr, rows, head.rows(), head.cols(), shards, false).bytes);
    io.scratch_backward(layout(nullptr, rows, head.rows(), head.cols(), shards, true).bytes);
    kernels_ = &mudd::choose(cross_entropy_rows());
  }

  void forward(const Run& run) override {
    const Work w = work(run, false);
    const int64_t step = w.s.chunk_rows;
    for (int64_t begin = 0; begin < w.rows; begin += step) {
      const Chunk chunk{begin, std::min(begin + step, w.rows), 0, 0, true, true};
      logits(run, w, chunk);
      softmax(w, chunk, nullptr);
    }
    sum_losses(run, w);
  }

  void backward(const Run& run) override {
    const Work w = work(run, true);
    const int shards = run.shards().count();
    for (int s = 0; s < shards; s += cut_.group) {
      const int64_t begin = run.shards().row_begin(s, w.rows),
                    end = run.shards().row_begin(s + cut_.group, w.rows);
      const int64_t step = std::max<int64_t>(1, w.s.chunk_rows);
      int64_t at = begin;
      do {  // at least once: shards without rows still have a gradient of zero
        const int64_t stop = std::min(at + step, end);
        const Chunk chunk{at, stop, s, cut_.group, at == begin, stop == end};
        make_dlogits(run, w, chunk);
        if (run.wants(kH)) hidden_gradient(run, w, chunk);
        if (run.wants(kHead)) head_gradient(run, w, chunk);
        at = stop;
      } while (at < end);
    }
    if (run.wants(kBias)) finish_bias(run, w);
    if (computes_in_backward()) sum_losses(run, w);
  }

 private:
  // Scratch of one pass.
  struct Layout {
    int64_t bytes = 0, chunk_rows = 0, logit_rows = 0;
    bf16* dlogits = nullptr;  // of a chunk; null: they replace the logits
    float *logits = nullptr, *gradient_scratch = nullptr;
    std::byte* packed = nullptr;  // a stripe of the head
    float* hidden = nullptr;      // sums over stripes that wait for a gradient of h to be added to
    float* bias_sums = nullptr;   // per shard
    float* waiting = nullptr;     // levels of the binary counter over groups of shards, V x D each
    RowSoftmax* stats = nullptr;
    int32_t* targets = nullptr;  // of all rows, without gaps
  };
  // What both passes look at.
  struct Work {
    Tensor h, head;
    const float* bias = nullptr;
    int64_t rows = 0, vocabulary = 0, d = 0;
    Layout s;
  };

  Layout layout(std::byte* base, int64_t rows, int64_t vocabulary, int64_t d, int shards, bool backward) const {
    Layout s;
    Pieces pieces(base);
    // The loss alone needs no more than the budget; rows of several shards may then share a chunk freely.
    const int64_t fitting =
        std::max(packs_ ? Inference::kManyRows : kMinRows,
                 budget_ / (vocabulary * static_cast<int64_t>(sizeof(float))) / kRowMultiple * kRowMultiple);
    s.chunk_rows = backward ? cut_.chunk_rows : std::max<int64_t>(1, std::min(rows, fitting));
    s.stats = pieces.take<RowSoftmax>(rows);
    s.targets = pieces.take<int32_t>(rows);
    // In bf16 dlogits of a chunk wait for their products as the operands they are, so few rows of logits do. A
    // head that is packed for every product is no matter of memory.
    const bool narrows = backward && compute_ == DType::bf16;
    s.logit_rows = narrows && !packs_ ? std::min(s.chunk_rows, round_up(kRowMultiple, gemm_kernels(compute_).mr))
                                      : s.chunk_rows;
    s.logits = pieces.take<float>(s.logit_rows * vocabulary);
    if (narrows) s.dlogits = pieces.take<bf16>(s.chunk_rows * vocabulary);
    if (packs_)
      s.packed = pieces.take<std::byte>(std::max(packed_bytes(d, stripe_, compute_),
                                                 backward && wants_h_ ? packed_bytes(stripe_, d, compute_) : 0));
    if (backward && wants_h_ && stripe_ < vocabulary) s.hidden = pieces.take<float>(s.chunk_rows * d);
    if (backward && wants_head_) {
      s.gradient_scratch = pieces.take<float>(gradient_bytes_ / static_cast<int64_t>(sizeof(float)));
      s.waiting = pieces.take<float>(levels(shards) * vocabulary * d);
    }
    if (backward && wants_bias_) s.bias_sums = pieces.take<float>(shards * vocabulary);
    s.bytes = pieces.used();
    return s;
  }

  // V x D sums that wait at the same time: log2 of the groups, and one for the last group if it is cut.
  int levels(int shards) const {
    int n = cut_.group == 1 && cut_.chunk_rows < most_rows_ ? 1 : 0;
    for (int groups = shards / cut_.group; groups > 1; groups /= 2) ++n;
    return n;
  }

  Work work(const Run& run, bool backward) {
    Work w;
    w.h = run.in(kH);
    w.head = run.in(kHead);
    if (run.has_in(kBias)) w.bias = run.in(kBias).f32();
    w.rows = w.h.rows;
    w.vocabulary = w.head.rows;
    w.d = w.head.cols;
    w.s = layout(run.scratch(), w.rows, w.vocabulary, w.d, run.shards().count(), backward);
    collect_targets(run, w);
    return w;
  }

  // A head that is packed when it is used goes by equal stripes of half the budget: their panels stay in the last
  // cache. A gradient of h in bf16 would be rounded between stripes: there it is one.
  int64_t stripe_rows(int64_t vocabulary, int64_t d) const {
    const int64_t most = std::max<int64_t>(1, budget_ / 2 / (d * static_cast<int64_t>(sizeof(float))));
    if (!packs_ || compute_ != DType::f32 || vocabulary <= most) return vocabulary;
    const int64_t stripes = (vocabulary + most - 1) / most;
    return round_up((vocabulary + stripes - 1) / stripes, kStripeMultiple);
  }

  // body(begin, end, panels) for the stripes of the head, or once with what the store keeps.
  template <class Body>
  void over_stripes(const Run& run, const Work& w, Pack how, Body body) const {
    if (const void* kept = run.packed(kHead, how)) return body(int64_t{0}, w.vocabulary, kept);
    if (!packs_) throw StateError("[cross_entropy] head: a parameter came without its packed copy");
    for (int64_t begin = 0; begin < w.vocabulary; begin += stripe_) {
      const int64_t end = std::min(begin + stripe_, w.vocabulary);
      pack_weight(w.head.f32() + begin * w.d, end - begin, w.d, how == Pack::transposed, w.s.packed, compute_);
      body(begin, end, static_cast<const void*>(w.s.packed));
    }
  }

  static void collect_targets(const Run& run, const Work& w) {
    const Tensor& in = run.in(kTargets);
    for (int64_t r = 0; r < w.rows; ++r) {
      const int64_t sample = r / in.cols, t = r % in.cols;
      const int32_t target = in.i32()[sample * in.stride + t];
      if (target >= w.vocabulary)
        fail("cross_entropy", "targets: expected values below ", w.vocabulary, ", got ", target, " at [", sample,
             ", ", t, "]");
      w.s.targets[r] = target;
    }
  }

  void logits(const Run& run, const Work& w, const Chunk& chunk) const {
    over_stripes(run, w, Pack::transposed, [&](int64_t begin, int64_t end, const void* panels) {
      GemmBlock g;
      g.compute = compute_;
      g.a = w.h.cells() + chunk.begin * w.h.stride;
      g.lda = w.h.stride;
      g.b = panels;
      g.c = w.s.logits + begin;
      g.ldc = w.vocabulary;
      g.m = chunk.rows();
      g.n = end - begin;
      g.k = w.d;
      if (w.bias) g.epilogue.bias = w.bias + begin;
      multiply(g);
    });
  }

  // Weighted dlogits of the chunk, and what they add to the gradient of the bias.
  void make_dlogits(const Run& run, const Work& w, const Chunk& chunk) const {
    int64_t begin = chunk.begin;
    do {
      Chunk part = chunk;
      part.begin = begin;
      part.end = begin = std::min(begin + std::max<int64_t>(1, w.s.logit_rows), chunk.end);
      logits(run, w, part);
      softmax(w, part, &run, w.s.dlogits ? w.s.dlogits + (part.begin - chunk.begin) * w.vocabulary : nullptr);
      if (run.wants(kBias)) bias_gradient(run, w, part);
    } while (begin < chunk.end);
  }

  static ConstCells dlogits(const Work& w) {
    return w.s.dlogits ? ConstCells(w.s.dlogits) : ConstCells(w.s.logits);
  }

  // Row statistics of the chunk; with `run` the logits also become weighted dlogits, which `narrowed` gets in
  // bf16.
  void softmax(const Work& w, const Chunk& chunk, const Run* run, bf16* narrowed = nullptr) const {
    constexpr int64_t kRows = 4;
    parallel_for((chunk.rows() + kRows - 1) / kRows, [&](int64_t task, int) {
      const int64_t end = std::min(chunk.begin + (task + 1) * kRows, chunk.end);
      for (int64_t r = chunk.begin + task * kRows; r < end; ++r) {
        float* row = w.s.logits + (r - chunk.begin) * w.vocabulary;
        if (!run) {
          kernels_->fwd(1, w.vocabulary, row, w.vocabulary, w.s.targets + r, w.s.stats + r);
          continue;
        }
        int s = chunk.first_shard;
        while (r >= run->shards().row_begin(s + 1, w.rows)) ++s;
        const float weight =
            run->dout(0) ? static_cast<float>(static_cast<const double*>(run->dout(0).data)[s]) : 1.0f;
        kernels_->bwd(1, w.vocabulary, row, w.vocabulary, w.s.targets + r, weight, w.s.stats + r);
        if (narrowed) convert_kernels().narrow(w.vocabulary, row, narrowed + (r - chunk.begin) * w.vocabulary);
      }
    });
  }

  void hidden_gradient(const Run& run, const Work& w, const Chunk& chunk) const {
    const Tensor& dh = run.din(kH);
    const Cells to = dh.cells() + chunk.begin * dh.stride;
    over_stripes(run, w, Pack::plain, [&](int64_t begin, int64_t end, const void* panels) {
      GemmBlock g;
      g.compute = compute_;
      g.a = dlogits(w) + begin;
      g.lda = w.vocabulary;
      g.b = panels;
      g.c = to;
      g.ldc = dh.stride;
      g.m = chunk.rows();
      g.n = w.d;
      g.k = end - begin;
      g.accumulate = begin > 0;  // one chain over the vocabulary
      const bool waits = run.accumulate(kH) && end - begin < w.vocabulary;
      if (waits) {
        g.c = w.s.hidden;
        g.ldc = w.d;
      } else if (run.accumulate(kH)) {
        g.epilogue.residual = to;
        g.epilogue.residual_stride = dh.stride;
      }
      multiply(g);
      if (waits && end == w.vocabulary) add_rows(w.s.hidden, chunk.rows(), w.d, to.f32(), dh.stride);
    });
  }

  static void add_rows(const float* from, int64_t rows, int64_t d, float* to, int64_t stride) {
    parallel_rows(rows, d, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < d; ++c) to[r * stride + c] += from[r * d + c];
    });
  }

  // Adds the chunk to the gradient of the head. The binary counter over groups of shards: after group i the sums
  // of levels 0 .. (trailing ones of i) - 1 are taken up by this one, which waits at the next level or, as the
  // last one, goes out with the adds of the sink.
  void head_gradient(const Run& run, const Work& w, const Chunk& chunk) const {
    const GradSink& sink = run.sink(kHead);
    const int64_t size = w.vocabulary * w.d;
    const unsigned group = static_cast<unsigned>(chunk.first_shard / cut_.group);
    const bool last_group = chunk.first_shard + chunk.shards == run.shards().count();
    const int level = __builtin_ctz(~group);
    float* own = w.s.waiting + level * size;  // free until this group is done
    std::array<const float*, kMaxAdds> add{};
    int n_add = 0;
    if (chunk.last) {
      for (int t = 0; t < level; ++t) add[n_add++] = w.s.waiting + t * size;
      if (last_group) {
        check(n_add + sink.n_add <= kMaxAdds, "cross_entropy", "head: expected at most ", kMaxAdds,
              " sums to add, got ", n_add + sink.n_add);
        for (int a = 0; a < sink.n_add; ++a) add[n_add++] = sink.add[a];
      }
    }
    std::array<int64_t, kMaxShards + 1> cuts;
    for (int s = 0; s <= chunk.shards; ++s)
      cuts[s] =
          std::clamp(run.shards().row_begin(chunk.first_shard + s, w.rows), chunk.begin, chunk.end) - chunk.begin;
    float* out = chunk.last && last_group ? sink.out : own;
    GradBlock g;
    g.x = dlogits(w);
    g.ldx = w.vocabulary;
    g.compute = compute_;
    g.dy = w.h.cells() + chunk.begin * w.h.stride;
    g.ldy = w.h.stride;
    g.cuts = cuts.data();
    g.shards = chunk.shards;
    g.m = w.vocabulary;
    g.n = w.d;
    g.out = out;
    g.ldo = w.d;
    g.start = chunk.first ? nullptr : own;
    g.add = add.data();
    g.n_add = n_add;
    g.scratch = w.s.gradient_scratch;
    g.scratch_bytes = gradient_bytes_;
    weight_gradient(g);
  }

  // Adds the chunk's dlogits, row by row, to the sums of its shards.
  static void bias_gradient(const Run& run, const Work& w, const Chunk& chunk) {
    over_columns(w, [&](int64_t begin, int64_t end) {
      for (int s = chunk.first_shard; s < chunk.first_shard + chunk.shards; ++s) {
        float* sum = w.s.bias_sums + s * w.vocabulary;
        const int64_t first = run.shards().row_begin(s, w.rows);
        if (chunk.begin <= first) std::fill(sum + begin, sum + end, 0.0f);
        const int64_t stop = std::min(run.shards().row_begin(s + 1, w.rows), chunk.end);
        for (int64_t r = std::max(first, chunk.begin); r < stop; ++r) {
          const float* row = w.s.logits + (r - chunk.begin) * w.vocabulary;
          for (int64_t v = begin; v < end; ++v) sum[v] += row[v];
        }
      }
    });
  }

  // The balanced tree over shards, then the adds of the sink.
  static void finish_bias(const Run& run, const Work& w) {
    const GradSink& sink = run.sink(kBias);
    const int shards = run.shards().count();
    over_columns(w, [&](int64_t begin, int64_t end) {
      for (int distance = 1; distance < shards; distance *= 2)
        for (int s = 0; s + distance < shards; s += 2 * distance)
          for (int64_t v = begin; v < end; ++v)
            w.s.bias_sums[s * w.vocabulary + v] += w.s.bias_sums[(s + distance) * w.vocabulary + v];
      for (int64_t v = begin; v < end; ++v) {
        float sum = w.s.bias_sums[v];
        for (int a = 0; a < sink.n_add; ++a) sum = sink.add[a][v] + sum;
        sink.out[v] = sum;
      }
    });
  }

  template <class Body>
  static void over_columns(const Work& w, Body body) {
    constexpr int64_t kColumns = 1024;
    parallel_for((w.vocabulary + kColumns - 1) / kColumns,
                 [&](int64_t task, int) { body(task * kColumns, std::min((task + 1) * kColumns, w.vocabulary)); });
  }

  static void sum_losses(const Run& run, const Work& w) {
    for (int s = 0; s < run.shards().count(); ++s) {
      double loss = 0, count = 0;
      for (int64_t r = run.shards().row_begin(s, w.rows); r < run.shards().row_begin(s + 1, w.rows); ++r) {
        if (w.s.targets[r] < 0) continue;
        const RowSoftmax& row = w.s.stats[r];
        loss += math::log(row.sum) + (static_cast<double>(row.max) - static_cast<double>(row.target));
        count += 1;
      }
      static_cast<double*>(run.out(0).data)[s] = loss;
      static_cast<double*>(run.out(1).data)[s] = count;
    }
  }

  int64_t budget_;
  DType compute_ = DType::f32;  // of the products; logits and their gradients lie in fp32
  LossCut cut_;
  int64_t gradient_bytes_ = 0;  // scratch of the product for dhead
  int64_t most_rows_ = 0;       // of a shard
  int64_t stripe_ = 0;          // rows of the head that are packed at a time
  bool training_ = false, wants_h_ = false, wants_head_ = false, wants_bias_ = false, packs_ = true;
  const CrossEntropyKernels* kernels_ = nullptr;
};

}  // namespace

std::unique_ptr<Node> make_cross_entropy(const Attributes& a) { return std::make_unique<CrossEntropy>(a); }

}  // namespace mudd
