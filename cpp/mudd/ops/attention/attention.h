// attention: P v with P = softmax(s), s = scale q k^T over the visible keys, with grouped key/value heads (query
// head h reads key/value head h / (H/G)). Tiled over queries and keys after Dao 2023; T x T scores never exist.
// Option activation replaces the softmax (docs/maths/mup.md, 1.2); a hidden key adds nothing:
//   sqrelu       P = relu(s)^2 / divisor                elu       P = (elu(s) + 1) / divisor
//   norm_sqrelu  P = relu(s)^2 / (eps + its row sum)    norm_elu  P = (elu(s) + 1) / (eps + its row sum)
//
// Inputs: q [B, T, H*hd], k, v [B, T, G*hd] fp32 or bf16 (or with four axes [B, T, H, hd]; any row stride),
//   segments i32 [B, T] (optional), key_mask i32 [B, T] (optional; 0 hides a key).
//  k_cache, v_cache [B, G, Tmax, hd] fp32 (optional), contiguous; with them no segments, and a key_mask
//  [B, Tmax]. k and v are first written at rows cache_length + t, then query t sees the keys 0 .. cache_length
//  + t. With option ring, the key of a single query after Tmax others replaces the oldest key, at row
//  cache_length mod Tmax, and the query sees all rows.
// Output: o, shape of q. Saved per row, f32 [B, H, T] (not with cache): softmax: log2 of its sum of
// 2^(score log2 e); the others: the factor f of P = A(s) f.
// Visible: key index <= query index (option causal), and same segment, and key_mask[key] != 0; with option
// window w also query index - key index < w. Tiles outside all windows are skipped, forward and backward; with
// a cache, keys that left the window stay in it and are masked. A row that sees no key has zero output and
// gradient. With a cache, set divisor for the longest sequence of the model, because T changes while decoding.
//
// Backward, with P the probabilities and delta_t = sum_d do[t,d] o[t,d]:
//   dv = P^T do,   dS = P * (do v^T - delta) * scale,   dq = dS k,   dk = dS^T q.
// For the other activations dS = A'(s) f (do v^T - delta) scale, with delta = 0 where the divisor is a constant.
// If P rounds to 1 (a row that sees one key), dS is exactly zero, as in exact arithmetic; not with eps > 0.
// dq sums over keys, dk and dv over heads of the group, then queries, in an order fixed by T alone.
//
// Option dropout (only if gradients are requested, off in evaluation): P is multiplied by m / (1 - rate) before
// v, after its sums; then dP = m (do v^T) / (1 - rate), and delta is as above. Draws (base/dropout.h): position
// t, element (head, key), place: option purpose.
//
// Row invariance (contracts 1): key tiles are counted from key 0, a score is one chain over d, and hidden keys
// add exact zeros, even if they are infinity or NaN. So the bits of a row depend only on its query and visible
// keys. They do not depend on T, the tile of the row, or whether keys come from the cache.
//
// bf16: q, k, v, o and their gradients may each be fp32 or bf16; scores, sums and saved values are fp32. The
// kernels of attention_f32 load bf16 as fp32. The kernels of attention_bf16 multiply bf16, so they also round P
// and dS: pairs by vdpbf16ps, or tiles by tdpbf16ps, whose depth is padded with zeros.
#pragma once

#include <cstdint>

#include "mudd/base/dropout.h"
#include "mudd/base/kernel_table.h"
#include "mudd/base/types.h"

namespace mudd {

enum class Scores : uint8_t { softmax, sqrelu, elu, norm_sqrelu, norm_elu };
constexpr bool has_row_sum(Scores a) { return a != Scores::sqrelu && a != Scores::elu; }

constexpr int64_t kNoWindow = int64_t{1} << 40;

// One sample and one key/value head with its group of query heads. Strides are in elements: _row from one
// position to the next, _head from one query head to the next.
struct AttentionSlice {
  int64_t group = 1, dim = 0, queries = 0, keys = 0;
  int64_t first_query = 0;  // index of query 0 among the keys
  bool causal = true;
  int64_t window = kNoWindow;  // keys that a query sees, itself included
  float scale = 1.0f;
  Scores activation = Scores::softmax;
  float divisor = 1.0f, eps = 0.0f;
  ConstCells q, k, v;
  int64_t q_row = 0, q_head = 0, k_row = 0, v_row = 0;
  const int32_t* segments = nullptr;  // [keys]; only with first_query 0
  const int32_t* key_mask = nullptr;  // [keys]
  Cells o;
  int64_t o_row = 0, o_head = 0;
  float* lse = nullptr;  // [group][queries]; may be null in forward
  Dropout drop;          // of the probabilities; `sample` is the index of this sample
  int64_t first_head = 0;

  // Return the Philox counter word of four keys of a head: the head in the upper 12 bits, key / 4 in the lower 20.
  uint32_t draw_block(int64_t head, int64_t key) const {
    return static_cast<uint32_t>((first_head + head) << 20 | key / 4);
  }
};

// Query heads [head_begin, head_end) x positions [begin, end) of a slice: at most query_tile rows.
struct QueryTile {
  int64_t head_begin = 0, head_end = 1, begin = 0, end = 0;
};

// A part of the backward pass of one slice: the keys and queries of one pair of chunks.
struct AttentionGrad {
  int64_t key_begin = 0, key_end = 0, query_begin = 0, query_end = 0;
  ConstCells dout;
  int64_t do_row = 0, do_head = 0;
  const float* delta = nullptr;                       // [group][queries]
  float *dq = nullptr, *dk = nullptr, *dv = nullptr;  // null if not requested
  int64_t dq_row = 0, dq_head = 0, dk_row = 0, dv_row = 0;
  bool set_dq = true, set_dk = true, set_dv = true;  // else add to the previous values
};

struct AttentionKernels {
  int64_t query_tile, key_tile;
  int64_t (*fwd_scratch)(int64_t dim);  // floats per worker
  void (*fwd)(const AttentionSlice& slice, const QueryTile& tile, float* scratch);
  int64_t (*bwd_scratch)(int64_t dim);
  // Compute delta[h, t] of the positions [begin, end), all heads of the group.
  void (*delta)(const AttentionSlice& slice, const AttentionGrad& grad, int64_t begin, int64_t end, float* delta);
  // Key and query ranges start at multiples of both tiles.
  void (*bwd)(const AttentionSlice& slice, const AttentionGrad& grad, float* scratch);
};

MUDD_DECLARE_KERNELS(AttentionKernels, attention_f32)
MUDD_DECLARE_UNIT_KERNELS(AttentionKernels, attention_bf16)

// Return the kernels of a compute type. For bf16, kernels that multiply bf16 pairs come before those of fp32,
// which load bf16 as fp32.
std::span<const KernelRow<AttentionKernels>> attention_rows(DType compute = DType::f32);

}  // namespace mudd
