// moe_balance: the auxiliary losses of a mixture of experts from the metrics of its routers (moe_route.h).
//   With N_l real tokens and c_{l,e} slots routed to e before dropping, Pi_{l,e} the sums of the probabilities:
//   pooled     A = E sum_e F_e P_e,  F_e = sum_l c_{l,e} / N,  P_e = sum_l Pi_{l,e} / N,  N = sum_l N_l
//              (transformers' load_balancing_loss_func; perfect balance gives k)
//   per_layer  A = sum_l E sum_e c_{l,e} / (k N_l) * Pi_{l,e} / N_l      (Megatron-LM; perfect balance gives L)
//   Z = sum_l (1 / N_l) sum_t (ln sum_e exp z_{l,t,e})^2                 (Zoph et al. 2022, router z-loss)
//
// Inputs: targets i32 [B, T], then the metrics fp32 [B, 4 E + 3] of each layer.
// Outputs, f64 [S], sums as in cross_entropy (contracts 3), with n_s the targets of shard s that are not ignored:
//   0 n_s (balance A + z Z),  1 n_s A,  2 n_s Z.
// The averages run over each logical shard alone (option scope shard) or over all of them (batch).
// The averages run over each logical shard (option scope shard) or over all of them (batch).
#pragma once

namespace mudd {}
