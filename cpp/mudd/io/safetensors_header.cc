#include "mudd/io/safetensors_header.h"

#include <algorithm>
#include <cstdio>

namespace mudd::io {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kMaxMetadataBytes = 1 << 20;  // of one value

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file, std::uint64_t offset)
      : text_(text), file_(file), offset_(offset) {}

  SafetensorsHeader parse() {
    if (text_.empty() || text_[0] != '{') refuse("the header does not start with '{'");
    SafetensorsHeader header;
    // One brace an entry: booked at once, the list never holds twice what it needs.
    const auto braces = static_cast<std::uint64_t>(std::count(text_.begin(), text_.end(), '{'));
    header.tensors.reserve(std::min(braces, std::min<std::uint64_t>(kMaxTensors, text_.size() / 40)));
    bool has_metadata = false;
    object([&](std::string name) {
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
  [[noreturn]] void refuse(const std::string& reason) const {
    throw FormatError(file_, static_cast<std::int64_t>(offset_ + at_), reason);
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  char peek() {
    skip_space();
    if (at_ >= text_.size()) refuse("the header ends in the middle");
    return text_[at_];
  }

  void expect(char wanted) {
    if (peek() != wanted) refuse(std::string("expected '") + wanted + "'");
    ++at_;
  }

  // Calls `member(key)` with the reader standing at each value.
  template <typename Member>
  void object(Member&& member) {
    expect('{');
    if (peek() == '}') {
      ++at_;
      return;
    }
    while (true) {
      std::string key = string(kMaxNameBytes, "a name");
      expect(':');
      member(std::move(key));
      if (peek() == '}') break;
      expect(',');
    }
    ++at_;
  }

  unsigned hex4() {
    if (text_.size() - at_ < 4) refuse("\\u without four digits");
    unsigned value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = text_[at_];
      unsigned digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<unsigned>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<unsigned>(c - 'a') + 10;
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<unsigned>(c - 'A') + 10;
      } else {
        refuse("\\u without four digits");
      }
      value = value * 16 + digit;
    }
    return value;
  }

  void append_escaped_code_point(std::string* out) {
    unsigned code = hex4();
    if (code >= 0xDC00 && code < 0xE000) refuse("a lone low surrogate");
    if (code >= 0xD800 && code < 0xDC00) {
      if (text_.substr(at_, 2) != "\\u") refuse("a lone high surrogate");
      at_ += 2;
      const unsigned low = hex4();
      if (low < 0xDC00 || low >= 0xE000) refuse("a lone high surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    const auto put = [out](unsigned byte) { out->push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | (code >> 6));
      put(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      put(0xE0 | (code >> 12));
      put(0x80 | ((code >> 6) & 0x3F));
      put(0x80 | (code & 0x3F));
    } else {
      put(0xF0 | (code >> 18));
      put(0x80 | ((code >> 12) & 0x3F));
      put(0x80 | ((code >> 6) & 0x3F));
      put(0x80 | (code & 0x3F));
    }
  }

  std::string string(std::size_t limit, const char* what) {
    expect('"');
    std::string out;
    while (true) {
      if (at_ >= text_.size()) refuse("the header ends inside a string");
      if (out.size() > limit) refuse(std::string(what) + " of more than " + std::to_string(limit) + " bytes");
      const char c = text_[at_++];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) refuse("a control character inside a string");
      if (c != '\\') {
        out.push_back(c);
        continue;
      }
      if (at_ >= text_.size()) refuse("the header ends inside a string");
      const char escape = text_[at_++];
      constexpr std::string_view letters = "\"\\/bfnrt";
      constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
      const std::size_t index = letters.find(escape);
      if (index != std::string_view::npos) {
        out.push_back(meanings[index]);
      } else if (escape == 'u') {
        append_escaped_code_point(&out);
      } else {
        refuse("an unknown escape in a string");
      }
    }
    if (!valid_utf8(out)) refuse(std::string(what) + " is not UTF-8");
    return out;
  }

  std::uint64_t integer() {
    const char first = peek();
    if (first < '0' || first > '9') refuse("expected a whole number of zero or more");
    std::uint64_t value = 0;
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (!multiply_checked(value, 10, &value) || !add_checked(value, digit, &value)) {
        refuse("a number beyond 64 bits");
      }
      ++at_;
    }
    if (first == '0' && at_ - start > 1) refuse("a number with a leading zero");
    return value;
  }

  std::vector<std::uint64_t> integers(std::size_t limit, const char* what) {
    expect('[');
    std::vector<std::uint64_t> out;
    if (peek() == ']') {
      ++at_;
      return out;
    }
    while (true) {
      if (out.size() >= limit) refuse(std::string(what) + " of more than " + std::to_string(limit) + " numbers");
      out.push_back(integer());
      if (peek() == ']') break;
      expect(',');
    }
    ++at_;
    out.shrink_to_fit();
    return out;
  }

  void metadata(Metadata* out) {
    object([&](std::string key) {
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
    object([&](const std::string& key) {
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

  std::string_view text_;
  const std::string& file_;
  std::uint64_t offset_;
  std::size_t at_ = 0;
};

}  // namespace

bool valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    std::size_t extra = 0;
    unsigned code = lead;
    if (lead >= 0xF0 && lead < 0xF8) {
      extra = 3;
      code = lead & 0x07u;
    } else if (lead >= 0xE0) {
      extra = 2;
      code = lead & 0x0Fu;
    } else if (lead >= 0xC0) {
      extra = 1;
      code = lead & 0x1Fu;
    }
    if ((lead >= 0x80 && lead < 0xC0) || lead >= 0xF8 || text.size() - i <= extra) return false;
    for (std::size_t k = 1; k <= extra; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0u) != 0x80u) return false;
      code = (code << 6) | (next & 0x3Fu);
    }
    constexpr unsigned smallest[4] = {0, 0x80, 0x800, 0x10000};
    if (code < smallest[extra] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += extra + 1;
  }
  return true;
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escape;
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file, std::uint64_t offset) {
  return HeaderParser(text, file, offset).parse();
}

}  // namespace mudd::io
