// Comm: the ranks of a run, for Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include "bind/class.h"
#include "mudd/dist/comm_threads.h"
#include "mudd/dist/comm_timer.h"
#include "mudd/dist/expert_group.h"
#include "mudd/dist/node_memory.h"
#include "mudd/dist/rank_comm.h"
#include "mudd/train/node_gradients.h"

namespace py = pybind11;
using namespace mudd;

namespace {

// (file, line) of a call, for debug mode.
using PySite = std::pair<std::string, int>;
dist::Site site_of(const PySite& site) { return {site.first.c_str(), site.second}; }

py::typing::List<py::bytes> all_gather(dist::Comm& comm, const py::bytes& bytes, const PySite& site) {
  const std::string mine = bytes;
  std::string all(mine.size() * static_cast<size_t>(comm.world()), '\0');
  {
    py::gil_scoped_release release;
    comm.all_gather(mine.data(), std::ssize(mine), all.data(), site_of(site));
  }
  py::typing::List<py::bytes> gathered;
  for (int r = 0; r < comm.world(); ++r)
    gathered.append(py::bytes(all.data() + static_cast<size_t>(r) * mine.size(), mine.size()));
  return gathered;
}

py::bytes broadcast(dist::Comm& comm, const py::bytes& bytes, int root, const PySite& site) {
  std::string data = bytes;
  {
    py::gil_scoped_release release;
    comm.broadcast(data.data(), std::ssize(data), root, site_of(site));
  }
  return data;
}

dist::CommOptions options(bool debug, double hang_timeout, int64_t chunk_bytes) {
  dist::CommOptions options;
  options.debug = debug;
  options.hang_timeout = hang_timeout;
  options.chunk_bytes = chunk_bytes;
  return options;
}

std::vector<std::unique_ptr<dist::Comm>> thread_ranks(int world, int node_size, bool debug, double hang_timeout,
                                                      int64_t chunk_bytes) {
  return dist::thread_ranks(world, node_size, options(debug, hang_timeout, chunk_bytes));
}

// Take the transport from the capsule, which is empty afterwards. Return the Comm and a warning, or "".
std::pair<std::unique_ptr<dist::Comm>, std::string> join_ranks(const py::object& capsule, bool debug,
                                                               double hang_timeout, int64_t chunk_bytes,
                                                               std::string facts, double join_timeout) {
  check(PyCapsule_IsValid(capsule.ptr(), dist::kTransportCapsule), "ranks",
        "transport: expected one of this version that nobody uses (", dist::kTransportCapsule,
        "); build all modules of mudd_core together: ./run setup");
  std::unique_ptr<dist::Transport> transport(
      static_cast<dist::Transport*>(PyCapsule_GetPointer(capsule.ptr(), dist::kTransportCapsule)));
  PyCapsule_SetName(capsule.ptr(), "mudd_core.dist.taken");
  dist::CommOptions asked = options(debug, hang_timeout, chunk_bytes);
  asked.facts = std::move(facts);
  asked.join_timeout = join_timeout;
  py::gil_scoped_release release;
  auto comm = std::make_unique<dist::RankComm>(std::move(transport), asked);
  std::string warning = comm->place().warning;
  return {std::move(comm), std::move(warning)};
}

std::map<std::string, std::pair<int64_t, int64_t>> counters(const dist::Comm& comm) {
  std::map<std::string, std::pair<int64_t, int64_t>> found;
  for (const auto& [purpose, traffic] : comm.counters()) found[purpose] = {traffic.messages, traffic.bytes};
  return found;
}

}  // namespace

void bind_dist(py::module_& m) {
  using Released = py::call_guard<py::gil_scoped_release>;
  const PySite nowhere{"", 0};
  const auto peer_error = py::register_exception<dist::PeerError>(m, "PeerError", PyExc_RuntimeError);
  py::register_exception<dist::PeerLeftError>(m, "PeerLeftError", peer_error);
  bind::Class<dist::Comm>(m, "Comm", "The communication between the ranks of a run.")
      .def_property_readonly("rank", &dist::Comm::rank)
      .def_property_readonly("world", &dist::Comm::world)
      .def_property_readonly("node", &dist::Comm::node)
      .def_property_readonly("nodes", &dist::Comm::nodes)
      .def_property_readonly("node_rank", &dist::Comm::node_rank)
      .def_property_readonly("node_size", &dist::Comm::node_size)
      .def(
          "barrier", [](dist::Comm& comm, const PySite& site) { comm.barrier(site_of(site)); }, Released(),
          py::arg("site") = nowhere)
      .def("all_gather", &all_gather, py::arg("mine"), py::arg("site") = nowhere,
           "Return the bytes of every rank, equal counts, in rank order.")
      .def("broadcast", &broadcast, py::arg("data"), py::arg("root"), py::arg("site") = nowhere,
           "Return the bytes of rank `root`; the others pass buffers of the same size.")
      .def(
          "set_phase",
          [](dist::Comm& comm, const std::string& phase, int64_t step) {
            comm.set_phase(dist::parse_phase(phase), step);
          },
          py::arg("phase"), py::arg("step"), "Set the activity of this rank; a sign of life for the watchdog.")
      .def("watch", &dist::Comm::watch, Released(), py::arg("seconds"),
           "End the job if a rank of the host shows no sign of life for this many seconds; 0: never.")
      .def("fail", &dist::Comm::fail, Released(), py::arg("code"), py::arg("message"),
           "End the job: waiting ranks get PeerError. Does not return if ranks are processes.")
      .def_property_readonly("shared_bytes_free", &dist::Comm::shared_bytes_free,
                             "Bytes of shared memory that this host may still allocate.")
      .def("split_nodes", &dist::Comm::split_nodes, Released(), "Treat every rank as a separate host.")
      .def("close", &dist::Comm::close, Released(), py::arg("patience"),
           "Leave the job; false if the others did not arrive within `patience` seconds (0: no limit).")
      .def("counters", &counters, "Return (messages, bytes) that this rank has sent between hosts, by purpose.");
  bind::Class<dist::NodeMemory, std::shared_ptr<dist::NodeMemory>>(m, "NodeMemory",
                                                                   "Memory that the ranks of a host share.")
      .def(bind::init<dist::NodeMemory, dist::Comm&>(), py::arg("comm"), bind::Keeps<2>());
  bind::Class<dist::ExpertGroup, std::shared_ptr<dist::ExpertGroup>>(
      m, "ExpertGroup", "The ranks that share the experts of every mixture.")
      .def(bind::init<dist::ExpertGroup, dist::Comm&, int, double>(), py::arg("comm"), py::arg("ranks"),
           py::arg("room") = 0.0, bind::Keeps<2>(),
           "room: token rows that a training graph has memory for in a layer, as a multiple of an even load; 0: "
           "address space for all that ranks can send, of which a plan expects twice an even load.")
      .def(bind::init<dist::ExpertGroup, int, int, int, double>(), py::arg("ranks"), py::arg("rank"),
           py::arg("world"), py::arg("room") = 0.0, "For a plan: exchanges are not possible.")
      .def("set_spare", &dist::ExpertGroup::set_spare, py::arg("spare"),
           "Set how much more than planned a run may use of the address space: 0 nothing, 1 (the default) all.")
      .def_property_readonly("ranks", &dist::ExpertGroup::ranks);
  bind::Class<NodeGradients>(m, "NodeGradients", "An executor's gradient memory that its host can read.")
      .def(bind::init<NodeGradients, dist::Comm&>(), py::arg("comm"), bind::Keeps<2>());
  bind::Class<dist::CommTimer>(m, "CommTimer", "Times the messages of a training run on these ranks.")
      .def(py::init([](dist::Comm& comm, int64_t largest) {
             py::gil_scoped_release release;
             return std::make_unique<dist::CommTimer>(comm, largest);
           }),
           bind::Keeps<2>(), py::arg("comm"), py::arg("largest"))
      .def("seconds", &dist::CommTimer::seconds, Released(), py::arg("what"), py::arg("bytes"), py::arg("repeats"),
           "Return the median of this rank; all ranks make the same call.");
  m.def(
      "phases",
      [] { return std::vector<std::string>(std::begin(dist::kPhaseNames), std::end(dist::kPhaseNames)); },
      "Return the phases of a rank, in the order of a step.");
  m.def("thread_ranks", &thread_ranks, py::arg("world"), py::arg("node_size"), py::arg("debug") = false,
        py::arg("hang_timeout") = 0.0, py::arg("chunk_bytes") = int64_t{1} << 30);
  m.def("join_ranks", &join_ranks, py::arg("transport"), py::arg("debug"), py::arg("hang_timeout"),
        py::arg("chunk_bytes"), py::arg("facts"), py::arg("join_timeout"),
        "The Comm over a transport, which all ranks make together, and a warning or ''. facts: lines 'name=value' "
        "that all ranks must give alike within join_timeout seconds: RuntimeError on rank 0 if not, PeerError on "
        "the others.");
}
