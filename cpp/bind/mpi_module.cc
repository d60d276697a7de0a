// _mpi: the transport over Open MPI. A separate module, so that the core links no MPI and only processes from a
// launcher load it.
#include <pybind11/pybind11.h>

#include "mudd/dist/comm_mpi.h"

namespace py = pybind11;
using namespace mudd::dist;

namespace {

// _core takes the pointer and renames the capsule; an unused pointer is freed with the capsule.
void drop(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kTransportCapsule))
    delete static_cast<Transport*>(PyCapsule_GetPointer(capsule, kTransportCapsule));
}

py::object transport(bool rank_is_node, int64_t shared_bytes) {
  PyObject* capsule =
      PyCapsule_New(mpi_transport({rank_is_node, shared_bytes}).release(), kTransportCapsule, &drop);
  if (!capsule) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

PYBIND11_MODULE(_mpi, m) {
  m.doc() = "Messages over Open MPI; use mudd_core.dist.launched().";
  m.def("transport", &transport, py::arg("rank_is_node"), py::arg("shared_bytes"),
        "A transport for _core.join_ranks. Nothing of MPI runs before.");
}
