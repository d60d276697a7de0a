// A fuzz target: one reader, fed with bytes. The driver (driver.cc) mutates inputs of a kept corpus, prefers those
// that reach new code, and stops at the first input that breaks a rule.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

// A property that the reader promises does not hold for this input.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool holds, const char* property) {
  if (!holds) throw Broken(property);
}

// Each target_*.cc defines one. A run may throw mudd::FormatError (the input is refused); any other exception,
// a finding of a sanitizer, more than 4 x input + 16 MiB of memory, or 10 s is a failure.
struct Target {
  std::string_view name;
  std::vector<std::string_view> words;  // of the format, which mutation inserts
  // `scratch` is the path of a file that the run may write.
  void (*run)(const Bytes& input, const std::string& scratch);
  void (*repair)(Bytes* input);  // makes lengths and checksums of a mutated input fit again; may be null
};
extern const Target target;

// One to eight random changes; `other` gives parts to splice in.
void mutate(Bytes* input, const Bytes& other, const std::vector<std::string_view>& words, Random& random);

// Reads integers from the front of an input; zeros behind its end.
class Cursor {
 public:
  explicit Cursor(const Bytes& input) : rest_(input) {}
  template <class Int>
  Int take() {
    Int value = 0;
    for (std::size_t i = 0; i < sizeof(Int) && !rest_.empty(); ++i, rest_ = rest_.subspan(1))
      value = static_cast<Int>(value | static_cast<Int>(rest_[0]) << (8 * i));
    return value;
  }
  std::span<const std::uint8_t> rest() const { return rest_; }

 private:
  std::span<const std::uint8_t> rest_;
};

void write_file(const std::string& path, std::span<const std::uint8_t> bytes);

}  // namespace fuzz
