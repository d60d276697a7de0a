#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "mudd/base/isa.h"

int main(int argc, char** argv) {
  std::printf("isa: active %s, cpu %s\n", mudd::name_of(mudd::active_isa()), mudd::name_of(mudd::detected_isa()));
  return doctest::Context(argc, argv).run();
}
