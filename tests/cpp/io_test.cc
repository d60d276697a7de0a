// Checksums, the file operations and their faults, the safetensors reader and writer.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>
#include <set>

#include "mudd/base/check.h"
#include "mudd/io/checked_blocks.h"
#include "mudd/io/crc32c.h"
#include "mudd/io/safetensors.h"
#include "mudd/io/safetensors_header.h"
#include "temp_folder.h"
#include "testing/fault_files.h"

using namespace mudd::io;
using mudd::FormatError;

namespace {

std::string random_bytes(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::string out(n, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

void put(const std::string& path, const std::string& bytes) {
  replace_file(posix_files(), path, bytes.data(), bytes.size());
}

std::string file_with_header(const std::string& json, const std::string& data) {
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>((json.size() >> shift) & 0xFFu));
  return out + json + data;
}

}  // namespace

TEST_CASE("crc32c: known values, both ways equal, every length and alignment, pieces and sums") {
  CHECK(crc32c("123456789", 9) == 0xE3069283u);
  CHECK(crc32c("", 0) == 0u);
  CHECK(crc32c(std::string(32, '\0').data(), 32) == 0x8A9136AAu);    // RFC 3720 B.4
  CHECK(crc32c(std::string(32, '\xff').data(), 32) == 0x62A8AB43u);  // RFC 3720 B.4
  const std::string bytes = random_bytes(300, 1);
  for (std::size_t start = 0; start < 9; ++start) {
    for (std::size_t size = 0; start + size <= 280; size += 7) {
      const std::uint32_t want = crc32c_portable(bytes.data() + start, size, 0);
      CHECK(crc32c(bytes.data() + start, size) == want);
      if (crc32c_has_instruction()) CHECK(crc32c_instruction(bytes.data() + start, size, 0) == want);
      const std::size_t half = size / 3;
      const std::uint32_t first = crc32c(bytes.data() + start, half);
      CHECK(crc32c(bytes.data() + start + half, size - half, first) == want);
      CHECK(crc32c_combine(first, crc32c(bytes.data() + start + half, size - half), size - half) == want);
    }
  }
  if (!crc32c_has_instruction()) MESSAGE("no instruction for it here: the checksum was compared with itself");
}

TEST_CASE("a file is replaced whole or not at all, whatever call fails") {
  const TempFolder folder;
  const std::string path = folder.path() + "/file";
  for (std::uint64_t nth = 1;; ++nth) {
    put(path, "old");
    FaultFiles faults(posix_files());
    faults.fail_at(nth, EIO);
    bool failed = false;
    try {
      replace_file(faults, path, "newer", 5);
    } catch (const IoError& error) {
      failed = true;
      CHECK(error.code() == EIO);
    }
    const std::string now = read_file(posix_files(), path, 100);
    CHECK((now == "old" || now == "newer"));
    CHECK(posix_files().list(folder.path()).size() == 1);
    if (!failed) {
      CHECK(now == "newer");
      CHECK(nth > 5);
      break;
    }
  }
}

TEST_CASE("short writes and reads are continued") {
  const TempFolder folder;
  const std::string bytes = random_bytes(1000, 2);
  for (std::uint64_t nth = 1; nth < 12; ++nth) {
    FaultFiles faults(posix_files());
    faults.shorten_at(nth);
    replace_file(faults, folder.path() + "/file", bytes.data(), bytes.size());
    CHECK(read_file(faults, folder.path() + "/file", 1000) == bytes);
  }
  CHECK_THROWS_AS(read_file(posix_files(), folder.path() + "/file", 999), FormatError);
}

TEST_CASE("errors carry errno; new files never overwrite; links are not followed") {
  const TempFolder folder;
  FileOps& ops = posix_files();
  try {
    ops.open_read(folder.path() + "/none");
    FAIL("opened a file that is not there");
  } catch (const IoError& error) {
    CHECK(error.code() == ENOENT);
    CHECK(std::string(error.what()).find("/none") != std::string::npos);
  }
  put(folder.path() + "/there", "x");
  CHECK_THROWS_AS(ops.create(folder.path() + "/there"), IoError);
  ops.mkdir(folder.path() + "/sub");
  put(folder.path() + "/sub/inner", "x");
  REQUIRE(::symlink((folder.path() + "/there").c_str(), (folder.path() + "/sub/link").c_str()) == 0);
  remove_tree(ops, folder.path() + "/sub");
  CHECK(read_file(ops, folder.path() + "/there", 10) == "x");
  make_folders(ops, folder.path() + "/a/b/c");
  make_folders(ops, folder.path() + "/a/b/c");
  CHECK(ops.list(folder.path() + "/a/b").size() == 1);
}

TEST_CASE("shards: written, read back, checksums right, every flip and cut found") {
  const TempFolder folder;
  const std::string path = folder.path() + "/shard.safetensors";
  const std::string big = random_bytes(kBlockBytes + 12, 3);
  const std::string small = random_bytes(6, 4);
  const std::vector<TensorSource> sources = {
      {"big \"quoted\"", "F32", {kBlockBytes / 4 + 3}, big.data(), big.size()},
      {"empty", "F32", {0, 7}, nullptr, 0},
      {"small", "I16", {3}, small.data(), small.size()}};
  File file = File::create(posix_files(), path);
  const ShardRecord record = write_shard(posix_files(), file, sources, {{"step", "7"}});
  file.sync();
  file.close();

  const SafetensorsFile read(posix_files(), path);
  REQUIRE(read.tensors().size() == 3);
  CHECK(read.metadata() == Metadata{{"step", "7"}});
  CHECK(read.data_start() % 8 == 0);
  CHECK(read.tensors()[0].name == "big \"quoted\"");
  CHECK(read.size() == record.bytes);
  const std::string all = read_file(posix_files(), path, 1 << 22);
  CHECK(crc32c(all.data(), all.size()) == record.crc);
  CHECK(record.slices[0].crcs == block_crcs(big.data(), big.size()));
  CHECK(record.slices[0].crcs.size() == 2);
  CHECK(all.substr(record.slices[2].begin) == small);

  std::vector<CheckedRange> ranges;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    ranges.push_back({sources[i].name, record.slices[i].begin, record.slices[i].end, record.slices[i].crcs});
  }
  verify_file(posix_files(), path, record.bytes, record.crc, ranges);
  std::mt19937 random(5);
  for (int trial = 0; trial < 60; ++trial) {
    std::string damaged = all;
    // Every byte of the header, then samples of the data.
    const std::size_t at = trial < 20 ? static_cast<std::size_t>(trial) * 7 : random() % all.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    put(path, damaged);
    CHECK_THROWS_AS(verify_file(posix_files(), path, record.bytes, record.crc, ranges), FormatError);
    put(path, all.substr(0, random() % all.size()));
    CHECK_THROWS_AS(verify_file(posix_files(), path, record.bytes, record.crc, ranges), FormatError);
  }
  put(path, all + "x");
  CHECK_THROWS_AS(verify_file(posix_files(), path, record.bytes, record.crc, ranges), FormatError);
}

TEST_CASE("a part of a range is read without the rest, and every block of it is compared") {
  const TempFolder folder;
  const std::string path = folder.path() + "/part";
  const std::string data = random_bytes(2 * kBlockBytes + 100, 6);
  put(path, "head" + data);
  const CheckedRange range{"tensor", 4, 4 + data.size(), block_crcs(data.data(), data.size())};
  const BoundedReader reader(posix_files(), path);
  std::mt19937 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    const std::uint64_t skip = trial == 0 ? 0 : random() % data.size();
    const std::uint64_t bytes = trial == 0 ? data.size() : random() % (data.size() - skip + 1);
    std::string found(bytes, '?');
    read_checked_part(reader, range, skip, bytes, found.data());
    CHECK(found == data.substr(skip, bytes));
  }
  std::string found(10, '?');
  CHECK_THROWS_AS(read_checked_part(reader, range, data.size() - 9, 10, found.data()), FormatError);
  CHECK_THROWS_AS(read_checked_part(reader, range, ~std::uint64_t{0}, 10, found.data()), FormatError);

  std::string damaged = "head" + data;
  damaged[4 + kBlockBytes + 5] ^= 1;
  put(path, damaged);
  const BoundedReader again(posix_files(), path);
  read_checked_part(again, range, 0, 10, found.data());  // of a block that is whole
  CHECK_THROWS_AS(read_checked_part(again, range, kBlockBytes - 1, 2, found.data()), FormatError);
}

TEST_CASE("the writer refuses what it could not read back") {
  const auto header = [](const TensorSource& source) { return safetensors_header({source}, {}); };
  CHECK_THROWS_AS(header({"x", "F32", {2}, nullptr, 4}), mudd::Error);
  CHECK_THROWS_AS(header({"x", "Q4", {1}, nullptr, 1}), mudd::Error);
  CHECK_THROWS_AS(header({"", "U8", {1}, nullptr, 1}), mudd::Error);
  CHECK_THROWS_AS(header({"__metadata__", "U8", {1}, nullptr, 1}), mudd::Error);
  CHECK_THROWS_AS(header({"\xff", "U8", {1}, nullptr, 1}), mudd::Error);
  CHECK_THROWS_AS(header({"x", "F32", {1ull << 62, 1ull << 62}, nullptr, 0}), mudd::Error);
}

TEST_CASE("safetensors reader: good headers") {
  const TempFolder folder;
  const std::string path = folder.path() + "/f";
  put(path, file_with_header("{}", ""));
  CHECK(SafetensorsFile(posix_files(), path).tensors().empty());
  put(path, file_with_header(
                "{ \"b\" : {\"shape\":[],\"data_offsets\":[2,4],\"dtype\":\"BF16\"},\n\"\\u00e9\\ud83d\\ude00\":"
                "{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[0,2]}}   ",
                "abcd"));
  const SafetensorsFile file(posix_files(), path);
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.tensors()[0].name == "\xc3\xa9\xf0\x9f\x98\x80");
  CHECK(file.tensors()[1].dtype == "BF16");
  CHECK(file.tensors()[1].end == file.size());
}

TEST_CASE("safetensors reader: each broken rule is a FormatError") {
  const TempFolder folder;
  const std::string path = folder.path() + "/f";
  const std::string u8 = "\"dtype\":\"U8\",";
  const std::string x2 = "\"x\":{" + u8 + "\"shape\":[2],\"data_offsets\":[0,2]}";
  std::string deep(100000, '[');
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", ""},                                                                         // no header
      {" {}", ""},                                                                      // not '{' first
      {"{" + x2 + "}", "abc"},                                                          // bytes left over
      {"{" + x2 + "}", "a"},                                                            // cut
      {"{" + x2 + "," + x2 + "}", "ab"},                                                // duplicate
      {"{" + x2 + ",\"y\":{" + u8 + "\"shape\":[1],\"data_offsets\":[1,2]}}", "ab"},    // overlap
      {"{" + x2 + ",\"y\":{" + u8 + "\"shape\":[1],\"data_offsets\":[3,4]}}", "abcd"},  // hole
      {"{" + x2 + ",\"y\":{" + u8 + "\"shape\":[0],\"data_offsets\":[9,9]}}", "ab"},    // empty, outside
      {"{" + x2 + ",\"y\":{" + u8 + "\"shape\":[0],\"data_offsets\":[1,1]}}", "ab"},    // empty, inside another
      {"{\"x\":{" + u8 + "\"shape\":[3],\"data_offsets\":[0,2]}}", "ab"},               // product differs
      {"{\"x\":{" + u8 + "\"shape\":[2],\"data_offsets\":[2,0]}}", "ab"},               // backwards
      {"{\"x\":{" + u8 + "\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", ""},    // overflow to zero
      {"{\"x\":{" + u8 + "\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", ""},  // also with a zero
      {"{\"x\":{" + u8 + "\"shape\":[18446744073709551616],\"data_offsets\":[0,0]}}", ""},     // beyond 64 bits
      {"{\"x\":{" + u8 + "\"shape\":[-1],\"data_offsets\":[0,0]}}", ""},
      {"{\"x\":{" + u8 + "\"shape\":[1.0],\"data_offsets\":[0,1]}}", "a"},
      {"{\"x\":{" + u8 + "\"shape\":[01],\"data_offsets\":[0,1]}}", "a"},
      {"{\"x\":{" + u8 + "\"shape\":[1],\"data_offsets\":[0,1,2]}}", "a"},
      {"{\"x\":{" + u8 + "\"shape\":[1],\"data_offsets\":[0]}}", "a"},
      {"{\"x\":{" + u8 + "\"shape\":[1]}}", "a"},
      {"{\"x\":{" + u8 + u8 + "\"shape\":[1],\"data_offsets\":[0,1]}}", "a"},
      {"{\"x\":{\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":[0,1]}}", "a"},
      {"{\"x\":{\"extra\":1," + u8 + "\"shape\":[1],\"data_offsets\":[0,1]}}", "a"},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", ""},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", ""},
      {"{\"__metadata__\":{\"a\":1}}", ""},
      {"{\"" + std::string(1025, 'n') + "\":{" + u8 + "\"shape\":[1],\"data_offsets\":[0,1]}}", "a"},
      {"{\"\\ud800\":{" + u8 + "\"shape\":[1],\"data_offsets\":[0,1]}}", "a"},
      {"{\"\xff\":{" + u8 + "\"shape\":[1],\"data_offsets\":[0,1]}}", "a"},
      {"{" + x2 + "} {}", "ab"},
      {"{" + x2 + ",}", "ab"},
      {"{" + x2, "ab"},
      {"{\"x\":" + deep, ""},
      {"{\"x", ""},
      {"{\"x\\", ""},
      {"{\"x\\u12", ""},
  };
  for (const auto& [json, data] : bad) {
    CAPTURE(json.substr(0, 200));
    put(path, file_with_header(json, data));
    CHECK_THROWS_AS(SafetensorsFile(posix_files(), path), FormatError);
  }
  put(path, "short");
  CHECK_THROWS_AS(SafetensorsFile(posix_files(), path), FormatError);
  put(path, std::string(8, '\xff') + "{}");
  CHECK_THROWS_AS(SafetensorsFile(posix_files(), path), FormatError);
  put(path, std::string("\x00\xe1\xf5\x05\x00\x00\x00\x00", 8) + "{}");  // 100,000,000: allowed, but not there
  CHECK_THROWS_AS(SafetensorsFile(posix_files(), path), FormatError);
}

TEST_CASE("safetensors reader: thousands of mutated headers give a value or a FormatError") {
  const TempFolder folder;
  const std::string path = folder.path() + "/f";
  const std::string good = file_with_header(
      "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[24,24]}}",
      std::string(24, 'd'));
  std::mt19937 random(6);
  const std::string_view alphabet = "{}[]\",:\\u0123456789-e \x01\xff";
  std::size_t accepted = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string text = good;
    for (unsigned k = 0; k < 1 + random() % 4; ++k) {
      const std::size_t at = random() % text.size();
      const unsigned kind = random() % 3;
      if (kind == 0) text[at] = alphabet[random() % alphabet.size()];
      if (kind == 1) text.erase(at, 1 + random() % 3);
      if (kind == 2) text.insert(at, 1, alphabet[random() % alphabet.size()]);
    }
    File file = File::create(posix_files(), path);
    file.write_all(text.data(), text.size());
    file.close();
    try {
      const SafetensorsFile read(posix_files(), path);
      for (const TensorInfo& tensor : read.tensors()) CHECK(tensor.end <= text.size());
      ++accepted;
    } catch (const FormatError&) {
    }
    posix_files().unlink(path);
  }
  CHECK(accepted < 2000);
  MESSAGE("mutants that are still valid: " << accepted);
}
