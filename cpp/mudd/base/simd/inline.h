// Functions of the innermost loops: gcc would otherwise leave some of them out of line.
#pragma once

#define MUDD_INLINE inline __attribute__((always_inline))
