#include "compare.h"
#include "mudd/base/check.h"
#include "mudd/base/isa.h"
#include "mudd/base/parallel.h"

TEST_CASE("levels parse and order") {
  using namespace mudd;
#if defined(__aarch64__)
  CHECK(parse_isa("neon") == Isa::neon);
  CHECK_THROWS_WITH_AS(parse_isa("avx2"),
                       "[isa] MUDD_MAX_ISA: expected one of portable, neon, got 'avx2', a level of x86-64", Error);
#else
  CHECK(parse_isa("avx2") == Isa::avx2);
  CHECK_THROWS_WITH_AS(
      parse_isa("neon"),
      "[isa] MUDD_MAX_ISA: expected one of portable, avx2, avx512, avx512_bf16, amx_bf16, got 'neon', "
      "a level of 64-bit ARM",
      Error);
#endif
  CHECK(Isa::portable < kHighestIsa);
  CHECK_THROWS_AS(parse_isa("sse9"), Error);
}

TEST_CASE("parallel_for runs every task once and rethrows") {
  using namespace mudd;
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    std::vector<int> seen(1000, 0);
    parallel_for(1000, [&](int64_t i, int worker) {
      CHECK(worker < threads);
      seen[static_cast<size_t>(i)] += 1;
    });
    for (int n : seen) CHECK(n == 1);
    CHECK_THROWS_AS(parallel_for(10,
                                 [](int64_t i, int) {
                                   if (i == 7) fail("test", "seven");
                                 }),
                    Error);
  }
  set_num_threads(0);
}
