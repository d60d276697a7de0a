// What is watched around the runs: they are in a child process, whose death is a failure with an input, by
// whatever sanitizer or signal. A run also fails if it takes more memory than the limit, or more than 10 s.
#pragma once

#include <functional>
#include <string>

#include "fuzz.h"

namespace fuzz {

// Calls `session` in a child process. If that dies inside a run, its input becomes
// `<folder>/<target>-<seed>-<run>`. Returns the exit code.
int run_guarded(const std::string& folder, std::uint64_t seed, const std::function<void()>& session);

// The run of `input` begins: its memory and time count from here.
void enter_run(const Bytes& input, std::uint64_t run);
void leave_run();  // throws Broken if it took more memory than the limit

// Says why and ends the child.
[[noreturn]] void end_with(const char* reason);

}  // namespace fuzz
