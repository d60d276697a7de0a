// Functions on the parameter store for several bindings.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "mudd/base/busy.h"
#include "mudd/params/param_store.h"

namespace mudd::bind {

// Return the index of a parameter; KeyError for an unknown name.
inline int index_of(const ParamStore& store, const std::string& name) {
  const int i = store.parameters().find(name);
  if (i < 0) throw pybind11::key_error(name);
  return i;
}

// The weights, and the graphs over them, have one user at a time.
inline Busy in_use(ParamStore& store) { return Busy(store.busy(), "model"); }

// Return when the planes may be written (ParamStore::before_change).
inline void before_change(ParamStore& store) {
  const pybind11::gil_scoped_release release;  // the thread of a save needs the GIL between two files
  store.before_change();
}

}  // namespace mudd::bind
