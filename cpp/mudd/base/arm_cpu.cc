#include "mudd/base/arm_cpu.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace mudd {
namespace {

constexpr unsigned long kNeon = 1ul << 1;  // HWCAP_ASIMD

struct CpuMaker {
  unsigned long number;  // the field "implementer" of the register MIDR
  const char* name;
};
constexpr CpuMaker kMakers[] = {{0x41, "ARM"},       {0x42, "Broadcom"},  {0x43, "Cavium"},  {0x46, "Fujitsu"},
                                {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},    {0x50, "APM"},     {0x51, "Qualcomm"},
                                {0x61, "Apple"},     {0x6d, "Microsoft"}, {0x70, "Phytium"}, {0xc0, "Ampere"}};

struct CpuPart {
  unsigned long maker, number;  // number: the field "part" of MIDR
  const char* name;
};
// Cores that run 64-bit Linux, of servers, boards and laptops. A list of names would be longer with every year, so
// other cores keep their numbers.
constexpr CpuPart kParts[] = {{0x41, 0xd03, "Cortex-A53"},
                              {0x41, 0xd04, "Cortex-A35"},
                              {0x41, 0xd05, "Cortex-A55"},
                              {0x41, 0xd07, "Cortex-A57"},
                              {0x41, 0xd08, "Cortex-A72"},
                              {0x41, 0xd09, "Cortex-A73"},
                              {0x41, 0xd0a, "Cortex-A75"},
                              {0x41, 0xd0b, "Cortex-A76"},
                              {0x41, 0xd0c, "Neoverse-N1"},
                              {0x41, 0xd0d, "Cortex-A77"},
                              {0x41, 0xd0e, "Cortex-A76AE"},
                              {0x41, 0xd40, "Neoverse-V1"},
                              {0x41, 0xd41, "Cortex-A78"},
                              {0x41, 0xd42, "Cortex-A78AE"},
                              {0x41, 0xd44, "Cortex-X1"},
                              {0x41, 0xd46, "Cortex-A510"},
                              {0x41, 0xd47, "Cortex-A710"},
                              {0x41, 0xd48, "Cortex-X2"},
                              {0x41, 0xd49, "Neoverse-N2"},
                              {0x41, 0xd4a, "Neoverse-E1"},
                              {0x41, 0xd4b, "Cortex-A78C"},
                              {0x41, 0xd4c, "Cortex-X1C"},
                              {0x41, 0xd4d, "Cortex-A715"},
                              {0x41, 0xd4e, "Cortex-X3"},
                              {0x41, 0xd4f, "Neoverse-V2"},
                              {0x41, 0xd80, "Cortex-A520"},
                              {0x41, 0xd81, "Cortex-A720"},
                              {0x41, 0xd82, "Cortex-X4"},
                              {0x41, 0xd83, "Neoverse-V3AE"},
                              {0x41, 0xd84, "Neoverse-V3"},
                              {0x41, 0xd8e, "Neoverse-N3"},
                              {0x42, 0x516, "ThunderX2"},
                              {0x43, 0x0a1, "ThunderX-88XX"},
                              {0x43, 0x0af, "ThunderX2-99xx"},
                              {0x46, 0x001, "A64FX"},
                              {0x48, 0xd01, "Kunpeng-920"},
                              {0x4e, 0x004, "Carmel"},
                              {0x61, 0x022, "Icestorm-M1"},
                              {0x61, 0x023, "Firestorm-M1"},
                              {0x61, 0x024, "Icestorm-M1-Pro"},
                              {0x61, 0x025, "Firestorm-M1-Pro"},
                              {0x61, 0x028, "Icestorm-M1-Max"},
                              {0x61, 0x029, "Firestorm-M1-Max"},
                              {0x61, 0x032, "Blizzard-M2"},
                              {0x61, 0x033, "Avalanche-M2"},
                              {0x6d, 0xd49, "Azure-Cobalt-100"},
                              {0xc0, 0xac3, "Ampere-1"},
                              {0xc0, 0xac4, "Ampere-1a"}};

std::string text_of(unsigned long maker, unsigned long number, const std::string& board) {
  std::string who;
  for (const CpuMaker& one : kMakers)
    if (one.number == maker) who = std::string(one.name) + " ";
  for (const CpuPart& one : kParts)
    if (one.maker == maker && one.number == number) return (who == "Ampere " ? "" : who) + one.name;
  if (!board.empty()) return board;
  char text[96];
  std::snprintf(text, sizeof text, "64-bit ARM CPU (implementer 0x%02lx, part 0x%03lx)", maker, number);
  return text;
}

// Return the number of a line "key : number", or -1 for another line.
long number_of(const std::string& line, const std::string& key) {
  const size_t colon = line.find(':');
  if (colon == line.npos || line.compare(0, key.size(), key) != 0) return -1;
  return static_cast<long>(std::strtoul(line.c_str() + colon + 1, nullptr, 0));
}

// Remove the zero byte that ends a string of the device tree.
std::string without_end(std::string text) {
  text.erase(std::find(text.begin(), text.end(), '\0'), text.end());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

std::string arm_cpu_name(const std::string& cpuinfo, const std::string& board) {
  const std::string place = without_end(board);
  std::vector<std::string> names;
  std::istringstream lines(cpuinfo);
  long maker = -1;
  for (std::string line; std::getline(lines, line);) {
    if (const long found = number_of(line, "CPU implementer"); found >= 0) maker = found;
    const long part = number_of(line, "CPU part");
    if (part < 0 || maker < 0) continue;
    const std::string name = text_of(static_cast<unsigned long>(maker), static_cast<unsigned long>(part), place);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  if (names.empty()) return place.empty() ? "64-bit ARM CPU" : place;
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " + ") + name;
  return all;
}

std::string arm_cpu_fault(unsigned long capabilities) {
  if (capabilities & kNeon) return "";
  return "[isa] CPU: expected NEON, which the kernel reports as asimd in the Features of /proc/cpuinfo, got a CPU "
         "without it; use another machine";
}

}  // namespace mudd
