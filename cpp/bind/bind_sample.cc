// The next token from logits.
#include <pybind11/pybind11.h>

#include "bind/numpy.h"
#include "mudd/train/sampler.h"

namespace py = pybind11;
using namespace mudd;

void bind_sample(py::module_& m) {
  m.def(
      "sample",
      [](const py::object& logits, double temperature, int64_t top_k, double top_p, uint64_t seed,
         int64_t position) {
        py::object hold;
        const Tensor t = bind::tensor(logits, DType::f32, "sample", "logits", &hold);
        return sample_token(t.f32(), t.rows * t.cols, position,
                            {.temperature = temperature, .top_k = top_k, .top_p = top_p, .seed = seed});
      },
      py::arg("logits"), py::kw_only(), py::arg("temperature"), py::arg("top_k"), py::arg("top_p"),
      py::arg("seed"), py::arg("position"),
      "Token drawn from logits float32 [V]; a pure function of its arguments.");
}
