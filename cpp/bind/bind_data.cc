// Token files and batches.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bind/batcher.h"
#include "bind/class.h"
#include "mudd/base/check.h"
#include "mudd/base/rng.h"
#include "mudd/data/batcher.h"
#include "mudd/data/permutation.h"

namespace py = pybind11;

namespace {

using mudd::Batcher;
using mudd::Busy;
using mudd::check;
using mudd::bind::PySource;

// The sequences of a token file.
struct PyBatcher final : PySource {
  using PySource::PySource;
  Batcher& batcher() const { return static_cast<Batcher&>(*source); }
};

std::unique_ptr<PyBatcher> make_batcher(std::string path, int64_t offset, int64_t count, int width,
                                        int64_t vocab_size, std::vector<uint32_t> block_crcs, bool shuffled,
                                        int64_t seq_len, uint64_t seed, int32_t pad_id) {
  return std::make_unique<PyBatcher>(std::make_unique<Batcher>(
      mudd::TokenFileSpec{std::move(path), offset, count, width, vocab_size, std::move(block_crcs)},
      shuffled ? mudd::BatchOrder::shuffled : mudd::BatchOrder::sequential, seq_len, seed, pad_id));
}

int32_t* rows_of(py::array& array, const char* name, int64_t seq_len) {
  if (!array.dtype().equal(py::dtype::of<int32_t>()))
    throw mudd::TypeMistake(std::string("[batcher] ") + name + ": expected int32, got " +
                            std::string(py::str(array.dtype())));
  check(array.ndim() == 2 && array.shape(1) == seq_len, "batcher", name, ": expected shape (samples, ", seq_len,
        ")");
  check((array.flags() & py::array::c_style) != 0 && array.writeable(), "batcher", name,
        ": expected a writable C-contiguous array");
  return static_cast<int32_t*>(array.mutable_data());
}

int64_t fill(PySource& self, int64_t first_sample, py::array inputs, py::array targets, const py::dict& parts) {
  const int64_t length = self.source->seq_len(), n_samples = inputs.shape(0);
  mudd::BatchRows rows{rows_of(inputs, "inputs", length), rows_of(targets, "targets", length)};
  check(targets.shape(0) == n_samples, "batcher", "targets: expected ", n_samples, " rows, got ",
        targets.shape(0));
  const std::map<std::string, int32_t**> places = {
      {"positions", &rows.positions}, {"segments", &rows.segments}, {"key_mask", &rows.key_mask}};
  for (const auto& [key, given] : parts) {
    const auto name = py::cast<std::string>(key);
    const auto place = places.find(name);
    check(place != places.end(), "batcher", "part: expected positions, segments or key_mask, got ", name);
    auto array = py::cast<py::array>(given);
    *place->second = rows_of(array, name.c_str(), length);
    check(array.shape(0) == n_samples, "batcher", name, ": expected ", n_samples, " rows, got ", array.shape(0));
  }
  const Busy busy(self.busy, "batcher");
  const py::gil_scoped_release release;
  return self.source->fill(first_sample, n_samples, rows);
}

std::vector<std::string> part_names(const PySource& self) {
  const mudd::BatchParts parts = self.source->parts();
  std::vector<std::string> names;
  if (parts.positions) names.emplace_back("positions");
  if (parts.segments) names.emplace_back("segments");
  if (parts.key_mask) names.emplace_back("key_mask");
  return names;
}

py::array_t<float> random_array(int64_t begin, int64_t end, uint64_t seed, const std::string& purpose, bool normal,
                                double a, double b) {
  check(begin >= 0 && end >= begin, "random", "range: expected 0 <= begin <= end, got [", begin, ", ", end, ")");
  py::array_t<float> out(end - begin);
  float* data = out.mutable_data();
  const mudd::PhiloxKey key = mudd::philox_key(seed, purpose);
  const py::gil_scoped_release release;
  if (normal) {
    mudd::fill_normal(data, begin, end, a, key);
  } else {
    mudd::fill_uniform(data, begin, end, a, b, key);
  }
  return out;
}

}  // namespace

void bind_data(py::module_& m) {
  mudd::bind::Class<PySource>(m, "BatchSource", "Sequences by global sample index; see data/batch_source.h.")
      .def("fill", &fill, py::arg("first_sample"), py::arg("inputs"), py::arg("targets"),
           py::arg("parts") = py::dict(),
           "Fill int32 (samples, seq_len) arrays with samples first_sample, ...; return the count of targets that "
           "are not ignored.")
      .def(
          "repeat", [](PySource& self, int64_t samples) { self.source->repeat(samples); }, py::arg("samples"),
          "Repeat the first samples; 0 ends that.")
      .def_property_readonly(
          "rows", [](const PySource& self) { return self.source->rows(); },
          "Sequences of an epoch; for validation of all data.")
      .def_property_readonly("parts", &part_names, "Names of the inputs in addition to inputs and targets.")
      .def_property_readonly("seq_len", [](const PySource& self) { return self.source->seq_len(); });
  mudd::bind::Class<PyBatcher, PySource>(m, "Batcher", "Batches of token windows; see data/batcher.h.")
      .def(py::init(&make_batcher), py::kw_only(), py::arg("path"), py::arg("offset"), py::arg("count"),
           py::arg("width"), py::arg("vocab_size"), py::arg("block_crcs"), py::arg("shuffled"), py::arg("seq_len"),
           py::arg("seed"), py::arg("pad_id"))
      .def(
          "start_of", [](const PyBatcher& self, int64_t sample) { return self.batcher().start_of(sample); },
          py::arg("sample"), "Position of the first token of a sample.")
      .def(
          "verify",
          [](PyBatcher& self) {
            const Busy busy(self.busy, "batcher");
            const py::gil_scoped_release release;
            self.batcher().file().verify_all();
          },
          "Compares every block with its checksum; FormatError names a damaged one.")
      .def_property_readonly("tokens", [](const PyBatcher& self) { return self.batcher().tokens(); });
  m.def(
      "verify_tokens",
      [](std::string path, int64_t offset, int64_t count, int width, int64_t vocab_size,
         std::vector<uint32_t> block_crcs) {
        const py::gil_scoped_release release;
        mudd::TokenFile({std::move(path), offset, count, width, vocab_size, std::move(block_crcs)}).verify_all();
      },
      py::kw_only(), py::arg("path"), py::arg("offset"), py::arg("count"), py::arg("width"), py::arg("vocab_size"),
      py::arg("block_crcs"), "Compares the ids of a token file with their checksums; FormatError names a block.");
  m.def(
      "permute",
      [](uint64_t index, uint64_t n, uint64_t seed, const std::string& purpose, uint32_t epoch) {
        check(n >= 1 && n <= (uint64_t{1} << 62) && index < n, "permute", "index: expected one below n, got ",
              index, " of ", n);
        return mudd::Permutation(n, mudd::philox_key(seed, purpose), epoch)(index);
      },
      py::arg("index"), py::arg("n"), py::arg("seed"), py::arg("purpose"), py::arg("epoch") = 0,
      "Image of an index under the keyed permutation of [0, n).");
  m.def(
      "philox",
      [](std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
        return mudd::philox({c[0], c[1], c[2], c[3]}, {k[0], k[1]});
      },
      py::arg("counter"), py::arg("key"), "Return four 32-bit values of Philox4x32-10.");
  m.def(
      "philox_key",
      [](uint64_t seed, const std::string& purpose) {
        const mudd::PhiloxKey key = mudd::philox_key(seed, purpose);
        return std::array<uint32_t, 2>{key.k0, key.k1};
      },
      py::arg("seed"), py::arg("purpose"), "The key of the random numbers of a purpose.");
  m.def(
      "random_normal",
      [](int64_t begin, int64_t end, uint64_t seed, const std::string& purpose, double stddev) {
        return random_array(begin, end, seed, purpose, true, stddev, 0);
      },
      py::arg("begin"), py::arg("end"), py::kw_only(), py::arg("seed"), py::arg("purpose"),
      py::arg("stddev") = 1.0, "Elements [begin, end) of the normal tensor of (seed, purpose), float32.");
  m.def(
      "random_uniform",
      [](int64_t begin, int64_t end, uint64_t seed, const std::string& purpose, double low, double high) {
        return random_array(begin, end, seed, purpose, false, low, high);
      },
      py::arg("begin"), py::arg("end"), py::kw_only(), py::arg("seed"), py::arg("purpose"), py::arg("low") = 0.0,
      py::arg("high") = 1.0, "Elements [begin, end) of the uniform tensor of (seed, purpose), float32.");
}
