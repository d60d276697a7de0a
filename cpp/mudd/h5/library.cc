#include "mudd/h5/library.h"

#include <array>
#include <string_view>

#include "mudd/base/check.h"

namespace mudd::h5 {
namespace {

struct ElementRow {
  Element type;
  int64_t width;
  hid_t (*id)();
};

// The predefined ids are macros over variables that H5open sets, so these are functions.
const std::array<ElementRow, 8> kElements = {{
    {Element::u8, 1, [] { return H5T_STD_U8LE; }},
    {Element::u16, 2, [] { return H5T_STD_U16LE; }},
    {Element::u32, 4, [] { return H5T_STD_U32LE; }},
    {Element::u64, 8, [] { return H5T_STD_U64LE; }},
    {Element::i32, 4, [] { return H5T_STD_I32LE; }},
    {Element::i64, 8, [] { return H5T_STD_I64LE; }},
    {Element::f32, 4, [] { return H5T_IEEE_F32LE; }},
    {Element::f64, 8, [] { return H5T_IEEE_F64LE; }},
}};

const ElementRow& row_of(Element type) { return kElements[static_cast<size_t>(type)]; }

}  // namespace

int64_t width_of(Element type) { return row_of(type).width; }

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = std::exchange(other.id_, -1);
    closer_ = other.closer_;
  }
  return *this;
}

void Handle::reset() {
  if (id_ >= 0) closer_(id_);
  id_ = -1;
}

std::string library_error() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_DOWNWARD,
      [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
        if (entry->desc != nullptr && *entry->desc != '\0') *static_cast<std::string*>(out) = entry->desc;
        return 0;
      },
      &text);
  H5Eclear2(H5E_DEFAULT);
  // For a system error the library returns several lines: keep the system's text.
  constexpr std::string_view marker = "error message = '";
  if (const size_t begin = text.find(marker); begin != std::string::npos)
    text = text.substr(begin + marker.size(), text.find('\'', begin + marker.size()) - begin - marker.size());
  return text.empty() ? "no reason given" : text;
}

void prepare_library() {
  static const herr_t once = H5dont_atexit();
  (void)once;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Handle owned(hid_t id, Handle::Closer closer, const char* what) {
  if (id < 0) fail("h5", what, ": ", library_error());
  return Handle(id, closer);
}

void must(herr_t status, const char* what) {
  if (status < 0) fail("h5", what, ": ", library_error());
}

hid_t type_of(Element type) { return row_of(type).id(); }

std::optional<Element> element_of(hid_t type) {
  for (const ElementRow& row : kElements)
    if (H5Tequal(type, row.id()) > 0) return row.type;
  return std::nullopt;
}

}  // namespace mudd::h5
