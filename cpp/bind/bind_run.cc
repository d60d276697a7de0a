// Functions of the training loop other than steps: learning rates and stop requests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <vector>

#include "mudd/base/stop.h"
#include "mudd/train/schedule.h"

namespace py = pybind11;

namespace {

using PhaseOf = std::tuple<std::string, int64_t, double, double>;

}  // namespace

void bind_run(py::module_& m) {
  m.def(
      "learning_rate",
      [](const std::string& schedule, int64_t t, double peak, int64_t steps, int64_t warmup_steps,
         double final_ratio, int64_t decay_steps, const std::string& warmup, const std::vector<PhaseOf>& phases) {
        mudd::Schedule s{mudd::parse_schedule(schedule), peak, final_ratio, steps, warmup_steps, decay_steps,
                         mudd::parse_warmup(warmup)};
        for (const auto& [kind, length, from, to] : phases)
          s.phases.push_back({mudd::parse_phase(kind), length, from, to});
        return mudd::learning_rate(s, t);
      },
      py::arg("schedule"), py::arg("t"), py::kw_only(), py::arg("peak"), py::arg("steps"),
      py::arg("warmup_steps") = 0, py::arg("final_ratio") = 0.0, py::arg("decay_steps") = 0,
      py::arg("warmup") = "next", py::arg("phases") = std::vector<PhaseOf>{},
      "Learning rate of update t (from 0): schedule of schedules(), warmup of warmups(). phases: (kind, steps, "
      "from, "
      "to) each, with a kind of phases_of_schedules(), and factors of the peak.");
  const auto names = [](std::span<const char* const> all) {
    return std::vector<std::string>(all.begin(), all.end());
  };
  m.def("schedules", [names] { return names(mudd::schedule_names()); }, "The learning rates after warm-up.");
  m.def("warmups", [names] { return names(mudd::warmup_names()); }, "The forms of the warm-up.");
  m.def(
      "phases_of_schedules", [names] { return names(mudd::phase_names()); }, "The kinds of a schedule's phases.");
  m.def("install_stop_handlers", &mudd::install_stop_handlers, py::arg("says") = true,
        "Handles the signals of stop_signals() and save_signal(); a second one of quit_signals() exits at once. "
        "says: print a line at the first request.");
  const auto list = [](std::span<const int> signals) { return std::vector<int>(signals.begin(), signals.end()); };
  m.def("stop_signals", [list] { return list(mudd::stop_signals()); }, "Return the signals that request a stop.");
  m.def(
      "quit_signals", [list] { return list(mudd::quit_signals()); },
      "Return the stop signals that exit at once if a stop is already requested.");
  m.def("save_signal", &mudd::save_signal, "Return the signal that requests a save.");
  m.def("remove_stop_handlers", &mudd::remove_stop_handlers, "Restore the previous handlers.");
  m.def("stop_requested", &mudd::stop_requested, "Return True if a stop is requested.");
  m.def("stop_signal", &mudd::stop_signal, "Return the signal that requested the stop, or 0.");
  m.def("request_stop", &mudd::request_stop, "Request a stop without a signal.");
  m.def("take_save_request", &mudd::take_save_request, "Return True once after a SIGUSR2.");
  m.def("clear_requests", &mudd::clear_requests, "Clear all requests.");
}
