// A safetensors file: header length, header, and the ranges of the tensors.
#include <algorithm>
#include <limits>

#include "fuzz.h"
#include "mudd/io/file_ops.h"
#include "mudd/io/safetensors.h"
#include "mudd/io/safetensors_header.h"

namespace fuzz {
namespace {

using namespace mudd::io;

void run(const Bytes& input, const std::string& scratch) {
  write_file(scratch, input);
  const SafetensorsFile file(posix_files(), scratch);
  std::uint64_t next = file.data_start();
  std::vector<TensorSource> sources;
  for (const TensorInfo& tensor : file.tensors()) {
    require(tensor.begin == next && tensor.end >= next && tensor.end <= input.size(), "ranges follow one another");
    next = tensor.end;
    Bytes data(tensor.end - tensor.begin);
    file.reader().read(tensor.begin, data.data(), data.size(), "the tensor");
    require(std::equal(data.begin(), data.end(), input.begin() + static_cast<std::ptrdiff_t>(tensor.begin)),
            "the bytes of a tensor are those of the file");
    if (!tensor.name.empty())
      sources.push_back({tensor.name, std::string(tensor.dtype), tensor.shape, nullptr, data.size()});
  }
  require(next == input.size(), "the tensors end with the file");
  const std::string header = safetensors_header(sources, file.metadata());
  const SafetensorsHeader again = parse_safetensors_header(std::string_view(header).substr(8), scratch, 8);
  require(again.tensors.size() == sources.size(), "a header that is written again has all tensors");
}

// The length field says where the last brace is; the data is as long as the last range says, if it is short.
void repair(Bytes* input) {
  const auto brace = std::find(input->rbegin(), input->rend(), '}');
  const auto end = static_cast<std::size_t>(input->rend() - brace);
  if (end <= 8) return;
  for (std::size_t i = 0; i < 8; ++i) (*input)[i] = static_cast<std::uint8_t>((std::uint64_t{end} - 8) >> (8 * i));
  try {
    const std::string text(input->begin() + 8, input->begin() + static_cast<std::ptrdiff_t>(end)), file = "input";
    std::uint64_t last = 0;
    for (const TensorInfo& tensor : parse_safetensors_header(text, file, 8).tensors)
      last = std::max(last, tensor.end);
    if (last < 4096) input->resize(end + last, 7);
  } catch (const mudd::FormatError&) {
  }
}

}  // namespace

const Target target = {"safetensors",
                       {"{",
                        "}",
                        "[",
                        "]",
                        "\"",
                        ":",
                        ",",
                        "__metadata__",
                        "\"dtype\":\"",
                        "\"shape\":[",
                        "\"data_offsets\":[",
                        "F32",
                        "BF16",
                        "U8",
                        "BOOL",
                        "F8_E4M3",
                        "C128",
                        "I64",
                        "[]",
                        "[0,0]",
                        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                        "\\u0061",
                        " "},
                       run,
                       repair};

}  // namespace fuzz
