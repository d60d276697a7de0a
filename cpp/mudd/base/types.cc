#include "mudd/base/types.h"

namespace mudd {

const char* name_of(DType t) {
  switch (t) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::i32: return "int32";
    case DType::f64: return "float64";
    case DType::u8: return "uint8";
    case DType::f16: return "float16";
  }
  return "unknown";
}

int64_t TensorSpec::size() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::string TensorSpec::text() const {
  std::string s = std::string(name_of(dtype)) + "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

}  // namespace mudd
