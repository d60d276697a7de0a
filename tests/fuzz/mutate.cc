#include <algorithm>
#include <array>
#include <cstring>

#include "fuzz.h"

namespace fuzz {
namespace {

constexpr std::size_t kLongest = 1 << 16;  // bytes of an input
constexpr std::array<std::uint64_t, 16> kNumbers = {
    0,      1,       2,          7,          63,          64,         127,        255,
    0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF, 0x100000000, 1ull << 53, ~0ull >> 1, ~0ull};

std::size_t below(std::size_t n, Random& random) { return n == 0 ? 0 : random() % n; }

// [begin, end) of the input; short ranges are likelier.
std::pair<std::size_t, std::size_t> range_of(const Bytes& input, Random& random) {
  const std::size_t begin = below(input.size() + 1, random);
  const std::size_t longest = std::min(input.size() - begin, std::size_t{1} << below(12, random));
  return {begin, begin + below(longest + 1, random)};
}

void insert(Bytes* input, std::size_t at, const void* data, std::size_t bytes) {
  const auto* first = static_cast<const std::uint8_t*>(data);
  input->insert(input->begin() + static_cast<std::ptrdiff_t>(at), first, first + bytes);
}

void erase(Bytes* input, std::pair<std::size_t, std::size_t> range) {
  input->erase(input->begin() + static_cast<std::ptrdiff_t>(range.first),
               input->begin() + static_cast<std::ptrdiff_t>(range.second));
}

// A run of digits becomes another number, mostly one at the edge of a width.
void change_decimal(Bytes* input, Random& random) {
  const auto is_digit = [](std::uint8_t c) { return c >= '0' && c <= '9'; };
  const std::size_t from = below(input->size(), random);
  std::size_t begin = from;
  while (begin < input->size() && !is_digit((*input)[begin])) ++begin;
  std::size_t end = begin;
  while (end < input->size() && is_digit((*input)[end])) ++end;
  if (begin == end) return;
  const std::uint64_t old = std::strtoull(std::string(input->begin() + static_cast<std::ptrdiff_t>(begin),
                                                      input->begin() + static_cast<std::ptrdiff_t>(end))
                                              .c_str(),
                                          nullptr, 10);
  const std::uint64_t chosen = random() % 2 ? kNumbers[below(kNumbers.size(), random)] : old + random() % 17 - 8;
  std::string text = std::to_string(chosen);
  if (random() % 32 == 0) text += "0";
  erase(input, {begin, end});
  insert(input, begin, text.data(), text.size());
}

void change_word(Bytes* input, Random& random) {
  const std::size_t width = std::size_t{1} << below(4, random);
  if (input->size() < width) return;
  const std::size_t at = below(input->size() - width + 1, random);
  std::uint64_t value = kNumbers[below(kNumbers.size(), random)];
  if (random() % 2) {
    std::memcpy(&value, input->data() + at, width);
    value += random() % 33 - 16;
  }
  std::memcpy(input->data() + at, &value, width);
}

void change_once(Bytes* input, const Bytes& other, const std::vector<std::string_view>& words, Random& random) {
  const auto range = range_of(*input, random);
  switch (below(10, random)) {
    case 0:
      if (!input->empty())
        (*input)[below(input->size(), random)] ^= static_cast<std::uint8_t>(1u << below(8, random));
      return;
    case 1:
      if (!input->empty()) (*input)[below(input->size(), random)] = static_cast<std::uint8_t>(random());
      return;
    case 2: return change_word(input, random);
    case 3:
    case 4: return change_decimal(input, random);
    case 5: return erase(input, range);
    case 6: {
      const Bytes copy(input->begin() + static_cast<std::ptrdiff_t>(range.first),
                       input->begin() + static_cast<std::ptrdiff_t>(range.second));
      for (std::size_t times = 1 + (random() % 16 == 0 ? below(200, random) : 0); times > 0; --times)
        insert(input, below(input->size() + 1, random), copy.data(), copy.size());
      return;
    }
    case 7:
      if (words.empty()) return;
      {
        const std::string_view word = words[below(words.size(), random)];
        if (random() % 2) erase(input, range);
        return insert(input, range.first, word.data(), word.size());
      }
    case 8: {
      const auto part = range_of(other, random);
      if (random() % 2) erase(input, range);
      return insert(input, range.first, other.data() + part.first, part.second - part.first);
    }
    default:
      if (random() % 4 == 0) return input->resize(range.first);
      for (std::size_t i = range.first; i < range.second; ++i) (*input)[i] = static_cast<std::uint8_t>(random());
  }
}

}  // namespace

void mutate(Bytes* input, const Bytes& other, const std::vector<std::string_view>& words, Random& random) {
  for (std::size_t changes = 1 + below(std::size_t{1} << below(4, random), random); changes > 0; --changes)
    change_once(input, other, words, random);
  if (input->size() > kLongest) input->resize(kLongest);
}

}  // namespace fuzz
