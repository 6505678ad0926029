#include "kernels/cpu/ops_cpu.h"

/* Without oneDNN convolutions are the plain loops of `ref`: right, and slow. */
#if DP_HAVE_ONEDNN
#define CONV(name) .name = dp_cpu_##name,
#else
#define CONV(name) .name = dp_ref_##name,
#endif
#define REF(name) .name = dp_ref_##name,
#define CPU(name) .name = dp_cpu_##name,

const struct dp_ops dp_cpu_ops = {DP_OPS_FLAT(CPU) DP_OPS_SMALL(REF) DP_OPS_CODE(CPU)
                                      DP_OPS_FEW(REF) DP_OPS_CONV(CONV) DP_OPS_POOL(CPU)};
