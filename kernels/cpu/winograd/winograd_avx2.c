#include "kernels/cpu/winograd/code.h"

#if DP_WINOGRAD_CODE

#define TARGET __attribute__((target("avx2,fma")))
#define CODE dp_winograd_avx2
enum { LANES = 8, ROWS = 6, SUMS = 4 }; /* 12 and 8 vectors of sums, of 16 registers */

#include "kernels/cpu/winograd/loops.h"

#endif
