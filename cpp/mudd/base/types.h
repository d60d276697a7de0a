// Number types and tensor views shared by all folders of the core.
//
// Shape letters in names of all files:
//   B samples, T positions, R rows (B*T tokens), D model width, F feed-forward width,
//   H query heads, G key/value heads, K (in GEMMs) the summed axis, V vocabulary, S shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mudd {

// f16 (IEEE half) is a type of stored weights only: values and results of a graph are never f16.
enum class DType : uint8_t { f32, bf16, i32, f64, u8, f16 };

// A bfloat16 is the upper half of an fp32; it is converted to fp32 for arithmetic.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f32: return 4;
    case DType::bf16: return 2;
    case DType::i32: return 4;
    case DType::f64: return 8;
    case DType::u8: return 1;
    case DType::f16: return 2;
  }
  return 0;
}

const char* name_of(DType t);

// The packing of a stored matrix [rows, cols] as the right operand of a GEMM: plain sums over rows (y = x W),
// transposed sums over columns (dx = dy W^T, logits = h E^T).
enum class Pack : uint8_t { plain, transposed };

// The start of an array and its type, f32 or bf16; converts from a plain pointer. Always inlined because
// kernels of every level use it: no copy may come from a file built with a level's instructions.
#define MUDD_ALWAYS_INLINE [[gnu::always_inline]]
struct Cells {
  void* data = nullptr;
  DType type = DType::f32;

  Cells() = default;
  MUDD_ALWAYS_INLINE Cells(void* p, DType t) : data(p), type(t) {}
  MUDD_ALWAYS_INLINE Cells(float* p) : data(p) {}
  MUDD_ALWAYS_INLINE Cells(bf16* p) : data(p), type(DType::bf16) {}
  MUDD_ALWAYS_INLINE explicit operator bool() const { return data != nullptr; }
  MUDD_ALWAYS_INLINE float* f32() const { return static_cast<float*>(data); }
  MUDD_ALWAYS_INLINE bf16* b16() const { return static_cast<bf16*>(data); }
  MUDD_ALWAYS_INLINE f16* h16() const { return static_cast<f16*>(data); }
  // Return the cells n elements later.
  MUDD_ALWAYS_INLINE Cells operator+(int64_t n) const {
    return {static_cast<char*>(data) + (type == DType::f32 ? 4 : 2) * n, type};
  }
  MUDD_ALWAYS_INLINE Cells& operator+=(int64_t n) { return *this = *this + n; }
};

struct ConstCells {
  const void* data = nullptr;
  DType type = DType::f32;

  ConstCells() = default;
  MUDD_ALWAYS_INLINE ConstCells(const void* p, DType t) : data(p), type(t) {}
  MUDD_ALWAYS_INLINE ConstCells(const float* p) : data(p) {}
  MUDD_ALWAYS_INLINE ConstCells(const bf16* p) : data(p), type(DType::bf16) {}
  MUDD_ALWAYS_INLINE ConstCells(Cells c) : data(c.data), type(c.type) {}
  MUDD_ALWAYS_INLINE explicit operator bool() const { return data != nullptr; }
  MUDD_ALWAYS_INLINE const float* f32() const { return static_cast<const float*>(data); }
  MUDD_ALWAYS_INLINE const bf16* b16() const { return static_cast<const bf16*>(data); }
  MUDD_ALWAYS_INLINE const f16* h16() const { return static_cast<const f16*>(data); }
  MUDD_ALWAYS_INLINE ConstCells operator+(int64_t n) const {
    return {static_cast<const char*>(data) + (type == DType::f32 ? 4 : 2) * n, type};
  }
  MUDD_ALWAYS_INLINE ConstCells& operator+=(int64_t n) { return *this = *this + n; }
};

// The shape and dtype of a value without memory.
struct TensorSpec {
  std::vector<int64_t> shape;
  DType dtype = DType::f32;

  int64_t size() const;                                               // number of elements
  int64_t cols() const { return shape.empty() ? 1 : shape.back(); }   // last axis
  int64_t rows() const { return cols() == 0 ? 0 : size() / cols(); }  // all other axes, flattened
  int64_t bytes() const { return size() * size_of(dtype); }
  std::string text() const;  // "f32[2, 8, 64]"
};

// Return true if an op can read a value as an activation: fp32, or bf16 in a graph that stores bf16.
inline bool is_real(const TensorSpec& s) { return s.dtype == DType::f32 || s.dtype == DType::bf16; }

// A tensor in ops: all axes but the last flattened into rows. Never owns its memory. `stride` counts elements
// between rows and may exceed `cols` (if the value is inside a larger slab).
struct Tensor {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  DType dtype = DType::f32;

  explicit operator bool() const { return data != nullptr; }
  float* f32() const { return static_cast<float*>(data); }
  int32_t* i32() const { return static_cast<int32_t*>(data); }
  Cells cells() const { return {data, dtype}; }
};

}  // namespace mudd
