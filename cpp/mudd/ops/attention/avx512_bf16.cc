// attention_bf16 by vdpbf16ps.
#include "mudd/ops/attention/dot-inl.h"
