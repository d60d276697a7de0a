// The JSON of a safetensors header only: an object of tensor entries and one object of strings.
#pragma once

#include <string_view>

#include "mudd/io/safetensors.h"

namespace mudd::io {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // begin and end are relative to the start of the data
  Metadata metadata;
};

// `file` and `offset` (the start of `text` in the file) are for the messages of FormatError.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file, std::uint64_t offset);

}  // namespace mudd::io
