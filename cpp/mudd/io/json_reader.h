// A reader for the JSON of headers: objects, strings, integers, lists of them. Everything has a limit, so that
// memory stays proportional to the text for any input. A general parser cannot guarantee this.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mudd::io {

// A position in a text; every rejection is a FormatError with the file and the byte offset.
class JsonReader {
 public:
  // `file` and `offset` (the start of `text` in the file) are for the messages.
  JsonReader(std::string_view text, const std::string& file, std::uint64_t offset)
      : text_(text), file_(file), offset_(offset) {}

 protected:
  [[noreturn]] void refuse(const std::string& reason) const;

  void skip_space();
  char peek();  // the next character that is no space
  void expect(char wanted);

  // Call `member(key)` with the reader at each value; keys of at most `longest_key` bytes.
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

// Return `text` as a JSON string with its quotes.
std::string json_quoted(std::string_view text);

// Return true if `text` is well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF).
bool valid_utf8(std::string_view text);

}  // namespace mudd::io
