// A system call failed. Malformed bytes are FormatError of base/check.h.
#pragma once

#include <stdexcept>
#include <string>

namespace mudd::io {

// `code` is the errno, `call` the call's name, `path` the file or folder. Python sees OSError with all three.
// reason: replaces the system's text for the code in the message.
class IoError : public std::runtime_error {
 public:
  IoError(std::string call, std::string path, int code, const std::string& reason = {});
  const std::string& call() const { return call_; }
  const std::string& path() const { return path_; }
  int code() const { return code_; }

 private:
  std::string call_;
  std::string path_;
  int code_;
};

}  // namespace mudd::io
