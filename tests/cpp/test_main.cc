#define DOCTEST_CONFIG_IMPLEMENT
#include "compare.h"
#include "mudd/base/isa.h"

int main(int argc, char** argv) {
  const char* emulation = mudd::emulated_level();
  std::printf("isa: active %s, cpu %s%s%s\n", mudd::name_of(mudd::active_isa()),
              mudd::name_of(mudd::detected_isa()), emulation ? ", emulates " : "", emulation ? emulation : "");
  const int code = doctest::Context(argc, argv).run();
  std::printf("outputs %016" PRIx64 "\n", mudd::test::results_hash);
  return code;
}
