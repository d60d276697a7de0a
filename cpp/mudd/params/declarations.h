// Declarations: the parameters of a model by index and by name, and which of them train.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "mudd/params/parameter.h"

namespace mudd {

class Declarations {
 public:
  // Declare a parameter and return its index. A second declaration of the same name must agree in shape and
  // role.
  int declare(const Parameter& parameter);
  // Refuse new parameters from now on, because memory is allocated.
  void close() { closed_ = true; }

  int find(const std::string& name) const;  // -1 if there is none
  int count() const { return static_cast<int>(parameters_.size()); }
  const Parameter& at(int i) const { return parameters_[i]; }
  Parameter& at(int i) { return parameters_[i]; }
  Part whole(int i) const { return {i, 0, at(i).size()}; }

  // Restrict the weights of parameter i to these elements, whole rows of a matrix, in separate memory.
  // Otherwise this process has all of them, in shared memory if its host shares weights. Call it before the
  // allocation.
  void hold(int i, int64_t begin, int64_t end);
  Part held(int i) const { return held_[i]; }
  bool holds_whole(int i) const { return held_[i].size() == at(i).size(); }
  bool holds_all() const;
  bool of_node(int i) const { return !own_[i]; }

  int64_t elements() const;  // of all parameters, without padding
  int64_t trained_elements() const;
  std::vector<int> trained() const;  // the trainable parameters, ascending
  // Train only these parameters from now on. Error for one stored in 16 bits.
  void train_only(const std::vector<int>& chosen);

 private:
  std::vector<Parameter> parameters_;
  std::vector<Part> held_;                        // of each
  std::vector<bool> own_;                         // in memory of this process only
  std::unordered_map<std::string, int> numbers_;  // by name
  bool closed_ = false;
};

}  // namespace mudd
