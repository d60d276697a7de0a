// The one error format: "[where] what: expected ..., got ...".
// Error is the user's mistake (ValueError in Python), TypeMistake a wrong type (TypeError),
// FormatError a malformed file (mudd_core.base.errors.FormatError), StateError a wrong moment (RuntimeError).
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace mudd {

class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

class TypeMistake : public Error {
 public:
  using Error::Error;
};

class StateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class FormatError : public std::runtime_error {
 public:
  FormatError(std::string file, int64_t offset, std::string reason)
      : std::runtime_error(file + " at byte " + std::to_string(offset) + ": " + reason),
        file_(std::move(file)),
        offset_(offset),
        reason_(std::move(reason)) {}
  const std::string& file() const { return file_; }
  int64_t offset() const { return offset_; }
  const std::string& reason() const { return reason_; }

 private:
  std::string file_;
  int64_t offset_;
  std::string reason_;
};

// fail("rms_norm", "gain: expected (", n, ",), got (", m, ",)")
template <class... Parts>
[[noreturn]] void fail(const char* where, const Parts&... parts) {
  std::ostringstream text;
  text << "[" << where << "] ";
  (text << ... << parts);
  throw Error(text.str());
}

template <class... Parts>
void check(bool holds, const char* where, const Parts&... parts) {
  if (!holds) fail(where, parts...);
}

}  // namespace mudd
