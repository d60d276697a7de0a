// Token ids by position: ids of a file (token_file.h), or ids in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace mudd {

class TokenIds {
 public:
  virtual ~TokenIds() = default;

  virtual int64_t vocab_size() const = 0;

  // Set out[i] to the id of token first + i for i in [0, n). One caller at a time.
  virtual void read(int64_t first, int64_t n, int32_t* out) = 0;
};

class MemoryIds final : public TokenIds {
 public:
  // Error for an id outside [0, vocab_size).
  MemoryIds(std::vector<int32_t> ids, int64_t vocab_size);

  int64_t vocab_size() const override { return vocab_size_; }
  void read(int64_t first, int64_t n, int32_t* out) override;

 private:
  std::vector<int32_t> ids_;
  int64_t vocab_size_;
};

}  // namespace mudd
