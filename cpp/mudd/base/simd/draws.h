// Sixteen draws of dropout at once, in loops that compilers vectorize at every level.
#pragma once

#include "mudd/base/dropout.h"

namespace mudd::MUDD_ISA {
namespace {

constexpr int kDraws = 16;

struct Draws {
  uint32_t position[kDraws], block[kDraws];  // lane by lane; block: element / 4
  float factor[4][kDraws];                   // of the elements 4 block + 0 .. 3

  void draw(const Dropout& d, uint32_t sample) {
    uint32_t x[4][kDraws];
    for (int i = 0; i < kDraws; ++i) x[0][i] = d.step, x[1][i] = sample, x[2][i] = position[i], x[3][i] = block[i];
    PhiloxKey key = d.key;
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < kDraws; ++i) {
        const uint64_t p0 = uint64_t{0xD2511F53u} * x[0][i], p1 = uint64_t{0xCD9E8D57u} * x[2][i];
        const uint32_t second = x[1][i], last = x[3][i];
        x[0][i] = static_cast<uint32_t>(p1 >> 32) ^ second ^ key.k0;
        x[1][i] = static_cast<uint32_t>(p1);
        x[2][i] = static_cast<uint32_t>(p0 >> 32) ^ last ^ key.k1;
        x[3][i] = static_cast<uint32_t>(p0);
      }
      key.k0 += 0x9E3779B9u;
      key.k1 += 0xBB67AE85u;
    }
    for (int w = 0; w < 4; ++w)
      for (int i = 0; i < kDraws; ++i) factor[w][i] = x[w][i] < d.threshold ? 0.0f : d.kept;
  }
};

}  // namespace
}  // namespace mudd::MUDD_ISA
