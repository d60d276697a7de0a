#include "mudd/kernels/peak/dot-inl.h"
