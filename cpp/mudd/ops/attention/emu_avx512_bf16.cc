// attention_bf16 by the emulation of vdpbf16ps.
#include "mudd/ops/attention/dot-inl.h"
