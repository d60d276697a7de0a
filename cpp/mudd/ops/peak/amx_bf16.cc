#include "mudd/ops/peak/tiles-inl.h"
