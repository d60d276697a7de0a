// The JSON of a safetensors header and nothing more of JSON: an object of tensor entries and one object of
// strings.
#pragma once

#include <string_view>

#include "mudd/io/safetensors.h"

namespace mudd::io {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // begin and end still count from the start of the data
  Metadata metadata;
};

// `file` and `offset` (where `text` starts in it) are for the messages of FormatError.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file, std::uint64_t offset);

}  // namespace mudd::io
