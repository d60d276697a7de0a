#include "mudd/io/json_reader.h"

#include <cstdio>

#include "mudd/io/bounded_reader.h"
#include "mudd/io/errors.h"

namespace mudd::io {

void JsonReader::refuse(const std::string& reason) const {
  throw FormatError(file_, static_cast<std::int64_t>(offset_ + at_), reason);
}

void JsonReader::skip_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

char JsonReader::peek() {
  skip_space();
  if (at_ >= text_.size()) refuse("the header ends in the middle");
  return text_[at_];
}

void JsonReader::expect(char wanted) {
  if (peek() != wanted) refuse(std::string("expected '") + wanted + "'");
  ++at_;
}

unsigned JsonReader::hex4() {
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

void JsonReader::append_escaped_code_point(std::string* out) {
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

std::string JsonReader::string(std::size_t limit, const char* what) {
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

std::uint64_t JsonReader::integer() {
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

std::vector<std::uint64_t> JsonReader::integers(std::size_t limit, const char* what) {
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

}  // namespace mudd::io
