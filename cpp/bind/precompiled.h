// Headers that the files of the extension modules share. text.h must be the first (see there).
#pragma once

#include "text.h"

#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
