// Requests to stop or to save. Signal handlers only set flags; the training step reads them between
// micro-batches, so that a long step does not delay the answer (contracts 21).
// SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless nohup ignores it) request a stop; SIGUSR2 requests a save. SIGINT
// or SIGTERM during a requested stop exits at once with code 130 or 143; committed files on disk stay intact.
// Only the command line installs handlers; a library must not take signals from its user.
#pragma once

#include <span>

namespace mudd {

// Return the signals that request a stop.
std::span<const int> stop_signals();
// Return the stop signals that exit at once if a stop is already requested.
std::span<const int> quit_signals();
// Return the signal that requests a save.
int save_signal();

// Install handlers for all of these signals; StateError if they are installed already. says: print a line at
// the first request.
void install_stop_handlers(bool says = true);
// Restore the previous handlers; does nothing without install_stop_handlers.
void remove_stop_handlers();

bool stop_requested();
// Return the signal that requested the stop; 0 if request_stop did, or if there is no request.
int stop_signal();
// Request a stop without a signal (a STOP file, a test, a notebook).
void request_stop();
// Return true once after one or several SIGUSR2.
bool take_save_request();
// Clear all requests.
void clear_requests();

}  // namespace mudd
