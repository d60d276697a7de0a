#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdlib>

#include "compare.h"
#include "mudd/base/isa.h"

// A level above the CPU's own would repeat the test of the CPU's.
static bool repeats_another() {
  const char* level = std::getenv("MUDD_MAX_ISA");
  return level != nullptr && *level != '\0' && mudd::parse_isa(level) > mudd::detected_isa();
}

int main(int argc, char** argv) {
  const char* emulation = mudd::emulated_level();
  std::printf("isa: active %s, cpu %s%s%s\n", mudd::name_of(mudd::active_isa()),
              mudd::name_of(mudd::detected_isa()), emulation ? ", emulates " : "", emulation ? emulation : "");
  if (repeats_another()) return MUDD_TEST_SKIPPED;
  const int code = doctest::Context(argc, argv).run();
  std::printf("outputs %016" PRIx64 "\n", mudd::test::results_hash);
  return code;
}
