// The bindings of _core: they convert arguments, release the GIL and call the core.
#include <pybind11/pybind11.h>

#if defined(__aarch64__)
#include <sys/auxv.h>

#include <string>

#include "mudd/base/arm_cpu.h"
#endif
#include "mudd/base/test_build.h"

namespace py = pybind11;

void bind_base(py::module_& m);
void bind_kernels(py::module_& m);
void bind_peak(py::module_& m);
void bind_run(py::module_& m);
void bind_io(py::module_& m);
void bind_shards(py::module_& m);
void bind_dist(py::module_& m);
void bind_store(py::module_& m);
void bind_graph(py::module_& m);
void bind_fingerprint(py::module_& m);
void bind_executor(py::module_& m);
void bind_ops(py::module_& m);
void bind_sample(py::module_& m);
void bind_optim(py::module_& m);
void bind_step(py::module_& m);
void bind_data(py::module_& m);
void bind_rows(py::module_& m);
void bind_mix(py::module_& m);
MUDD_TEST_BUILD void bind_testing(py::module_& m);

PYBIND11_MODULE(_core, m) {
#if defined(__aarch64__)
  if (const std::string fault = mudd::arm_cpu_fault(getauxval(AT_HWCAP)); !fault.empty())
    throw py::import_error(fault);
#endif
  m.doc() = "C++ core of mudd_core; the documented face is the Python package around it.";
  bind_base(m);
  bind_kernels(m);
  bind_peak(m);
  bind_run(m);
  bind_io(m);
  bind_shards(m);
  bind_dist(m);  // before bindings with a Comm in their signatures
  bind_store(m);
  bind_graph(m);
  bind_fingerprint(m);  // before bindings with an observer in their signatures
  bind_executor(m);
  bind_ops(m);
  bind_sample(m);
  bind_data(m);  // before bind_step, which has the batcher in its signatures
  bind_rows(m);
  bind_mix(m);
  bind_optim(m);
  bind_step(m);
  if (&bind_testing != nullptr) bind_testing(m);
}
