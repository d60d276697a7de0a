// Names of an enum's members, in order. A macro that lists them, LIST(each), creates both from one list: enum
// class E { LIST(MUDD_MEMBER) }, and names[] = {LIST(MUDD_NAME)}.
#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <string>

#include "mudd/base/check.h"

#define MUDD_MEMBER(name) name,
#define MUDD_NAME(name) #name,

namespace mudd {

// Return the position of a name in a table. Any other name is an Error that lists all names: "[where] what:
// expected one of ...".
template <class Table, class NameOf = std::identity>
size_t position_of(const Table& table, const std::string& name, const char* where, const char* what,
                   NameOf name_of = {}) {
  std::string known;
  for (size_t i = 0; i < std::size(table); ++i) {
    const std::string one = std::invoke(name_of, table[i]);
    if (one == name) return i;
    known += (i == 0 ? "" : ", ") + one;
  }
  fail(where, what, ": expected one of ", known, ", got '", name, "'");
}

}  // namespace mudd
