// The JSON of a safetensors header, without a file around it, and the quoting of names.
#include "fuzz.h"
#include "mudd/io/json_reader.h"
#include "mudd/io/safetensors_header.h"

namespace fuzz {
namespace {

using namespace mudd::io;

void run(const Bytes& input, const std::string&) {
  const std::string text(input.begin(), input.end()), file = "header";
  const SafetensorsHeader header = parse_safetensors_header(text, file, 8);
  std::string again = "{\"__metadata__\":{";
  for (const auto& [key, value] : header.metadata) {
    require(valid_utf8(key) && valid_utf8(value), "metadata are UTF-8");
    if (again.back() != '{') again += ",";
    again += json_quoted(key) + ":" + json_quoted(value);
  }
  again += "}}";
  require(parse_safetensors_header(again, file, 8).metadata == header.metadata, "quoted text reads back the same");
  for (const TensorInfo& tensor : header.tensors) {
    require(valid_utf8(tensor.name) && tensor.name.size() <= kMaxNameBytes, "names are UTF-8 of at most 1 KiB");
    require(find_dtype(tensor.dtype) != nullptr, "the dtype is a known one");
    require(tensor.shape.size() <= kMaxDims, "shapes have at most 64 numbers");
  }
}

}  // namespace

const Target target = {"header",
                       {"{",
                        "}",
                        "[",
                        "]",
                        "\"",
                        ":",
                        ",",
                        "\\u",
                        "\\ud83d\\ude00",
                        "\\ud800",
                        "\\n",
                        "\\\\",
                        "__metadata__",
                        "\"dtype\":",
                        "\"shape\":",
                        "\"data_offsets\":",
                        "\"F32\"",
                        "\"BF16\"",
                        "{}",
                        "[]",
                        "[0]",
                        "\xc3\xa9",
                        "\xff",
                        " "},
                       run,
                       nullptr};

}  // namespace fuzz
