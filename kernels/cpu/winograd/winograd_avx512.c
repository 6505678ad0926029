#include "kernels/cpu/winograd/code.h"

#if DP_WINOGRAD_CODE

#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))
#define CODE dp_winograd_avx512
enum { LANES = 16, ROWS = 12, SUMS = 8 }; /* 24 and 16 vectors of sums, of 32 registers */

#include "kernels/cpu/winograd/loops.h"

#endif
