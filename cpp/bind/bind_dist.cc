// Comm: the ranks of a run as Python sees them.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "mudd/dist/comm_threads.h"
#include "mudd/dist/node_memory.h"
#include "mudd/train/node_gradients.h"

namespace py = pybind11;
using namespace mudd;

namespace {

py::list all_gather(dist::Comm& comm, const py::bytes& bytes) {
  const std::string mine = bytes;
  std::string all(mine.size() * static_cast<size_t>(comm.world()), '\0');
  {
    py::gil_scoped_release release;
    comm.all_gather(mine.data(), std::ssize(mine), all.data());
  }
  py::list gathered;
  for (int r = 0; r < comm.world(); ++r)
    gathered.append(py::bytes(all.data() + static_cast<size_t>(r) * mine.size(), mine.size()));
  return gathered;
}

py::bytes broadcast(dist::Comm& comm, const py::bytes& bytes, int root) {
  std::string data = bytes;
  {
    py::gil_scoped_release release;
    comm.broadcast(data.data(), std::ssize(data), root);
  }
  return data;
}

}  // namespace

void bind_dist(py::module_& m) {
  py::register_exception<dist::PeerError>(m, "PeerError", PyExc_RuntimeError);
  py::class_<dist::Comm>(m, "Comm", "What the ranks of a run say to each other.")
      .def_property_readonly("rank", &dist::Comm::rank)
      .def_property_readonly("world", &dist::Comm::world)
      .def_property_readonly("node", &dist::Comm::node)
      .def_property_readonly("nodes", &dist::Comm::nodes)
      .def_property_readonly("node_rank", &dist::Comm::node_rank)
      .def_property_readonly("node_size", &dist::Comm::node_size)
      .def("barrier", &dist::Comm::barrier, py::call_guard<py::gil_scoped_release>())
      .def("all_gather", &all_gather, py::arg("mine"), "Bytes of every rank, equally many each, in rank order.")
      .def("broadcast", &broadcast, py::arg("data"), py::arg("root"),
           "Bytes of rank `root`; the others give as many.")
      .def("fail", &dist::Comm::fail, py::arg("code"), py::arg("message"),
           "Ends the job: ranks that wait get PeerError.");
  py::class_<dist::NodeMemory, std::shared_ptr<dist::NodeMemory>>(m, "NodeMemory",
                                                                  "Memory that the ranks of a node see as one.")
      .def(py::init<dist::Comm&>(), py::arg("comm"), py::keep_alive<1, 2>());
  py::class_<NodeGradients>(m, "NodeGradients", "Memory of an executor's gradients that its node can read.")
      .def(py::init<dist::Comm&>(), py::arg("comm"), py::keep_alive<1, 2>());
  m.def("thread_ranks", &dist::thread_ranks, py::arg("world"), py::arg("node_size"));
}
