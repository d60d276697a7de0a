// Declarations: the parameters of a model by number and by name, and which of them train.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "mudd/params/parameter.h"

namespace mudd {

class Declarations {
 public:
  // Returns the number. A second declaration of the same name must agree in shape and role.
  int declare(const Parameter& parameter);
  // No new parameter from now on: they have memory.
  void close() { closed_ = true; }

  int find(const std::string& name) const;  // -1 when there is none
  int count() const { return static_cast<int>(parameters_.size()); }
  const Parameter& at(int i) const { return parameters_[i]; }
  Parameter& at(int i) { return parameters_[i]; }
  Part whole(int i) const { return {i, 0, at(i).size()}; }

  // Of parameter i this process has weights of these elements alone, whole rows of a matrix, in memory of its own.
  // Without it, it has all of them, in memory of the node where its processes share weights. Before there is
  // memory.
  void hold(int i, int64_t begin, int64_t end);
  Part held(int i) const { return held_[i]; }
  bool holds_whole(int i) const { return held_[i].size() == at(i).size(); }
  bool holds_all() const;
  bool of_node(int i) const { return !own_[i]; }

  int64_t elements() const;  // of all parameters, without padding
  int64_t trained_elements() const;
  std::vector<int> trained() const;  // the trainable parameters, ascending
  // Which parameters train from now on. Error for one stored in 16 bits.
  void train_only(const std::vector<int>& chosen);

 private:
  std::vector<Parameter> parameters_;
  std::vector<Part> held_;                        // of each
  std::vector<bool> own_;                         // held in memory of this process
  std::unordered_map<std::string, int> numbers_;  // by name
  bool closed_ = false;
};

}  // namespace mudd
