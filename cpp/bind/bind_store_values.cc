// The arrays of a ParamStore: views, copies and new values of weights and moments.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bind/numpy.h"
#include "bind/store.h"
#include "bind/store_parts.h"
#include "mudd/kernels/convert/convert.h"
#include "mudd/params/init.h"

namespace py = pybind11;
using namespace mudd;

namespace {

// Return the address of parameter i in a plane, and its type: in plane 0 the type of the stored weights.
Cells place_of(const ParamStore& s, int plane, int i) {
  if (plane == 0) return s.planes().weights(i).cells();
  return {s.planes().data(plane, i), s.planes().dtype(plane)};
}

// Return the shape of a parameter in a plane.
std::vector<int64_t> whole_shape(const ParamStore& s, int plane, int i) {
  return shape_in(s.planes().axis(plane), s.parameters().at(i));
}

// Return the shape of the local part of a parameter in a plane: rows of a matrix, elements of a vector.
std::vector<int64_t> held_shape(const ParamStore& s, int plane, int i) {
  std::vector<int64_t> shape = whole_shape(s, plane, i);
  const Part part = s.planes().held(plane, i);
  if (part.size() == std::reduce(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())) return shape;
  if (shape.size() < 2) return {part.size()};
  return {part.size() / shape.back(), shape.back()};
}

py::object plane_view(py::object store, int plane, const std::string& name, bool writable) {
  auto& s = store.cast<ParamStore&>();
  check(s.allocated() && !s.booked_only(), "parameters", "not allocated yet, or only booked for planning");
  check(plane >= 0 && plane < s.planes().count(), "parameters", "plane: expected 0 to ", s.planes().count() - 1,
        ", got ", plane);
  const int i = bind::index_of(s, name);
  const Cells at = place_of(s, plane, i);
  check(static_cast<bool>(at), "parameters", name, ": expected a buffer (plane) with this parameter, got plane ",
        plane);
  if (writable) bind::before_change(s);
  return bind::view(at.data, held_shape(s, plane, i), at.type, std::move(store), writable);
}

// Return "[2, 8]": the text of a spec without its dtype.
std::string text_of(const std::vector<int64_t>& shape) {
  const std::string text = TensorSpec{shape, DType::f32}.text();
  return text.substr(text.find('['));
}

// Return the part of `given` for a plane's part of parameter i: all of it, or some rows or elements of a whole
// parameter. Error for another shape.
Tensor held_rows(const ParamStore& s, int plane, int i, Tensor given, const std::vector<int64_t>& shape) {
  const std::vector<int64_t> expected = held_shape(s, plane, i), whole = whole_shape(s, plane, i);
  if (shape == expected) return given;
  check(shape == whole, "set_parameter", s.parameters().at(i).name, ": expected shape ", text_of(expected),
        ", got ", text_of(shape));
  const Part part = s.planes().held(plane, i);
  const int64_t row = whole.size() < 2 ? part.size() : whole.back();
  given.data = static_cast<std::byte*>(given.data) +
               (whole.size() < 2 ? part.begin : part.begin / row * given.stride) * size_of(given.dtype);
  given.rows = row > 0 ? part.size() / row : 0;
  given.cols = row;
  return given;
}

void set_plane(ParamStore& s, int plane, const std::string& name, const py::object& array) {
  const Busy busy = bind::in_use(s);
  const int i = bind::index_of(s, name);
  py::object hold;
  check(plane >= 0 && plane < s.planes().count(), "set_parameter", "plane: expected 0 to ", s.planes().count() - 1,
        ", got ", plane);
  check(!s.booked_only(), "set_parameter", name, ": this model is only booked, for planning");
  const Cells at = place_of(s, plane, i);
  check(static_cast<bool>(at), "set_parameter", name,
        ": expected a buffer (plane) with this parameter, got plane ", plane);
  const Tensor t = held_rows(s, plane, i, bind::tensor(array, at.type, "set_parameter", name.c_str(), &hold),
                             bind::shape_of(array, "set_parameter", name.c_str()));
  bind::before_change(s);
  std::byte* to = static_cast<std::byte*>(at.data);
  const int64_t item = size_of(at.type);
  // memmove: a checkpoint may have been read into this memory.
  for (int64_t r = 0; r < t.rows; ++r)
    std::memmove(to + r * t.cols * item, static_cast<const std::byte*>(t.data) + r * t.stride * item,
                 t.cols * item);
  if (plane == 0 && s.share().size == 1) s.packs().repack(i);  // ranks repack together, after all have written
}

// Write fp32 values into a weight of any type; return the count of rounded values.
int64_t set_values(ParamStore& s, const std::string& name, const py::object& array) {
  const int i = bind::index_of(s, name);
  if (s.parameters().at(i).stored == DType::f32) {
    set_plane(s, 0, name, array);
    return 0;
  }
  const Busy busy = bind::in_use(s);
  py::object hold;
  check(!s.booked_only(), "set_parameter", name, ": this model is only booked, for planning");
  const Tensor t = held_rows(s, 0, i, bind::tensor(array, DType::f32, "set_parameter", name.c_str(), &hold),
                             bind::shape_of(array, "set_parameter", name.c_str()));
  bind::before_change(s);
  std::vector<float> back(static_cast<size_t>(t.cols));
  int64_t rounded = 0;
  for (int64_t r = 0; r < t.rows; ++r) {
    const Cells to = s.planes().weights(i).cells() + r * t.cols;
    const float* row = t.f32() + r * t.stride;
    copy_rounded(t.cols, row, to);
    copy_wide(t.cols, to, back.data());
    for (int64_t c = 0; c < t.cols; ++c)
      rounded += !(back[static_cast<size_t>(c)] == row[c]) && !std::isnan(row[c]);
  }
  if (s.share().size == 1) s.packs().repack(i);
  return rounded;
}

// Return the local fp32 values of a weight, in separate memory.
py::object values(const ParamStore& s, const std::string& name) {
  const Tensor w = s.planes().weights(bind::index_of(s, name));
  check(s.allocated() && !s.booked_only(), "parameters", "not allocated yet, or only booked for planning");
  py::object all = bind::empty(held_shape(s, 0, bind::index_of(s, name)), DType::f32);
  copy_wide(w.rows * w.cols, w.cells(), bind::writable(all, DType::f32, "parameters", "values").f32());
  return all;
}

py::dict describe(const ParamStore& s, const std::string& name) {
  const Parameter& p = s.parameters().at(bind::index_of(s, name));
  py::dict d;
  d["shape"] = py::tuple(py::cast(p.shape));
  d["role"] = name_of(p.role);
  d["fan_in"] = p.fan_in;
  d["fan_out"] = p.fan_out;
  d["init"] = p.init;
  d["init_scale"] = p.init_scale;
  d["lr_scale"] = p.lr_scale;
  d["eps_scale"] = p.eps_scale;
  d["decay_scale"] = p.decay_scale;
  d["decay_independent"] = p.decay_independent;
  d["trainable"] = p.trainable;
  d["stored"] = name_of(p.stored);
  d["may_be_narrow"] = may_be_narrow(p);
  return d;
}

}  // namespace

void bind_values(bind::Class<ParamStore>& store) {
  store
      .def(
          "lend",
          [](ParamStore& s, const std::string& name, const py::object& array) {
            const Busy busy = bind::in_use(s);
            const int i = bind::index_of(s, name);
            const Parameter& p = s.parameters().at(i);
            check(bind::shape_of(array, "lend", name.c_str()) == p.shape, "lend", name, ": expected shape ",
                  text_of(p.shape), ", got ", text_of(bind::shape_of(array, "lend", name.c_str())));
            s.planes().lend(i,
                            static_cast<std::byte*>(bind::writable(array, p.stored, "lend", name.c_str()).data));
          },
          py::arg("name"), py::arg("array"),
          "Before allocate: use the array, which must outlive the store, for this parameter, stored in 16 bits.")
      .def(
          "initialize",
          [](ParamStore& s, uint64_t seed) {
            check(s.allocated(), "initialize", "parameters: not allocated yet");
            check(!s.booked_only(), "initialize", "this model is only booked, for planning");
            const Busy busy = bind::in_use(s);
            py::gil_scoped_release release;
            s.before_change();
            initialize(s, seed);
          },
          py::arg("seed"), "Fill every parameter from its declared init (Philox, by global element index).")
      .def("describe", &describe, py::arg("name"))
      .def("view", &plane_view, py::arg("plane"), py::arg("name"), py::arg("writable") = false)
      .def("set", &set_plane, py::arg("plane"), py::arg("name"), py::arg("array"))
      .def("set_values", &set_values, py::arg("name"), py::arg("array"),
           "Write fp32 values into a weight stored in any type; return the count of rounded values.")
      .def("values", &values, py::arg("name"), "Return the weights in fp32, a copy.")
      .def(
          "holds",
          [](const ParamStore& s, int plane, const std::string& name) {
            return plane >= 0 && plane < s.planes().count() &&
                   s.planes().held(plane, bind::index_of(s, name)).size() > 0;
          },
          py::arg("plane"), py::arg("name"), "Return True if the plane has memory for some of this parameter.")
      .def(
          "held",
          [](const ParamStore& s, int plane, const std::string& name) {
            const Part part = s.planes().held(plane, bind::index_of(s, name));
            return py::make_tuple(part.begin, part.end);
          },
          py::arg("plane"), py::arg("name"), "Return (begin, end): the elements that a plane has of a parameter.")
      .def(
          "shape",
          [](const ParamStore& s, int plane, const std::string& name) {
            return py::tuple(py::cast(whole_shape(s, plane, bind::index_of(s, name))));
          },
          py::arg("plane"), py::arg("name"), "Return the shape of a whole parameter in a plane.")
      .def(
          "shared",
          [](const ParamStore& s, const std::string& name) {
            return s.share().size > 1 && s.parameters().of_node(bind::index_of(s, name));
          },
          py::arg("name"), "Return True if the ranks of a host have one copy of a weight.");
}
