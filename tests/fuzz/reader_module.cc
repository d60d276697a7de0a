// The module _core with only the bindings that the Python file readers call, for the Python fuzz targets.
#include <pybind11/pybind11.h>

namespace py = pybind11;

void bind_base(py::module_& m);
void bind_io(py::module_& m);
void bind_shards(py::module_& m);
void bind_data(py::module_& m);

PYBIND11_MODULE(_core, m) {
  bind_base(m);
  bind_io(m);
  bind_shards(m);
  bind_data(m);
}
