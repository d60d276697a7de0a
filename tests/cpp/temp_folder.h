// A separate folder for a test, removed at its end.
#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "mudd/io/file_ops.h"

class TempFolder {
 public:
  TempFolder() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/mudd_test_XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary folder in " + path_);
  }
  ~TempFolder() {
    try {
      mudd::io::remove_tree(mudd::io::posix_files(), path_);
    } catch (const std::exception&) {
      // A folder left in /tmp is no reason to fail a test.
    }
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
