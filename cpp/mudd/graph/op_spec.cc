#include "mudd/graph/op_spec.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/graph/node.h"

namespace mudd {

#define MUDD_OP(name) const OpSpec& name##_op();
#include "mudd_ops.inc"
#undef MUDD_OP

namespace {

std::string joined(const std::vector<std::string>& words, const char* last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : i + 1 < words.size() ? ", " : last) + words[i];
  return text;
}

std::string name_list(const OpSpec& spec) {
  std::vector<std::string> names;
  for (const OpOption& o : spec.options) names.push_back(o.name);
  return joined(names, ", ");
}

[[noreturn]] void wrong_type(const char* op, const std::string& name, const char* wanted) {
  throw TypeMistake("[" + std::string(op) + "] " + name + ": expected " + wanted);
}

std::string text_of(double value) {
  std::ostringstream text;
  if (std::abs(value) < 0x1p53 && value == std::trunc(value)) text << static_cast<int64_t>(value);
  else text << value;
  return text.str();
}

// The options that are given, checked; an int in place of a number becomes one.
Attributes checked(const OpSpec& spec, const Attributes& given) {
  Attributes attributes = given;
  attributes.spec = &spec;
  for (auto& [name, value] : attributes.values) {
    const OpOption* option = spec.find_option(name);
    check(option != nullptr, spec.name, "option '", name, "' is unknown; known: ", name_list(spec));
    option->check_value(spec.name, value);
  }
  return attributes;
}

}  // namespace

bool Bounds::contain(double value) const {
  return std::isfinite(value) && (low_open ? value > low : value >= low) &&
         (high_open ? value < high : value <= high);
}

std::string OpOption::expected() const {
  if (std::holds_alternative<bool>(fallback)) return "a bool";
  if (std::holds_alternative<std::string>(fallback)) return choices.empty() ? "a str" : joined(choices, " or ");
  const std::string low = text_of(bounds.low), high = text_of(bounds.high);
  if (std::holds_alternative<int64_t>(fallback)) {
    if (std::isinf(bounds.low)) return "an int";
    return std::isinf(bounds.high) ? "at least " + low : low + " to " + high;
  }
  if (std::isinf(bounds.low)) return "a finite number";
  if (std::isinf(bounds.high)) return (bounds.low_open ? "a number > " : "a number >= ") + low;
  return "a number in " + std::string(bounds.low_open ? "(" : "[") + low + ", " + high +
         (bounds.high_open ? ")" : "]");
}

void OpOption::check_value(const char* op, Attribute& value) const {
  if (std::holds_alternative<bool>(fallback)) {
    if (!std::holds_alternative<bool>(value)) wrong_type(op, name, "a bool");
    return;
  }
  if (std::holds_alternative<std::string>(fallback)) {
    const auto* word = std::get_if<std::string>(&value);
    if (!word) wrong_type(op, name, "a str");
    check(choices.empty() || std::ranges::count(choices, *word) > 0, op, name, ": expected ", expected(),
          ", got '", *word, "'");
    return;
  }
  if (const auto* number = std::get_if<int64_t>(&value)) {
    check(bounds.contain(static_cast<double>(*number)), op, name, ": expected ", expected(), ", got ", *number);
    if (std::holds_alternative<double>(fallback)) value = static_cast<double>(*number);
    return;
  }
  if (std::holds_alternative<int64_t>(fallback)) wrong_type(op, name, "an int");
  const auto* number = std::get_if<double>(&value);
  if (!number) wrong_type(op, name, "a number");
  check(bounds.contain(*number), op, name, ": expected ", expected(), ", got ", *number);
}

namespace option {

OpOption number(std::string name, double fallback, Bounds bounds, std::string help) {
  return {.name = std::move(name), .fallback = fallback, .help = std::move(help), .bounds = bounds};
}

OpOption integer(std::string name, int64_t fallback, Bounds bounds, std::string help) {
  return {.name = std::move(name), .fallback = fallback, .help = std::move(help), .bounds = bounds};
}

OpOption flag(std::string name, bool fallback, std::string help) {
  return {.name = std::move(name), .fallback = fallback, .help = std::move(help)};
}

OpOption word(std::string name, std::string fallback, std::vector<std::string> choices, std::string help) {
  return {.name = std::move(name),
          .fallback = std::move(fallback),
          .help = std::move(help),
          .choices = std::move(choices)};
}

}  // namespace option

const OpOption* OpSpec::find_option(const std::string& option) const {
  const auto found = std::ranges::find(options, option, &OpOption::name);
  return found == options.end() ? nullptr : &*found;
}

const Attribute& Attributes::at(const char* name) const {
  const OpOption* option = spec ? spec->find_option(name) : nullptr;
  if (!option) throw StateError("[op] option '" + std::string(name) + "' is not declared by the op");
  const auto given = values.find(name);
  return given == values.end() ? option->fallback : given->second;
}

int64_t Attributes::integer(const char* name) const { return std::get<int64_t>(at(name)); }
double Attributes::number(const char* name) const { return std::get<double>(at(name)); }
bool Attributes::flag(const char* name) const { return std::get<bool>(at(name)); }
const std::string& Attributes::word(const char* name) const { return std::get<std::string>(at(name)); }

size_t Attributes::position(const char* name) const {
  const std::string& chosen = word(name);
  const auto& choices = spec->find_option(name)->choices;
  return static_cast<size_t>(std::ranges::find(choices, chosen) - choices.begin());
}

std::span<const OpSpec* const> op_specs() {
  static const OpSpec* const specs[] = {
#define MUDD_OP(name) &name##_op(),
#include "mudd_ops.inc"
#undef MUDD_OP
  };
  return specs;
}

std::unique_ptr<Node> make_node(const std::string& op, const Attributes& attributes) {
  for (const OpSpec* spec : op_specs())
    if (op == spec->name) return spec->make(checked(*spec, attributes));
  fail("graph", "op: no op is called '", op, "'");
}

}  // namespace mudd
