#include "mudd/io/safetensors_header.h"

#include <algorithm>

#include "mudd/io/json_reader.h"

namespace mudd::io {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kMaxMetadataBytes = 1 << 20;  // of one value

class HeaderParser : JsonReader {
 public:
  using JsonReader::JsonReader;

  SafetensorsHeader parse() {
    if (text_.empty() || text_[0] != '{') refuse("the header does not start with '{'");
    SafetensorsHeader header;
    // One brace per entry: with this reservation the list never has more than twice the needed capacity.
    const auto braces = static_cast<std::uint64_t>(std::count(text_.begin(), text_.end(), '{'));
    header.tensors.reserve(std::min(braces, std::min<std::uint64_t>(kMaxTensors, text_.size() / 40)));
    bool has_metadata = false;
    object(kMaxNameBytes, [&](std::string name) {
      if (name == kMetadataKey) {
        if (has_metadata) refuse("duplicate key __metadata__");
        has_metadata = true;
        metadata(&header.metadata);
        return;
      }
      if (header.tensors.size() >= kMaxTensors) refuse("more than 1,000,000 tensors");
      header.tensors.push_back(tensor(std::move(name)));
    });
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ != text_.size()) refuse("something follows the header's closing brace");
    return header;
  }

 private:
  void metadata(Metadata* out) {
    object(kMaxNameBytes, [&](std::string key) {
      if (out->size() >= kMaxMetadata) refuse("more than 10,000 metadata entries");
      out->emplace_back(std::move(key), string(kMaxMetadataBytes, "a metadata value"));
    });
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : *out) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) refuse("duplicate metadata key " + json_quoted(*twice));
  }

  TensorInfo tensor(std::string name) {
    TensorInfo info;
    info.name = std::move(name);
    unsigned seen = 0;
    const auto once = [&](unsigned bit, const std::string& key) {
      if ((seen & bit) != 0) refuse("duplicate key " + json_quoted(key));
      seen |= bit;
    };
    object(kMaxNameBytes, [&](const std::string& key) {
      if (key == "dtype") {
        once(1, key);
        const std::string dtype = string(16, "a dtype");
        const Dtype* known = find_dtype(dtype);
        if (known == nullptr)
          refuse("tensor " + json_quoted(info.name) + " has the unknown dtype " + json_quoted(dtype));
        info.dtype = known->name;
      } else if (key == "shape") {
        once(2, key);
        info.shape = integers(kMaxDims, "a shape");
      } else if (key == "data_offsets") {
        once(4, key);
        const std::vector<std::uint64_t> range = integers(2, "data_offsets");
        if (range.size() != 2) refuse("data_offsets is not a pair");
        info.begin = range[0];
        info.end = range[1];
      } else {
        refuse("unknown key " + json_quoted(key) + " of tensor " + json_quoted(info.name));
      }
    });
    if (seen != 7) refuse("tensor " + json_quoted(info.name) + " lacks one of dtype, shape, data_offsets");
    return info;
  }
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file, std::uint64_t offset) {
  return HeaderParser(text, file, offset).parse();
}

}  // namespace mudd::io
