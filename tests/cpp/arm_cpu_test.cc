// Names of ARM CPUs, from /proc/cpuinfo of real machines and from damaged files.
#include "mudd/base/arm_cpu.h"

#include "compare.h"

namespace {

std::string core(const std::string& maker, const std::string& part) {
  return "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd evtstrm aes crc32 atomics\nCPU "
         "implementer\t: " +
         maker + "\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: " + part + "\nCPU revision\t: 1\n\n";
}

}  // namespace

TEST_CASE("an ARM CPU has the name that lscpu prints") {
  using mudd::arm_cpu_name;
  CHECK(arm_cpu_name(core("0x41", "0xd0c"), "") == "ARM Neoverse-N1");
  CHECK(arm_cpu_name(core("0x41", "0xd40") + core("0x41", "0xd40"), "") == "ARM Neoverse-V1");
  CHECK(arm_cpu_name(core("0x41", "0xd4f"), "") == "ARM Neoverse-V2");
  CHECK(arm_cpu_name(core("0x41", "0xd08"), "Raspberry Pi 4 Model B") == "ARM Cortex-A72");
  CHECK(arm_cpu_name(core("0x6d", "0xd49"), "") == "Microsoft Azure-Cobalt-100");
  CHECK(arm_cpu_name(core("0xc0", "0xac3"), "") == "Ampere-1");
}

TEST_CASE("cores of two kinds are both named") {
  const std::string little = core("0x41", "0xd05"), big = core("0x41", "0xd0b");
  CHECK(mudd::arm_cpu_name(little + little + big + big, "") == "ARM Cortex-A55 + ARM Cortex-A76");
  CHECK(mudd::arm_cpu_name(core("0x61", "0x022") + core("0x61", "0x023"), "") ==
        "Apple Icestorm-M1 + Apple Firestorm-M1");
}

TEST_CASE("a CPU without a known name has the name of its board, or its numbers") {
  const std::string board = "Apple Mac mini (M4, 2024)";
  CHECK(mudd::arm_cpu_name(core("0x61", "0x052") + core("0x61", "0x053"), board + '\0') == board);
  CHECK(mudd::arm_cpu_name(core("0x61", "0x000"), "") == "64-bit ARM CPU (implementer 0x61, part 0x000)");
  CHECK(mudd::arm_cpu_name("", board) == board);
  CHECK(mudd::arm_cpu_name("", "") == "64-bit ARM CPU");
  CHECK(mudd::arm_cpu_name("model name\t: AMD EPYC\nCPU part\t: 0xd0c\n", "") == "64-bit ARM CPU");  // qemu-user
  CHECK(mudd::arm_cpu_name("CPU implementer\nCPU part\n:::\n", "") == "64-bit ARM CPU");
}

TEST_CASE("a CPU without NEON is refused") {
  CHECK(mudd::arm_cpu_fault(0x3).empty());
  CHECK(mudd::arm_cpu_fault(0x887).empty());
  CHECK(mudd::arm_cpu_fault(0x1).find("[isa] CPU: expected NEON") == 0);
}
