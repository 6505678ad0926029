/*
 * ops_cpu.h - the operations of the device `cpu`: OpenBLAS, oneDNN, and vectorised loops.
 *
 * kernels/ops.h documents each; prototypes are generated from the slots of struct dp_ops.
 */
#ifndef DP_KERNELS_CPU_OPS_CPU_H
#define DP_KERNELS_CPU_OPS_CPU_H

#include "base/status.h"
#include "kernels/ops.h"
#include "kernels/ref/ops_ref.h"

#define X(name) DP_CHECKED DP_OP_TYPE(name) dp_cpu_##name;
DP_OPS_LIST(X)
X(dense_forward_part)
#undef X

#endif
