// The JSON that headers are made of: objects, strings, whole numbers, lists of them. Everything read has a limit,
// so that memory stays in proportion to the text, whatever is in it, which a general parser cannot promise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mudd::io {

// Stands at one place of a text; every refusal is a FormatError with the file and the byte in it.
class JsonReader {
 public:
  // `file` and `offset` (where `text` starts in it) are for the messages.
  JsonReader(std::string_view text, const std::string& file, std::uint64_t offset)
      : text_(text), file_(file), offset_(offset) {}

 protected:
  [[noreturn]] void refuse(const std::string& reason) const;

  void skip_space();
  char peek();  // the next character that is not space
  void expect(char wanted);

  // Calls `member(key)` with the reader standing at each value; keys of at most `longest_key` bytes.
  template <typename Member>
  void object(std::size_t longest_key, Member&& member) {
    expect('{');
    if (peek() == '}') {
      ++at_;
      return;
    }
    while (true) {
      std::string key = string(longest_key, "a name");
      expect(':');
      member(std::move(key));
      if (peek() == '}') break;
      expect(',');
    }
    ++at_;
  }

  std::string string(std::size_t limit, const char* what);                   // at most `limit` bytes of UTF-8
  std::uint64_t integer();                                                   // zero or more, 64 bits
  std::vector<std::uint64_t> integers(std::size_t limit, const char* what);  // at most `limit` of them

  std::string_view text_;
  std::size_t at_ = 0;

 private:
  unsigned hex4();
  void append_escaped_code_point(std::string* out);

  const std::string& file_;
  std::uint64_t offset_;
};

// `text` as a JSON string with its quotes.
std::string json_quoted(std::string_view text);

// Whether `text` is well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF).
bool valid_utf8(std::string_view text);

}  // namespace mudd::io
