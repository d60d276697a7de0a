#include "mudd/io/errors.h"

#include <cstring>
#include <utility>

namespace mudd::io {

IoError::IoError(std::string call, std::string path, int code, const std::string& reason)
    : std::runtime_error("[" + call + "] " + path + ": " + (reason.empty() ? std::strerror(code) : reason)),
      call_(std::move(call)),
      path_(std::move(path)),
      code_(code) {}

}  // namespace mudd::io
