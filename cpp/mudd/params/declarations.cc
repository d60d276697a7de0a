#include "mudd/params/declarations.h"

#include "mudd/base/check.h"

namespace mudd {

int Declarations::declare(const Parameter& parameter) {
  const int known = find(parameter.name);
  if (known >= 0) {
    check(at(known).shape == parameter.shape && at(known).role == parameter.role, "parameter", parameter.name,
          ": declared twice with different shapes or roles");
    return known;
  }
  check(!closed_, "parameter", parameter.name, ": declared after the parameters were allocated");
  for (int64_t d : parameter.shape)
    check(d >= 1, "parameter", parameter.name, ": expected a shape of whole numbers from 1 on, got ", d);
  check(parameter.stored == DType::f32 || (may_be_narrow(parameter) && !parameter.trainable), "parameter",
        parameter.name, ": only frozen matrices are stored in 16 bits, and of them no router");
  numbers_.emplace(parameter.name, count());
  parameters_.push_back(parameter);
  held_.push_back(whole(count() - 1));
  own_.push_back(false);
  return count() - 1;
}

int Declarations::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

void Declarations::hold(int i, int64_t begin, int64_t end) {
  check(!closed_, "parameter", at(i).name, ": held in part only after the parameters were allocated");
  const int64_t row = at(i).shape.size() < 2 ? 1 : at(i).cols();
  check(0 <= begin && begin <= end && end <= at(i).size() && begin % row == 0 && end % row == 0, "parameter",
        at(i).name, ": expected whole rows of ", row, " elements inside [0, ", at(i).size(), "), got [", begin,
        ", ", end, ")");
  held_[i] = {i, begin, end};
  own_[i] = true;
}

bool Declarations::holds_all() const {
  for (int i = 0; i < count(); ++i)
    if (!holds_whole(i)) return false;
  return true;
}

int64_t Declarations::elements() const {
  int64_t n = 0;
  for (const Parameter& p : parameters_) n += p.size();
  return n;
}

int64_t Declarations::trained_elements() const {
  int64_t n = 0;
  for (int i : trained()) n += at(i).size();
  return n;
}

std::vector<int> Declarations::trained() const {
  std::vector<int> found;
  for (int i = 0; i < count(); ++i)
    if (at(i).trainable) found.push_back(i);
  return found;
}

void Declarations::train_only(const std::vector<int>& chosen) {
  for (int i : chosen)
    check(at(i).stored == DType::f32, "train_only", at(i).name, ": it is stored in ", name_of(at(i).stored),
          ", as only frozen parameters are");
  for (Parameter& p : parameters_) p.trainable = false;
  for (int i : chosen) at(i).trainable = true;
}

}  // namespace mudd
