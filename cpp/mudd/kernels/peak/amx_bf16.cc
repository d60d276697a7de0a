#include "mudd/kernels/peak/tiles-inl.h"
