#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "mudd/base/isa.h"

int main(int argc, char** argv) {
  const char* emulation = mudd::emulated_level();
  std::printf("isa: active %s, cpu %s%s%s\n", mudd::name_of(mudd::active_isa()),
              mudd::name_of(mudd::detected_isa()), emulation ? ", emulates " : "", emulation ? emulation : "");
  return doctest::Context(argc, argv).run();
}
