// The JSON of a safetensors header and nothing more of JSON: an object of tensor entries and one object of
// strings. A reader of this one shape needs memory in proportion to the header, whatever is in it, which a
// general parser cannot promise.
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

// `text` as a JSON string with its quotes.
std::string json_quoted(std::string_view text);

// Whether `text` is well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF).
bool valid_utf8(std::string_view text);

}  // namespace mudd::io
