// The declaration of an op: its inputs, outputs and options. Nodes read their options through it, Python makes the
// functions of mudd_core.ops from it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "mudd/base/types.h"

namespace mudd {

class Node;
struct OpSpec;

// Options of an op as Python passes them.
using Attribute = std::variant<bool, int64_t, double, std::string>;
class Attributes {
 public:
  std::map<std::string, Attribute> values;
  const OpSpec* spec = nullptr;  // set by make_node

  // The value of an option of this type, or its default. StateError for a name that the spec does not declare.
  int64_t integer(const char* name) const;
  double number(const char* name) const;
  bool flag(const char* name) const;
  const std::string& word(const char* name) const;
  // The position of a word among the choices, as an enum whose members are in their order.
  template <class Enum>
  Enum choice(const char* name) const {
    return static_cast<Enum>(position(name));
  }

 private:
  const Attribute& at(const char* name) const;
  size_t position(const char* name) const;
};

struct OpInput {
  enum Kind : uint8_t {
    kFloat = 0,
    kOptional = 1,
    kIndex = 2,  // int32, without a gradient
    kState = 4,  // written by forward (a KV cache); backward does not take it
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
    kRepeated = 1,    // one for each repetition of inputs, or as many as shapes say
    kNoGradient = 2,  // counts and indices
    kLoss = 4,        // a sum in float64; its gradient is 1 unless given
  };
  std::string name;
  int kind = kFloat;
  DType dtype = DType::f32;
  bool repeated() const { return (kind & kRepeated) != 0; }
  bool has_gradient() const { return (kind & kNoGradient) == 0; }
  bool loss() const { return (kind & kLoss) != 0; }
};

// The numbers that an option may have; all of them are finite.
struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool contain(double value) const;
};
inline Bounds at_least(double low) { return {.low = low}; }
inline Bounds above(double low) { return {.low = low, .low_open = true}; }
inline Bounds from_to(double low, double high) { return {.low = low, .high = high}; }
inline Bounds from_to_below(double low, double high) { return {.low = low, .high = high, .high_open = true}; }

struct OpOption {
  std::string name;
  Attribute fallback;  // its alternative is the option's type
  std::string help;
  Bounds bounds{};                     // of numbers
  std::vector<std::string> choices{};  // of words; empty: any

  // The allowed values in words: "a number in [0, 1)".
  std::string expected() const;
  // Error or TypeMistake for a value that is not allowed; an int becomes a number where one is expected.
  void check_value(const char* op, Attribute& value) const;
};

// Words for the fields of OpSpec.
namespace option {
OpOption number(std::string name, double fallback, Bounds bounds, std::string help);
OpOption integer(std::string name, int64_t fallback, Bounds bounds, std::string help);
OpOption flag(std::string name, bool fallback, std::string help);
// `fallback` is one of the choices; without choices any word.
OpOption word(std::string name, std::string fallback, std::vector<std::string> choices, std::string help);
}  // namespace option

struct OpSpec {
  const char* name = "";
  std::vector<OpInput> inputs{};
  std::vector<OpInput> repeated{};  // inputs that follow, as a group, any number of times
  std::vector<OpOutput> outputs{};
  std::vector<OpOption> options{};
  std::unique_ptr<Node> (*make)(const Attributes&) = nullptr;

  const OpOption* find_option(const std::string& option) const;
};

// A node of class T as OpSpec::make.
template <class T>
std::unique_ptr<Node> make(const Attributes& attributes) {
  return std::make_unique<T>(attributes);
}

// All ops: the .cc of each op folder defines <op>_op(), the list comes from the folders (CMake).
std::span<const OpSpec* const> op_specs();
// Makes a node by op name after a check of its options.
std::unique_ptr<Node> make_node(const std::string& op, const Attributes& attributes);

}  // namespace mudd
