#include "mudd/ops/ngram_ids/ngram_ids.h"

#include <algorithm>
#include <limits>

#include "mudd/base/check.h"
#include "mudd/base/parallel.h"
#include "mudd/graph/node.h"
#include "mudd/ops/ngram_ids/reference.h"

namespace mudd {
namespace {

enum Input { kIds, kSegments };
constexpr int64_t kMostOrder = 3;

class NgramIds : public Node {
 public:
  explicit NgramIds(const Attributes& a)
      : order_(a.integer("order")), rows_(a.integer("rows")), seed_(a.integer("seed")), end_(a.integer("end")) {}

  const char* op() const override { return "ngram_ids"; }
  bool backward_reads_input(int) const override { return false; }

  void infer(Inference& io) override {
    const TensorSpec& ids = io.input(kIds);
    check(ids.dtype == DType::i32 && ids.shape.size() == 2, "ngram_ids", "ids: expected int32[B, T], got ",
          ids.text());
    check(!io.has_input(kSegments) ||
              (io.input(kSegments).dtype == DType::i32 && io.input(kSegments).shape == ids.shape),
          "ngram_ids", "segments: expected int32[", ids.shape[0], ", ", ids.shape[1], "], got ",
          io.input(kSegments).text());
    io.output(ids);
  }

  void forward(const Run& run) override {
    check(run.step().cache_length == 0, "ngram_ids", "ids: expected whole sequences, got tokens after ",
          run.step().cache_length,
          " tokens of a KV cache; type: def model(config, batch), without the argument cache");
    const Tensor& ids = run.in(kIds);
    for (int64_t b = 0; b < ids.rows; ++b)
      for (int64_t t = 0; t < ids.cols; ++t)
        if (const int32_t id = ids.i32()[b * ids.stride + t]; id < 0)
          fail("ngram_ids", "ids: expected values of at least 0, got ", id, " at [", b, ", ", t, "]");
    parallel_for(ids.rows, [&](int64_t b, int) { hash_sample(run, b); });
  }

  void backward(const Run&) override {}

 private:
  // Hash all positions of a sample; `first` is the first token of the document of t.
  void hash_sample(const Run& run, int64_t b) const {
    const Tensor &ids = run.in(kIds), &y = run.out(0);
    const int32_t* x = ids.i32() + b * ids.stride;
    const int32_t* segments =
        run.has_in(kSegments) ? run.in(kSegments).i32() + b * run.in(kSegments).stride : nullptr;
    const uint64_t start = reference::ngram_mix(static_cast<uint64_t>(seed_) * 4 + static_cast<uint64_t>(order_));
    int64_t first = 0;
    for (int64_t t = 0; t < ids.cols; ++t) {
      if (t > 0 && (x[t - 1] == end_ || (segments && segments[t - 1] != segments[t]))) first = t;
      uint64_t h = start;
      for (int64_t p = t - order_ + 1; p <= t; ++p)
        h = reference::ngram_mix(h + (p >= first ? static_cast<uint64_t>(x[p]) + 1 : 0));
      y.i32()[b * y.stride + t] = static_cast<int32_t>((h >> 32) * static_cast<uint64_t>(rows_) >> 32);
    }
  }

  int64_t order_, rows_, seed_, end_;
};

}  // namespace

const OpSpec& ngram_ids_op() {
  static const OpSpec spec{
      .name = "ngram_ids",
      .help = R"(y = hash(the last `order` tokens) in [0, rows): int32 ids of n-grams, for the rows of a table.

ids int32 [B, T], y int32 [B, T]. Tokens before the sequence, of another segment (segments int32 [B, T]), or of a
document that ended with the token `end` count as absent. With x_k = the token at t - k plus 1, 0 if it is absent, and
integers modulo 2^64: h = mix(4 seed + order); h = mix(h + x_k) for k = order - 1, ..., 0; y = (h >> 32) rows >> 32.
mix is the finalizer of SplitMix64 (Steele et al. 2014). The op does not decode with a KV cache.)",
      .backward_help = R"(There are none, because ids are integers: pass None as the gradient.)",
      .inputs = {{"ids", OpInput::kIndex}, {"segments", OpInput::kOptional | OpInput::kIndex}},
      .outputs = {{"y", OpOutput::kNoGradient, DType::i32}},
      .options = {option::integer("order", 2, from_to(1, kMostOrder), "tokens of an n-gram"),
                  option::integer("rows", 65536, from_to(1, std::numeric_limits<int32_t>::max()),
                                  "rows of the table"),
                  option::integer("seed", 0, from_to(0, std::numeric_limits<int32_t>::max()),
                                  "seed of the hash; tables with different seeds have different collisions"),
                  option::integer("end", -1, from_to(-1, std::numeric_limits<int32_t>::max()),
                                  "token that ends a document; -1: none")},
      .make = make<NgramIds>,
  };
  return spec;
}

}  // namespace mudd
