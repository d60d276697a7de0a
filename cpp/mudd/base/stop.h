// Requests to stop or to save. Signal handlers only set flags; the training step reads them between
// micro-batches, so that a long step does not delay the answer (contracts 21).
//
// SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless nohup ignores it) ask for a stop; SIGUSR2 asks for a save. SIGINT or
// SIGTERM while a stop is already requested exits at once with code 130 or 143: whatever is committed on disk
// stays intact. Handlers are installed by the command line only; a library must not take signals from its user.
#pragma once

#include <span>

namespace mudd {

// The signals that ask for a stop.
std::span<const int> stop_signals();
// Those of them that exit at once while a stop is requested.
std::span<const int> quit_signals();
// The signal that asks for a save.
int save_signal();

// Takes all of these signals; StateError if they are taken already. says: print a line at the first request.
void install_stop_handlers(bool says = true);
// Gives the signals back to whoever had them before; nothing happens if they were not taken.
void remove_stop_handlers();

bool stop_requested();
// The signal that requested the stop; 0 if request_stop did, or if there is no request.
int stop_signal();
// Asks for a stop without a signal (a STOP file, a test, a notebook).
void request_stop();
// True once after each SIGUSR2 or several of them together.
bool take_save_request();
// Forgets all requests.
void clear_requests();

}  // namespace mudd
