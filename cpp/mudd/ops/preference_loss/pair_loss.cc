// The formulas of preference_loss for one pair, in double.
#include <algorithm>

#include "mudd/base/math.h"
#include "mudd/ops/preference_loss/preference_loss.h"

namespace mudd {
namespace {

double sigmoid(double x) { return x < 0 ? math::exp(x) / (1 + math::exp(x)) : 1 / (1 + math::exp(-x)); }

double log_sigmoid(double x) { return std::min(x, 0.0) - math::log(1 + math::exp(x < 0 ? x : -x)); }

// Return 1 - exp(x) for x <= 0; a series where the difference would cancel.
double complement(double x) {
  constexpr double kSmall = 0.01;
  if (x < -kSmall) return 1 - math::exp(x);
  return -x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6)))));
}

PairLoss dpo(const PreferenceRule& rule, const AnswerSums& chosen, const AnswerSums& rejected) {
  const double e = rule.smoothing;
  PairLoss p;
  p.margin = rule.beta * ((chosen.log_prob - chosen.reference) - (rejected.log_prob - rejected.reference));
  p.loss = -(1 - e) * log_sigmoid(p.margin) - e * log_sigmoid(-p.margin);
  p.by_chosen = rule.beta * (e * sigmoid(p.margin) - (1 - e) * sigmoid(-p.margin));
  p.by_rejected = -p.by_chosen;
  return p;
}

PairLoss orpo(const PreferenceRule& rule, const AnswerSums& chosen, const AnswerSums& rejected) {
  const auto n_c = static_cast<double>(chosen.targets), n_r = static_cast<double>(rejected.targets);
  const double a_c = chosen.log_prob / n_c, a_r = rejected.log_prob / n_r;
  const double q_c = complement(a_c), q_r = complement(a_r);
  const double odds = (a_c - math::log(q_c)) - (a_r - math::log(q_r));
  const double slope = -rule.beta * sigmoid(-odds);
  const bool mean = chosen.nll < 0;
  PairLoss p;
  p.margin = rule.beta * (a_c - a_r);
  p.loss = (mean ? -a_c : -chosen.nll * (chosen.log_prob + chosen.others)) - rule.beta * log_sigmoid(odds);
  p.by_chosen = mean ? (slope / q_c - 1) / n_c : slope / q_c / n_c - chosen.nll;
  p.by_others = mean ? 0 : -chosen.nll;
  p.by_rejected = -slope / q_r / n_r;
  return p;
}

}  // namespace

PairLoss pair_loss(const PreferenceRule& rule, const AnswerSums& chosen, const AnswerSums& rejected) {
  return rule.kind == Preference::dpo ? dpo(rule, chosen, rejected) : orpo(rule, chosen, rejected);
}

}  // namespace mudd
