// The packed copies of a ParamStore, and the bytes of its memory.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bind/store.h"
#include "bind/store_parts.h"

namespace py = pybind11;
using namespace mudd;

void bind_packs(bind::Class<ParamStore>& store) {
  store
      .def(
          "pack_at_use",
          [](ParamStore& s) {
            const Busy busy = bind::in_use(s);
            s.pack_at_use();
          },
          "Let graphs recorded from now on pack 16-bit weights at use, and keep no copy.")
      .def(
          "share_packs", [](ParamStore& s, bool on) { s.packs().share(on); }, py::arg("on"),
          "Place packed copies requested from now on in shared memory of the host; its ranks must make the same "
          "requests.")
      .def("repack",
           [](ParamStore& s) {
             const Busy busy = bind::in_use(s);
             py::gil_scoped_release release;
             s.packs().repack_all();
           })
      .def_property_readonly(
          "pack_requests", [](const ParamStore& s) { return s.packs().requests(); },
          "Packed copies requested so far.")
      .def(
          "drop_packs",
          [](ParamStore& s, size_t requests) {
            const Busy busy = bind::in_use(s);
            s.packs().drop_after(requests);
          },
          py::arg("requests"),
          "Free this process's copies after the first `requests`; no executor created since then may run again.")
      .def_property_readonly("planes", [](const ParamStore& s) { return s.planes().count(); })
      .def_property_readonly("elements", [](const ParamStore& s) { return s.parameters().elements(); })
      .def_property_readonly("trained_elements",
                             [](const ParamStore& s) { return s.parameters().trained_elements(); })
      .def_property_readonly("plane_bytes", [](const ParamStore& s) { return s.planes().weight_bytes(); })
      .def_property_readonly(
          "mapped_bytes",
          [](const ParamStore& s) {
            int64_t bytes = 0;
            for (int i = 0; i < s.parameters().count(); ++i)
              if (s.planes().is_lent(i) && !s.packs().at(i, Pack::plain) && !s.packs().at(i, Pack::transposed))
                bytes += s.parameters().at(i).size() * size_of(s.parameters().at(i).stored);
            return bytes;
          },
          "Bytes of the lent weights that are read in place, not from packed copies.")
      .def_property_readonly("state_bytes", [](const ParamStore& s) { return s.planes().state_bytes(); })
      .def_property_readonly("packed_bytes", [](const ParamStore& s) { return s.packs().bytes(); })
      .def(
          "expert_bytes",
          [](const ParamStore& s, const std::vector<int>& moments) {
            int64_t weights = 0, packed = 0, state = 0;
            for (int i = 0; i < s.parameters().count(); ++i) {
              if (!s.deals(i)) continue;
              weights += s.parameters().held(i).size() * size_of(s.parameters().at(i).stored);
              for (Pack how : {Pack::plain, Pack::transposed})
                if (s.packs().at(i, how)) packed += s.packs().matrices(i) * s.packs().stride(i, how);
              for (int p : moments) state += s.planes().held(p, i).size() * size_of(s.planes().dtype(p));
            }
            return std::map<std::string, int64_t>{{"weights", weights}, {"packed", packed}, {"moments", state}};
          },
          py::arg("moments"),
          "Return the bytes of sharded experts: weights, packed copies and these planes of moments; part of the "
          "sums over all parameters.");
}
