// A named option of an op or an optimizer. The declaration has its type, default, bounds and help, and checks a
// value.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace mudd {

using OptionValue = std::variant<bool, int64_t, double, std::string>;
using OptionValues = std::map<std::string, OptionValue>;

// The range of a numeric option; all values are finite.
struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool contain(double value) const;
};
inline Bounds at_least(double low) { return {.low = low}; }
inline Bounds above(double low) { return {.low = low, .low_open = true}; }
inline Bounds from_to(double low, double high) { return {.low = low, .high = high}; }
inline Bounds from_to_below(double low, double high) { return {.low = low, .high = high, .high_open = true}; }

struct Option {
  std::string name;
  OptionValue fallback;  // its alternative is the option's type
  std::string help;
  Bounds bounds{};                     // of numbers
  std::vector<std::string> choices{};  // of strings; empty: any

  // Return the allowed values as a phrase: "a number in [0, 1)".
  std::string expected() const;
  // Convert an int to a number if the option is one. Error for a value that is not allowed, TypeMistake for
  // another type; both name `owner`, the option and the value.
  OptionValue checked(const char* owner, const OptionValue& value) const;
};

namespace option {

// Options by type. The default of a string option is one of its choices; without choices any string.
Option number(std::string name, double fallback, Bounds bounds, std::string help);
Option integer(std::string name, int64_t fallback, Bounds bounds, std::string help);
Option flag(std::string name, bool fallback, std::string help);
Option word(std::string name, std::string fallback, std::vector<std::string> choices, std::string help);

// Return the declaration of this name, or null.
template <class Declared>
const Declared* find(const std::vector<Declared>& declared, const std::string& name) {
  for (const Declared& one : declared)
    if (one.name == name) return &one;
  return nullptr;
}

[[noreturn]] void fail_unknown(const char* owner, const std::string& name, const std::vector<Option>& declared);

// Check each value. Error for a name that is not declared; it lists the declared ones.
template <class Declared>
OptionValues checked(const char* owner, const std::vector<Declared>& declared, OptionValues given) {
  for (auto& [name, value] : given) {
    const Declared* one = find(declared, name);
    if (!one) fail_unknown(owner, name, {declared.begin(), declared.end()});
    value = one->checked(owner, value);
  }
  return given;
}

}  // namespace option
}  // namespace mudd
