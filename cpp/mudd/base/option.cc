#include "mudd/base/option.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "mudd/base/check.h"

namespace mudd {
namespace {

std::string joined(const std::vector<std::string>& words, const char* last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : i + 1 < words.size() ? ", " : last) + words[i];
  return text;
}

std::string text_of(double value) {
  std::ostringstream text;
  if (std::abs(value) < 0x1p53 && value == std::trunc(value)) text << static_cast<int64_t>(value);
  else text << value;
  return text.str();
}

std::string text_of(const OptionValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* word = std::get_if<std::string>(&value)) return "'" + *word + "'";
  std::ostringstream text;
  text << std::get<double>(value);
  return text.str();
}

// Return the type of an option with its article.
const char* type_of(const OptionValue& fallback) {
  static constexpr const char* names[] = {"a bool", "an int", "a number", "a str"};
  return names[fallback.index()];
}

}  // namespace

bool Bounds::contain(double value) const {
  return std::isfinite(value) && (low_open ? value > low : value >= low) &&
         (high_open ? value < high : value <= high);
}

std::string Option::expected() const {
  if (!choices.empty()) return joined(choices, " or ");
  if (std::holds_alternative<bool>(fallback) || std::holds_alternative<std::string>(fallback))
    return type_of(fallback);
  const std::string low = text_of(bounds.low), high = text_of(bounds.high);
  if (std::holds_alternative<int64_t>(fallback)) {
    if (std::isinf(bounds.low)) return type_of(fallback);
    return std::isinf(bounds.high) ? "at least " + low : low + " to " + high;
  }
  if (std::isinf(bounds.low)) return "a finite number";
  if (std::isinf(bounds.high)) return (bounds.low_open ? "a number > " : "a number >= ") + low;
  return "a number in " + std::string(bounds.low_open ? "(" : "[") + low + ", " + high +
         (bounds.high_open ? ")" : "]");
}

OptionValue Option::checked(const char* owner, const OptionValue& value) const {
  const auto* whole = std::get_if<int64_t>(&value);
  const bool to_number = whole && std::holds_alternative<double>(fallback);
  if (value.index() != fallback.index() && !to_number)
    throw TypeMistake("[" + std::string(owner) + "] " + name + ": expected " + type_of(fallback) + ", got " +
                      text_of(value));
  bool allowed = true;
  if (whole) allowed = bounds.contain(static_cast<double>(*whole));
  else if (const auto* real = std::get_if<double>(&value)) allowed = bounds.contain(*real);
  else if (const auto* word = std::get_if<std::string>(&value))
    allowed = choices.empty() || std::ranges::count(choices, *word) > 0;
  if (!allowed) fail(owner, name, ": expected ", expected(), ", got ", text_of(value));
  return to_number ? static_cast<double>(*whole) : value;
}

namespace option {

Option number(std::string name, double fallback, Bounds bounds, std::string help) {
  return {.name = std::move(name), .fallback = fallback, .help = std::move(help), .bounds = bounds};
}

Option integer(std::string name, int64_t fallback, Bounds bounds, std::string help) {
  return {.name = std::move(name), .fallback = fallback, .help = std::move(help), .bounds = bounds};
}

Option flag(std::string name, bool fallback, std::string help) {
  return {.name = std::move(name), .fallback = fallback, .help = std::move(help)};
}

Option word(std::string name, std::string fallback, std::vector<std::string> choices, std::string help) {
  return {.name = std::move(name),
          .fallback = std::move(fallback),
          .help = std::move(help),
          .choices = std::move(choices)};
}

void fail_unknown(const char* owner, const std::string& name, const std::vector<Option>& declared) {
  std::vector<std::string> names;
  for (const Option& one : declared) names.push_back(one.name);
  fail(owner, "option '", name, "' is unknown; known: ", joined(names, ", "));
}

}  // namespace option
}  // namespace mudd
