#include "mudd/ops/moe_balance/moe_balance.h"

#include <algorithm>
#include <vector>

#include "mudd/base/check.h"
#include "mudd/base/shard_tree.h"
#include "mudd/graph/node.h"
#include "mudd/ops/moe_route/moe_route.h"

namespace mudd {
namespace {

constexpr int kTargets = 0, kFirstLayer = 1;

class MoeBalance : public Node {
 public:
  explicit MoeBalance(const Attributes& a)
      : k_(a.integer("top_k")), balance_(a.number("balance")), z_(a.number("z")) {
    pooled_ = a.word("form") == "pooled";
    whole_batch_ = a.word("scope") == "batch";
  }

  const char* op() const override { return "moe_balance"; }

  void infer(Inference& io) override {
    const TensorSpec& targets = io.input(kTargets);
    check(targets.dtype == DType::i32 && targets.shape.size() == 2, "moe_balance",
          "targets: expected int32[B, T], got ", targets.text());
    check(io.n_inputs() > kFirstLayer, "moe_balance", "metrics: expected at least one layer");
    const TensorSpec& first = io.input(kFirstLayer);
    for (int i = kFirstLayer; i < io.n_inputs(); ++i)
      check(io.input(i).dtype == DType::f32 && io.input(i).shape.size() == 2 &&
                io.input(i).shape[0] == targets.shape[0] && io.input(i).shape == first.shape && first.cols() > 3 &&
                (first.cols() - 3) % 4 == 0,
            "moe_balance", "metrics: expected float32[", targets.shape[0], ", 4 E + 3] for every layer, got ",
            io.input(i).text());
    layers_ = io.n_inputs() - kFirstLayer;
    experts_ = route_figures_experts(first.cols());
    sums_.assign(static_cast<size_t>(layers_ * first.cols()), 0.0);
    slopes_.assign(static_cast<size_t>(layers_ * experts_), 0.0);
    for (int i = 0; i < 3; ++i) io.output({{io.shards().count()}, DType::f64});
    if (whole_batch_) io.saved(std::ssize(sums_) * 8);
  }

  void forward(const Run& run) override {
    for (int s = 0; s < run.shards().count(); ++s) {
      if (s == 0 || !whole_batch_) averages(run, s);
      if (s == 0 && whole_batch_) std::copy(sums_.begin(), sums_.end(), run.saved_as<double>(0));
      const double n = counted(run, s);
      const double values[3] = {n * (balance_ * balance_loss_ + z_ * z_loss_), n * balance_loss_, n * z_loss_};
      for (int i = 0; i < 3; ++i) static_cast<double*>(run.out(i).data)[s] = values[i];
    }
  }

  void backward(const Run& run) override {
    double weight = 0;
    if (whole_batch_) {
      for (int s = 0; s < run.shards().count(); ++s) weight += upstream(run, s) * counted(run, s);
      run.add_over_batch({&weight, 1});
      std::copy_n(run.saved_as<double>(0), sums_.size(), sums_.begin());
      form_losses();
    }
    for (int s = 0; s < run.shards().count(); ++s) {
      if (!whole_batch_) averages(run, s);
      if (!whole_batch_) weight = upstream(run, s) * counted(run, s);
      for (int64_t l = 0; l < layers_; ++l)
        if (run.wants(static_cast<int>(kFirstLayer + l))) layer_gradient(run, s, l, weight);
    }
  }

 private:
  RouteMetrics at() const { return {experts_}; }
  double* sums_of(int64_t l) { return sums_.data() + l * at().width(); }

  static double upstream(const Run& run, int s) {
    return run.dout(0) ? static_cast<const double*>(run.dout(0).data)[s] : run.step().loss_scale;
  }

  static double counted(const Run& run, int s) {
    const Tensor& t = run.in(kTargets);
    double n = 0;
    for (int64_t b = run.shards().row_begin(s, t.rows); b < run.shards().row_begin(s + 1, t.rows); ++b)
      for (int64_t i = 0; i < t.cols; ++i) n += t.i32()[b * t.stride + i] >= 0;
    return n;
  }

  // Return metric c of a layer, summed over the samples of shard s.
  static double shard_figure(const Run& run, const Tensor& f, int s, int64_t c) {
    double sum = 0;
    for (int64_t b = run.shards().row_begin(s, f.rows); b < run.shards().row_begin(s + 1, f.rows); ++b)
      sum += f.f32()[b * f.stride + c];
    return sum;
  }

  // Sum the metrics of shard s, or of the whole batch by the tree, and compute the losses.
  void averages(const Run& run, int s) {
    const int shards = run.shards().count();
    for (int64_t l = 0; l < layers_; ++l) {
      const Tensor& f = run.in(static_cast<int>(kFirstLayer + l));
      for (int64_t c = 0; c < f.cols; ++c) {
        shard_tree::Counter<double> sums;
        double& sum = sums_of(l)[c];
        if (!whole_batch_) sum = shard_figure(run, f, s, c);
        for (int i = 0; whole_batch_ && i < shards; ++i) sum = sums.add(i, shards, shard_figure(run, f, i, c));
      }
    }
    if (whole_batch_) run.add_over_batch(sums_);
    form_losses();
  }

  // Compute the losses and their slopes by the probability sums, from the metrics in sums_.
  void form_losses() {
    double tokens = 0;
    for (int64_t l = 0; l < layers_; ++l) tokens += sums_of(l)[at().tokens()];
    balance_loss_ = z_loss_ = 0;
    for (int64_t l = 0; l < layers_; ++l) {
      const double* f = sums_of(l);
      const double n = std::max(1.0, f[at().tokens()]), experts = static_cast<double>(experts_);
      z_loss_ += f[at().squared_lse()] / n;
      for (int64_t e = 0; e < experts_; ++e) {
        double routed = 0;
        for (int64_t other = 0; pooled_ && other < layers_; ++other) routed += sums_of(other)[at().routed(e)];
        const double all = std::max(1.0, tokens);
        const double slope = pooled_ ? experts * routed / (all * all)
                                     : experts * f[at().routed(e)] / (static_cast<double>(k_) * n * n);
        slopes_[static_cast<size_t>(l * experts_ + e)] = slope;
        balance_loss_ += slope * f[at().probability(e)];
      }
    }
  }

  void layer_gradient(const Run& run, int s, int64_t l, double weight) {
    const Tensor& d = run.din(static_cast<int>(kFirstLayer + l));
    const bool add = run.accumulate(static_cast<int>(kFirstLayer + l));
    const double z_slope = weight * z_ / std::max(1.0, sums_of(l)[at().tokens()]);
    for (int64_t b = run.shards().row_begin(s, d.rows); b < run.shards().row_begin(s + 1, d.rows); ++b) {
      float* row = d.f32() + b * d.stride;
      if (!add) std::fill(row, row + d.cols, 0.0f);
      row[at().squared_lse()] += static_cast<float>(z_slope);
      for (int64_t e = 0; e < experts_; ++e)
        row[at().probability(e)] +=
            static_cast<float>(weight * balance_ * slopes_[static_cast<size_t>(l * experts_ + e)]);
    }
  }

  int64_t k_;
  double balance_, z_;
  bool pooled_ = true, whole_batch_ = false;
  int64_t layers_ = 0, experts_ = 0;
  // For the current shard: metrics summed over its samples, losses, slopes of A by the probability sums.
  std::vector<double> sums_, slopes_;
  double balance_loss_ = 0, z_loss_ = 0;
};

}  // namespace

const OpSpec& moe_balance_op() {
  static const OpSpec spec{
      .name = "moe_balance",
      .help = R"(Auxiliary losses of a mixture, float64 [S] each: (n (balance A + z Z), n A, n Z).

n: counted targets of a shard.
metrics: outputs of moe_route, one per layer. form: pooled (one product of averages over all layers, as in
transformers) or per_layer (a sum of the losses of the layers, as in Megatron-LM).
Z = sum over layers of the mean squared log-sum-exp of the router's logits (Zoph et al. 2022).)",
      .backward_help = R"(Of the first output, scaled per shard by dloss (None: 1).)",
      .inputs = {{"targets", OpInput::kIndex}},
      .repeated = {{"metrics"}},
      .outputs = {{"loss", OpOutput::kLoss, DType::f64},
                  {"balance", OpOutput::kNoGradient, DType::f64},
                  {"z", OpOutput::kNoGradient, DType::f64}},
      .options = {option::word("form", "pooled", {"pooled", "per_layer"},
                               "one product of averages over all layers, or a sum of products"),
                  option::word("scope", "shard", {"shard", "batch"},
                               "tokens that are averaged: of a shard or of the batch"),
                  option::number("balance", 0, {}, "coefficient of the balance loss"),
                  option::number("z", 0, {}, "coefficient of the router z-loss"),
                  option::integer("top_k", 2, at_least(1), "experts of a token")},
      .make = make<MoeBalance>,
  };
  return spec;
}

}  // namespace mudd
