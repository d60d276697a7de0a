#include "mudd/io/errors.h"

#include <cstring>
#include <utility>

namespace mudd::io {

IoError::IoError(std::string call, std::string path, int code)
    : std::runtime_error("[" + call + "] " + path + ": " + std::strerror(code)),
      call_(std::move(call)),
      path_(std::move(path)),
      code_(code) {}

}  // namespace mudd::io
