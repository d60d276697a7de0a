// Benchmarks of the softmax-like kernels, one for each row of their tables: the loss, the router of a mixture, the
// parameter tokens of pattention.
#include <algorithm>

#include "mudd/ops/cross_entropy/cross_entropy.h"
#include "mudd/ops/moe_route/moe_route.h"
#include "mudd/ops/pattention/pattention.h"
#include "mudd/ops/regularized_loss/regularized_loss.h"
#include "rows.h"

namespace mudd::bench {
namespace {

constexpr int64_t kRows = 16, kWidth = 2048, kAll = kRows * kWidth, kExperts = 8;
constexpr Work moves(double operands) { return {.bytes = 4 * operands * kAll}; }

void add_loss() {
  register_rows(cross_entropy_rows(), "forward", moves(1), [](const CrossEntropyKernels& k) {
    return [&k, logits = filled(kAll), targets = std::vector<int32_t>(kRows, 3),
            stats = std::vector<RowSoftmax>(kRows)]() mutable {
      k.fwd(kRows, kWidth, logits.data(), kWidth, targets.data(), stats.data());
    };
  });
  register_rows(cross_entropy_rows(), "backward", moves(2), [](const CrossEntropyKernels& k) {
    return [&k, logits = filled(kAll), targets = std::vector<int32_t>(kRows, 3),
            stats = std::vector<RowSoftmax>(kRows)]() mutable {
      k.bwd(kRows, kWidth, logits.data(), kWidth, targets.data(), 1.0f, stats.data());
    };
  });
}

void add_regularized_loss() {
  register_rows(regularized_loss_rows(), "forward", moves(1), [](const RegularizedLossKernels& k) {
    return [&k, logits = filled(kAll), stats = std::vector<RowSoftmax>(kRows),
            below = std::vector<double>(kRows)]() mutable {
      for (int64_t r = 0; r < kRows; ++r) k.fwd(kWidth, logits.data() + r * kWidth, 3, &stats[r], &below[r]);
    };
  });
  // Each call starts from logits, because both kernels write over them.
  register_rows(regularized_loss_rows(), "backward", moves(6), [](const RegularizedLossKernels& k) {
    return [&k, logits = filled(kAll), x = Floats(kAll), stats = std::vector<RowSoftmax>(kRows),
            below = std::vector<double>(kRows)]() mutable {
      std::ranges::copy(logits, x.begin());
      for (int64_t r = 0; r < kRows; ++r) {
        float* row = x.data() + r * kWidth;
        k.exponentials(kWidth, row, 3, &stats[r], &below[r]);
        k.bwd(kWidth, row, 3, 1e-3f, 1e-4f, 0.9f);
      }
    };
  });
}

void add_router() {
  constexpr int64_t kTokens = kAll / kExperts;
  register_rows(moe_route_rows(), "softmax", moves(2), [](const MoeRouteKernels& k) {
    return [&k, logits = filled(kAll), stats = std::vector<RouteRow>(kTokens)]() mutable {
      k.softmax(kTokens, kExperts, logits.data(), stats.data());
    };
  });
  register_rows(moe_route_rows(), "balance", moves(3), [](const MoeRouteKernels& k) {
    return [&k, p = filled(kAll), slopes = filled(kExperts), dz = Floats(kAll)]() mutable {
      for (int64_t i = 0; i < kAll; i += kExperts)
        k.balance(kExperts, p.data() + i, slopes.data(), 0.5f, dz.data() + i);
    };
  });
}

void add_slots() {
  register_rows(pattention_rows(), "forward", moves(2), [](const PattentionKernels& k) {
    return [&k, a = filled(kAll), s = Floats(kAll), stats = Floats(2 * kRows)]() mutable {
      k.fwd(kRows, kWidth, Theta{}, a.data(), kWidth, nullptr, s.data(), kWidth, stats.data());
    };
  });
  register_rows(pattention_rows(), "backward", moves(4), [](const PattentionKernels& k) {
    return [&k, a = filled(kAll), s = Floats(kAll), ds = filled(kAll), stats = Floats(2 * kRows, 1.0f)]() mutable {
      k.bwd(kRows, kWidth, Theta{}, a.data(), kWidth, nullptr, stats.data(), ds.data(), kWidth, s.data(), kWidth);
    };
  });
  register_rows(pattention_rows(), "add_bias", moves(2), [](const PattentionKernels& k) {
    return [&k, bias = filled(kWidth), y = Floats(kAll)]() mutable {
      k.add_bias(kRows, kWidth, bias.data(), nullptr, y.data(), kWidth);
    };
  });
  register_rows(pattention_rows(), "sum_rows", moves(1), [](const PattentionKernels& k) {
    return [&k, x = filled(kAll), sum = Floats(kWidth)]() mutable {
      k.sum_rows(kRows, kWidth, x.data(), kWidth, nullptr, sum.data());
    };
  });
}

}  // namespace

void add_softmaxes() {
  add_loss();
  add_regularized_loss();
  add_router();
  add_slots();
}

}  // namespace mudd::bench
