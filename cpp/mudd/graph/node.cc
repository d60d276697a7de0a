#include "mudd/graph/node.h"

#include <algorithm>
#include <sstream>

#include "mudd/base/check.h"

namespace mudd {

#define MUDD_OP(name) std::unique_ptr<Node> make_##name(const Attributes& attributes);
#include "mudd_ops.inc"
#undef MUDD_OP

namespace {

struct Maker {
  const char* name;
  std::unique_ptr<Node> (*make)(const Attributes&);
};

constexpr Maker kMakers[] = {
#define MUDD_OP(name) {#name, make_##name},
#include "mudd_ops.inc"
#undef MUDD_OP
};

const Attribute* find(const Attributes& a, const char* name) {
  const auto it = a.values.find(name);
  return it == a.values.end() ? nullptr : &it->second;
}

[[noreturn]] void wrong_kind(const Attributes& a, const char* name, const char* wanted) {
  throw TypeMistake("[" + a.op + "] " + name + ": expected " + wanted);
}

}  // namespace

Shards Shards::cut(int64_t samples, int wanted) {
  check(samples >= 1, "shards", "samples: expected at least 1, got ", samples);
  check(wanted >= 1 && (wanted & (wanted - 1)) == 0, "shards", "logical_shards: expected a power of two, got ",
        wanted);
  int64_t n = wanted;
  while (n > samples) n /= 2;
  Shards s;
  s.sample_begin.assign(1, 0);
  for (int64_t i = 0; i < n; ++i)
    s.sample_begin.push_back(s.sample_begin.back() + samples / n + (i < samples % n ? 1 : 0));
  return s;
}

int64_t Attributes::integer(const char* name, int64_t fallback) const {
  const Attribute* a = find(*this, name);
  if (!a) return fallback;
  if (const auto* v = std::get_if<int64_t>(a)) return *v;
  wrong_kind(*this, name, "an int");
}

double Attributes::number(const char* name, double fallback) const {
  const Attribute* a = find(*this, name);
  if (!a) return fallback;
  if (const auto* v = std::get_if<double>(a)) return *v;
  if (const auto* v = std::get_if<int64_t>(a)) return static_cast<double>(*v);
  wrong_kind(*this, name, "a number");
}

bool Attributes::flag(const char* name, bool fallback) const {
  const Attribute* a = find(*this, name);
  if (!a) return fallback;
  if (const auto* v = std::get_if<bool>(a)) return *v;
  wrong_kind(*this, name, "a bool");
}

std::string Attributes::word(const char* name, const char* fallback) const {
  const Attribute* a = find(*this, name);
  if (!a) return fallback;
  if (const auto* v = std::get_if<std::string>(a)) return *v;
  wrong_kind(*this, name, "a str");
}

void Attributes::only(const char* known) const {
  for (const auto& [name, value] : values) {
    std::istringstream list{std::string(known)};
    bool found = false;
    for (std::string k; std::getline(list, k, ',');) found = found || k == name;
    check(found, op.c_str(), "option '", name, "' is unknown; known: ", known);
  }
}

std::unique_ptr<Node> make_node(const std::string& op, const Attributes& attributes) {
  for (const Maker& m : kMakers)
    if (op == m.name) {
      Attributes named = attributes;
      named.op = op;
      return m.make(named);
    }
  fail("graph", "op: no op is called '", op, "'");
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const Maker& m : kMakers) names.emplace_back(m.name);
  return names;
}

}  // namespace mudd
