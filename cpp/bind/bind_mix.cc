// Mixtures of several sources.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <utility>
#include <vector>

#include "bind/batcher.h"
#include "bind/class.h"
#include "mudd/base/check.h"
#include "mudd/data/mix_schedule.h"
#include "mudd/data/mixed_rows.h"

namespace py = pybind11;

namespace {

using namespace mudd;
using bind::PySource;

struct PySchedule {
  MixSchedule schedule;
  BusyFlag busy;

  explicit PySchedule(MixSchedule made) : schedule(std::move(made)) {}
};

// The sequences of a mixture, which keeps the objects of its sources.
struct PyMixed final : PySource {
  py::list kept;
  PyMixed(std::unique_ptr<BatchSource> made, py::list sources)
      : PySource(std::move(made)), kept(std::move(sources)) {}
};

std::unique_ptr<PySchedule> make_schedule(const std::vector<std::pair<int64_t, std::vector<int64_t>>>& phases) {
  std::vector<MixPhase> found;
  for (const auto& [first, weights] : phases) found.push_back({first, weights});
  return std::make_unique<PySchedule>(MixSchedule(std::move(found)));
}

py::tuple places(PySchedule& self, int64_t first_sample, int64_t n_samples) {
  check(first_sample >= 0 && n_samples >= 0, "mix", "samples: expected non-negative numbers, got ", n_samples,
        " from ", first_sample);
  py::array_t<int32_t> sources(n_samples);
  py::array_t<int64_t> indices(n_samples);
  int32_t* source = sources.mutable_data();
  int64_t* index = indices.mutable_data();
  {
    const Busy busy(self.busy, "mix");
    const py::gil_scoped_release release;
    for (int64_t s = 0; s < n_samples; ++s) {
      const MixPlace place = self.schedule.place(first_sample + s);
      source[s] = place.source;
      index[s] = place.index;
    }
  }
  return py::make_tuple(std::move(sources), std::move(indices));
}

std::unique_ptr<PyMixed> mixed_rows(const py::list& sources, const PySchedule& schedule, int64_t rows) {
  std::vector<BatchSource*> found;
  for (const auto& source : sources) found.push_back(py::cast<PySource&>(source).source.get());
  auto made = std::make_unique<MixedRows>(std::move(found), schedule.schedule, rows);
  return std::make_unique<PyMixed>(std::move(made), sources);
}

}  // namespace

void bind_mix(py::module_& m) {
  bind::Class<PySchedule>(m, "MixSchedule", "The sources of a mixture by sample index; see data/mix_schedule.h.")
      .def(py::init(&make_schedule), py::arg("phases"))
      .def("places", &places, py::arg("first_sample"), py::arg("n_samples"),
           "Return the source of each sample, int32 (samples,), and its index in the source, int64 (samples,).")
      .def(
          "counts",
          [](PySchedule& self, int64_t samples) {
            std::vector<int64_t> found;
            {
              const Busy busy(self.busy, "mix");
              const py::gil_scoped_release release;
              found = self.schedule.counts(samples);
            }
            return found;
          },
          py::arg("samples"), "Return the samples of each source among the first `samples`.")
      .def_property_readonly("n_sources", [](const PySchedule& self) { return self.schedule.n_sources(); });
  bind::Class<PyMixed, PySource>(m, "MixedRows", "Sequences of several sources; see data/mixed_rows.h.")
      .def(py::init(&mixed_rows), py::arg("sources"), py::arg("schedule"), py::kw_only(), py::arg("rows"));
}
