// oneDNN's bf16 matmul, created once and run many times.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "mudd/base/types.h"

namespace mudd {

class OneDnnBf16 {
 public:
  // c[m, n] = a[m, k] b[k, n], a and b bf16, stored the other way round where `turned`; c bf16 or f32. packed: b
  // is brought into the layout that oneDNN likes best, once, before it runs.
  OneDnnBf16(int64_t m, int64_t n, int64_t k, const bf16* a, bool a_turned, const bf16* b, bool b_turned,
             bool packed, void* c, bool c_half)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dt = dnnl::memory::data_type;
    using tag = dnnl::memory::format_tag;
    const dnnl::memory::desc at({m, k}, dt::bf16, a_turned ? tag::ba : tag::ab);
    const dnnl::memory::desc bt({k, n}, dt::bf16, b_turned ? tag::ba : tag::ab);
    const dnnl::memory::desc any({k, n}, dt::bf16, tag::any), ct({m, n}, c_half ? dt::bf16 : dt::f32, tag::ab);
    const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(at, packed ? any : bt, ct), engine_);
    dnnl::memory given(bt, engine_, const_cast<bf16*>(b));
    b_ = given;
    if (plan.weights_desc() != bt) {
      b_ = dnnl::memory(plan.weights_desc(), engine_);
      dnnl::reorder(given, b_).execute(stream_, given, b_);
      stream_.wait();
    }
    a_ = dnnl::memory(at, engine_, const_cast<bf16*>(a));
    c_ = dnnl::memory(ct, engine_, c);
    matmul_ = dnnl::matmul(plan);
  }

  void run() {
    matmul_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b_}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::memory a_, b_, c_;
  dnnl::matmul matmul_;
};

}  // namespace mudd
