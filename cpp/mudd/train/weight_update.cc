#include "mudd/train/weight_update.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "mudd/base/check.h"

namespace mudd {
namespace {

// Finds the group of a parameter: the one that names it, else the first without names, else the count of
// groups.
class GroupSearch {
 public:
  explicit GroupSearch(const std::vector<UpdateGroup>& groups) : rest_(groups.size()) {
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].parameters.empty()) rest_ = std::min(rest_, g);
      for (const std::string& name : groups[g].parameters) named_.emplace(name, g);
    }
  }
  size_t operator()(const std::string& name) const {
    const auto found = named_.find(name);
    return found == named_.end() ? rest_ : found->second;
  }

 private:
  size_t rest_;
  std::unordered_map<std::string, size_t> named_;
};

}  // namespace

std::function<bool(const Parameter&)> whole_matrices(const UpdateOptions& options) {
  std::vector<bool> whole;
  for (const UpdateGroup& g : options.groups)
    whole.push_back(make_optimizer(g.optimizer, g.settings, g.moment, g.second)->whole_matrices());
  return [group_of = GroupSearch(options.groups), whole](const Parameter& p) {
    const size_t g = group_of(p.name);
    return g < whole.size() && whole[g];
  };
}

WeightUpdate::WeightUpdate(Executor& executor, const UpdateOptions& options, const GradientSync& sync)
    : executor_(executor), options_(options) {
  const ParamStore& store = executor_.store();
  const GradientSums& sums = executor_.gradients();
  for (int i = 0; i < store.parameters().count(); ++i)
    check(sums.uses(i) <= kMaxGradientUses, "train_step", store.parameters().at(i).name, ": expected at most ",
          kMaxGradientUses, " uses, got ", sums.uses(i));
  make_groups();
  book_moments(sync);
  for (int i = 0; i < store.parameters().count(); ++i)
    for (int64_t s = 0; sums.uses(i) > 0 && s < store.parameters().at(i).stack(); ++s)
      add_matrix(sync, sync.part(i), s);
  int64_t scratch = 0;
  for (const Group& g : groups_) scratch = std::max(scratch, g.optimizer->scratch_bytes(g.matrices));
  if (scratch > 0) scratch_ = Arena(scratch, store.booked_only());
}

void WeightUpdate::make_groups() {
  const ParamStore& store = executor_.store();
  check(!options_.groups.empty(), "train_step", "groups: expected at least one");
  moment_ = options_.groups.front().moment;
  second_ = options_.groups.front().second;
  for (const UpdateGroup& g : options_.groups) {
    check(g.moment == moment_ && g.second == second_, "train_step", "groups: expected moments of the same types");
    for (const std::string& name : g.parameters)
      check(store.parameters().find(name) >= 0, "train_step", "groups: there is no parameter '", name, "'");
    groups_.push_back({.optimizer = make_optimizer(g.optimizer, g.settings, g.moment, g.second),
                       .weight_decay = g.weight_decay});
  }
  const GroupSearch group_of_name(options_.groups);
  for (int i = 0; i < store.parameters().count(); ++i) {
    const Parameter& p = store.parameters().at(i);
    group_.push_back(group_of_name(p.name));
    check(group_[i] < groups_.size(), "train_step", p.name, ": is in no group of parameters");
    check(!p.trainable || group_of(i).optimizer->spec().can_take(p), "train_step", p.name, ": ",
          options_.groups[group_[i]].optimizer, " takes no parameters of its role and shape");
  }
}

bool WeightUpdate::is_factored(int i) {
  const ParamStore& store = executor_.store();
  return group_of(i).optimizer->factored() && store.parameters().at(i).shape.size() > 1;
}

// Allocate a plane for each moment, for the parts of trained parameters that are updated here with it. The
// planes of the second moment's factors exist only if a parameter has some.
void WeightUpdate::book_moments(const GradientSync& sync) {
  ParamStore& store = executor_.store();
  struct Wanted {
    DType type;
    PlaneAxis axis = PlaneAxis::elements;
    std::vector<Part> members = {};
  };
  std::vector<Wanted> wanted = {{moment_},
                                {second_},
                                {DType::f32, PlaneAxis::rows},
                                {DType::f32, PlaneAxis::columns},
                                {DType::f32, PlaneAxis::rows}};
  for (int i : store.parameters().trained()) {
    const Part part = sync.part(i);
    const OptimizerSpec& spec = group_of(i).optimizer->spec();
    if (spec.moments > 0) wanted[kFirst].members.push_back(part);
    for (const int k : {kRows, kUpdates})
      if (spec.by_rows) wanted[k].members.push_back(part);
    if (spec.moments < 2) continue;
    if (!is_factored(i)) wanted[kSecond].members.push_back(part);
    for (const int k : {kRows, kColumns})
      if (is_factored(i)) wanted[k].members.push_back(part);
  }
  while (!wanted.empty() && wanted.back().members.empty()) wanted.pop_back();
  moments_ = options_.moment_planes;
  const bool fresh = moments_.empty();
  for (size_t k = 0; k < wanted.size(); ++k) {
    const auto& [type, axis, members] = wanted[k];
    if (fresh) moments_.push_back(store.planes().add(type, members, axis));
    check(k < moments_.size() && moments_[k] >= 1 && moments_[k] < store.planes().count() &&
              store.planes().dtype(moments_[k]) == type && store.planes().axis(moments_[k]) == axis,
          "train_step", "moment_planes: expected the planes of an earlier step like this one");
    for (const Part& part : members)
      check(store.planes().held(moments_[k], part.parameter).size() ==
                part_in(axis, store.parameters().at(part.parameter), part).size(),
            "train_step", store.parameters().at(part.parameter).name, ": has no moments in plane ", moments_[k]);
  }
}

// Add the part of matrix s in the stack of the parameter (most are stacks of one): whole rows, or elements of a
// vector.
void WeightUpdate::add_matrix(const GradientSync& sync, const Part& part, int64_t s) {
  const ParamStore& store = executor_.store();
  const GradientSums& sums = executor_.gradients();
  const int i = part.parameter;
  const Parameter& p = store.parameters().at(i);
  const int64_t matrix = p.matrix_rows() * p.cols();
  const int64_t begin = std::max(part.begin, s * matrix), end = std::min(part.end, (s + 1) * matrix);
  if (begin >= end) return;
  UpdateParameter a{};
  a.rows = p.shape.size() < 2 ? 1 : (end - begin) / p.cols();
  a.cols = (end - begin) / a.rows;
  a.first_row = (begin - s * matrix) / p.cols();
  a.matrix_rows = p.matrix_rows();
  a.w = store.planes().master_at(i, begin);
  a.n_grads = sums.uses(i);
  a.grad_begin = begin;
  for (int use = 0; use < a.n_grads; ++use) {
    a.grad_rows[use] = sync.rows(i, use);
    if (!a.grad_rows[use]) a.grads[use] = sums.whole(i, use) + begin;
  }
  Group& group = group_of(i);
  a.fan_in = p.fan_in;
  a.fan_out = p.fan_out;
  const int64_t in_part = begin - part.begin;
  const OptimizerSpec& spec = group.optimizer->spec();
  if (spec.moments > 0) a.m = store.planes().data(moments_[kFirst], i) + in_part * size_of(moment_);
  if (spec.by_rows) {
    a.row_moment = store.planes().floats(moments_[kRows], i) + in_part / p.cols();
    a.row_update = store.planes().floats(moments_[kUpdates], i) + in_part / p.cols();
  }
  if (is_factored(i)) {
    check(begin % matrix == 0 && end - begin == matrix, "train_step", p.name, ": expected whole matrices");
    a.row_moment = store.planes().floats(moments_[kRows], i) + in_part / p.cols();
    a.column_moment = store.planes().floats(moments_[kColumns], i) + in_part / matrix * p.cols();
  } else if (spec.moments > 1) {
    a.v = store.planes().data(moments_[kSecond], i) + in_part * size_of(second_);
  }
  a.packed = store.compute();
  a.eps = options_.eps * p.eps_scale;
  group.matrices.push_back(a);
  group.indices.push_back(i);
  group.in_stack.push_back(s);
}

void WeightUpdate::set_rates(Group& group, double lr) const {
  const ParamStore& store = executor_.store();
  const double schedule = options_.peak_lr > 0 ? lr / options_.peak_lr : 0;
  for (size_t k = 0; k < group.matrices.size(); ++k) {
    UpdateParameter& a = group.matrices[k];
    const Parameter& p = store.parameters().at(group.indices[k]);
    a.lr = lr * p.lr_scale;
    a.decay = (p.decay_independent ? schedule : a.lr) * group.weight_decay * p.decay_scale;
    // Refresh copies that decoding requested since the last step.
    const auto packed = [&](Pack how) -> std::byte* {
      std::byte* panels = store.packs().by_update(group.indices[k], how);
      const int64_t matrix = group.in_stack[k] - store.packs().first_matrix(group.indices[k]);
      return panels ? panels + matrix * store.packs().stride(group.indices[k], how) : nullptr;
    };
    a.packed_plain = packed(Pack::plain);
    a.packed_transposed = packed(Pack::transposed);
  }
}

bool WeightUpdate::run(int64_t updates, double lr, double grad_scale) {
  bool finite = true;
  for (Group& group : groups_) {
    set_rates(group, lr);
    finite &= group.optimizer->update(group.matrices, updates + 1, grad_scale, scratch_.data());
  }
  return finite;
}

}  // namespace mudd
