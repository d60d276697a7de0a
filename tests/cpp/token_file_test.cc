// Token files: both widths, damage, ids outside the vocabulary, files that shrink.
#include <unistd.h>

#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "mudd/base/check.h"
#include "mudd/data/token_file.h"
#include "temp_tokens.h"

using namespace mudd;
using namespace mudd::test;

TEST_CASE("ids are read in place, in both widths, across blocks") {
  const auto small = counting<uint16_t>(1200000, 60000);
  TempTokens<uint16_t> file(small, 60000, 4099);
  TokenFile tokens(file.spec);
  CHECK(tokens.blocks_verified() == 0);
  std::vector<int32_t> out(100000);
  tokens.read(500000, 100000, out.data());
  for (size_t i = 0; i < out.size(); ++i) REQUIRE(out[i] == small[500000 + i]);
  CHECK(tokens.blocks_verified() == 2);
  tokens.verify_all();
  CHECK(tokens.blocks_verified() == 3);

  const auto wide = counting<uint32_t>(300000, 200000);
  TempTokens<uint32_t> wide_file(wide, 200000);
  TokenFile wide_tokens(wide_file.spec);
  wide_tokens.read(199990, 20, out.data());
  for (size_t i = 0; i < 20; ++i) CHECK(out[i] == static_cast<int32_t>(wide[199990 + i]));
}

TEST_CASE("token file refuses what cannot be") {
  const auto ids = counting<uint16_t>(1000, 500);
  TempTokens<uint16_t> file(ids, 500);
  std::vector<int32_t> out(1000);
  TokenFile tokens(file.spec);
  CHECK_THROWS_AS(tokens.read(-1, 1, out.data()), Error);
  CHECK_THROWS_AS(tokens.read(999, 2, out.data()), Error);
  CHECK_THROWS_AS(tokens.read(0, 1001, out.data()), Error);
  tokens.read(1000, 0, out.data());

  auto spec = file.spec;
  spec.width = 3;
  CHECK_THROWS_AS(TokenFile{spec}, Error);
  spec = file.spec;
  spec.block_crcs.clear();
  CHECK_THROWS_AS(TokenFile{spec}, Error);
  spec = file.spec;
  spec.count = int64_t{1} << 62;
  CHECK_THROWS_AS(TokenFile{spec}, Error);
  spec = file.spec;
  spec.count = 1001;
  CHECK(message_of([&] { TokenFile t(spec); }).find("truncated") != std::string::npos);
}

TEST_CASE("an id outside the vocabulary is a FormatError that names it") {
  const auto ids = counting<uint16_t>(1000, 500);
  TempTokens<uint16_t> file(ids, 499);
  TokenFile tokens(file.spec);
  std::vector<int32_t> out(1000);
  tokens.read(0, 499, out.data());
  CHECK_THROWS_AS(tokens.read(0, 500, out.data()), FormatError);
  CHECK(message_of([&] { tokens.read(0, 500, out.data()); }).find("499 is outside the vocabulary of 499") !=
        std::string::npos);
}

TEST_CASE("one flipped bit in any block is found before its first id is used") {
  const auto ids = counting<uint16_t>(1200000, 500);
  for (const int64_t at : {int64_t{100}, int64_t{100 + 1048576}, int64_t{100 + 2399999}}) {
    TempTokens<uint16_t> file(ids, 60000, 100);
    const uint8_t old = reinterpret_cast<const uint8_t*>(ids.data())[at - 100];
    file.overwrite(at, old ^ 0x10);
    TokenFile tokens(file.spec);
    std::vector<int32_t> out(1);
    CHECK_THROWS_AS(tokens.read((at - 100) / 2, 1, out.data()), FormatError);
    CHECK_THROWS_AS(tokens.verify_all(), FormatError);
  }
}

TEST_CASE("a file that shrinks under the reader is an error, not a signal") {
  const auto ids = counting<uint16_t>(100000, 500);
  TempTokens<uint16_t> file(ids, 500);
  TokenFile tokens(file.spec);
  tokens.verify_all();
  REQUIRE(truncate(file.path.c_str(), 1000) == 0);
  std::vector<int32_t> out(1000);
  tokens.read(0, 500, out.data());
  CHECK_THROWS_AS(tokens.read(0, 501, out.data()), FormatError);
  CHECK_THROWS_AS(tokens.read(90000, 1000, out.data()), FormatError);
}
