// A token file for one test, and the message of an exception.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "mudd/data/token_file.h"
#include "mudd/io/crc32c.h"

namespace mudd::test {

// A temporary token file: `lead` bytes of rubbish, then ids.
template <class Id>
struct TempTokens {
  std::string path;
  TokenFileSpec spec;

  TempTokens(const std::vector<Id>& ids, int64_t vocab_size, int64_t lead = 0) {
    char name[] = "/tmp/mudd_data_test_XXXXXX";
    const int fd = mkstemp(name);
    REQUIRE(fd >= 0);
    path = name;
    const std::vector<uint8_t> rubbish(static_cast<size_t>(lead), 0xFF);
    const size_t bytes = ids.size() * sizeof(Id);
    REQUIRE(write(fd, rubbish.data(), rubbish.size()) == static_cast<ssize_t>(rubbish.size()));
    REQUIRE(write(fd, ids.data(), bytes) == static_cast<ssize_t>(bytes));
    close(fd);
    spec = {path, lead, static_cast<int64_t>(ids.size()), static_cast<int>(sizeof(Id)), vocab_size, {}};
    const auto* raw = reinterpret_cast<const uint8_t*>(ids.data());
    for (size_t at = 0; at < bytes; at += kTokenBlockBytes)
      spec.block_crcs.push_back(io::crc32c(raw + at, std::min<size_t>(kTokenBlockBytes, bytes - at)));
  }
  ~TempTokens() { unlink(path.c_str()); }

  void overwrite(int64_t offset, uint8_t byte) const {
    const int fd = open(path.c_str(), O_WRONLY);
    REQUIRE(pwrite(fd, &byte, 1, offset) == 1);
    close(fd);
  }
};

template <class Id>
std::vector<Id> counting(int64_t n, int64_t modulus) {
  std::vector<Id> ids(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) ids[static_cast<size_t>(i)] = static_cast<Id>(i % modulus);
  return ids;
}

inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace mudd::test
