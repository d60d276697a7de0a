// The parts of the bindings of ParamStore, each in a file.
#pragma once

#include "bind/class.h"
#include "mudd/params/param_store.h"

// Add the methods that read and write arrays.
void bind_values(mudd::bind::Class<mudd::ParamStore>& store);

// Add the methods about packed copies and bytes.
void bind_packs(mudd::bind::Class<mudd::ParamStore>& store);
