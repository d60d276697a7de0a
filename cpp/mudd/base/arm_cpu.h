// The name of a 64-bit ARM CPU, from the numbers that Linux reports instead of a name, and the check of its
// instructions. Compiled for every CPU, so that tests on x86-64 can call it.
#pragma once

#include <string>

namespace mudd {

// Return the names of the cores with lscpu's spelling, each once ("ARM Cortex-A55 + ARM Cortex-A76"). For numbers
// without a known name, return the board or the numbers. cpuinfo: the text of /proc/cpuinfo. board: the text of
// /proc/device-tree/model, or "".
std::string arm_cpu_name(const std::string& cpuinfo, const std::string& board);

// Return an error message if a CPU with these bits of AT_HWCAP cannot run this program; else "".
std::string arm_cpu_fault(unsigned long capabilities);

}  // namespace mudd
