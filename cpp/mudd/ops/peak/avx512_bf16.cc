#include "mudd/ops/peak/dot-inl.h"
