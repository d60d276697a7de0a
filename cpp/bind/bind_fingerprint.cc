// Observers of a step: digests and copies of its values, for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bind/class.h"
#include "mudd/graph/fingerprint.h"

namespace py = pybind11;
using namespace mudd;

namespace {

using Wanted = std::tuple<std::string, int, std::string, std::string>;
// (stage, run, place, op, value, shape, dtype, first element, first row, digest, samples, digests of rows)
using Row = std::tuple<std::string, int, std::string, std::string, std::string, std::vector<int64_t>, std::string,
                       int64_t, int64_t, std::string, std::vector<double>, std::vector<std::string>>;
// (stage, run, place, value, shape, dtype, values)
using KeptRow =
    std::tuple<std::string, int, std::string, std::string, std::vector<int64_t>, std::string, py::bytes>;

std::string hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::vector<Row> lines_of(const Fingerprint& fingerprint) {
  std::vector<Row> rows;
  for (const Fingerprint::DigestLine& line : fingerprint.lines()) {
    const Observed& v = line.value;
    std::vector<std::string> digests;
    for (const uint64_t digest : line.rows) digests.push_back(hex(digest));
    rows.emplace_back(name_of(v.stage), v.run, v.place, v.op, v.value, v.shape, name_of(v.tensor.dtype), v.begin,
                      v.first_row, hex(line.digest[0]) + hex(line.digest[1]), line.samples, digests);
  }
  return rows;
}

std::vector<KeptRow> kept_of(const Values& values) {
  std::vector<KeptRow> rows;
  for (const Values::Kept& kept : values.kept()) {
    const Observed& v = kept.value;
    rows.emplace_back(name_of(v.stage), v.run, v.place, v.value, v.shape, name_of(v.tensor.dtype),
                      py::bytes(reinterpret_cast<const char*>(kept.bytes.data()), kept.bytes.size()));
  }
  return rows;
}

std::shared_ptr<Values> make_values(const std::vector<Wanted>& wanted,
                                    const std::optional<std::shared_ptr<NodeObserver>>& inner) {
  std::vector<Values::Wanted> all;
  for (const auto& [stage, run, place, value] : wanted) all.push_back({parse_stage(stage), run, place, value});
  return std::make_shared<Values>(std::move(all), inner.value_or(nullptr));
}

}  // namespace

void bind_fingerprint(py::module_& m) {
  bind::Class<NodeObserver, std::shared_ptr<NodeObserver>>(m, "NodeObserver", "Sees each value of a step.");
  bind::Class<Fingerprint, NodeObserver, std::shared_ptr<Fingerprint>>(m, "Fingerprint",
                                                                       "Keeps a digest of each value of a step.")
      .def(py::init([] { return std::make_shared<Fingerprint>(); }))
      .def("lines", &lines_of,
           "(stage, run, place, op, value, shape, dtype, first element, first row, digest, samples, digests of "
           "rows) of each value, in the order of the step.");
  bind::Class<Values, NodeObserver, std::shared_ptr<Values>>(m, "Values", "Copies chosen values of a step.")
      .def(py::init(&make_values), py::arg("wanted"), py::arg("inner") = py::none(),
           "wanted: (stage, run, place, value) of each. inner: another observer, which sees all values.")
      .def("kept", &kept_of, "(stage, run, place, value, shape, dtype, bytes) of each, in the order of the step.");
}
