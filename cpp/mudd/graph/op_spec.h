// The declaration of an op: its inputs, outputs and options. Nodes read their options through it, and Python
// creates the functions of mudd_core.ops from it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mudd/base/kernel_names.h"
#include "mudd/base/option.h"
#include "mudd/base/types.h"

namespace mudd {

class Node;
struct OpSpec;

// Options of an op as Python passes them.
class Attributes {
 public:
  OptionValues values;
  const OpSpec* spec = nullptr;  // set by make_node

  // Return the value of an option of this type, or its default. StateError for a name that the spec does not
  // declare.
  int64_t integer(const char* name) const;
  double number(const char* name) const;
  bool flag(const char* name) const;
  const std::string& word(const char* name) const;
  // Return the index of a string among the choices, as an enum in the same order.
  template <class Enum>
  Enum choice(const char* name) const {
    return static_cast<Enum>(position(name));
  }

 private:
  const OptionValue& at(const char* name) const;
  size_t position(const char* name) const;
};

struct OpInput {
  enum Kind : uint8_t {
    kFloat = 0,
    kOptional = 1,
    kIndex = 2,  // int32, without a gradient
    kState = 4,  // written by forward (a KV cache); not an input of backward
  };
  std::string name;
  int kind = kFloat;
  bool optional() const { return (kind & kOptional) != 0; }
  bool index() const { return (kind & kIndex) != 0; }
  bool state() const { return (kind & kState) != 0; }
};

struct OpOutput {
  enum Kind : uint8_t {
    kFloat = 0,
    kRepeated = 1,    // one for each repetition of inputs, or the count of shapes
    kNoGradient = 2,  // counts and indices
    kLoss = 4,        // a sum in float64; its gradient is 1 unless it is set
  };
  std::string name;
  int kind = kFloat;
  DType dtype = DType::f32;
  bool repeated() const { return (kind & kRepeated) != 0; }
  bool has_gradient() const { return (kind & kNoGradient) == 0; }
  bool loss() const { return (kind & kLoss) != 0; }
};

struct OpSpec {
  const char* name = "";
  const char* help = "";  // a first line, then the formula and the shapes of inputs: the docstring in Python
  const char* backward_help = "";  // addition to the docstring of <op>_backward
  std::vector<OpInput> inputs{};
  std::vector<OpInput> repeated{};  // inputs that follow, as a group, any number of times
  std::vector<OpOutput> outputs{};
  std::vector<Option> options{};
  std::unique_ptr<Node> (*make)(const Attributes&) = nullptr;
  std::vector<KernelName> (*kernels)() = nullptr;  // the kernels of its nodes, in fp32 and in bf16
};

// Create a node of class T, for OpSpec::make.
template <class T>
std::unique_ptr<Node> make(const Attributes& attributes) {
  return std::make_unique<T>(attributes);
}

// Return all ops: the .cc of each op folder defines <op>_op(); CMake makes the list from the folders.
std::span<const OpSpec* const> op_specs();
// Check the options and create a node by op name.
std::unique_ptr<Node> make_node(const std::string& op, const Attributes& attributes);

}  // namespace mudd
