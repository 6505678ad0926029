/*
 * op_table_cpu.h - which functions of `cpu` are its operations, for float32 and for narrow types.
 */
#ifndef DP_KERNELS_CPU_OP_TABLE_CPU_H
#define DP_KERNELS_CPU_OP_TABLE_CPU_H

#include <stdbool.h>

#include "kernels/ops.h"

extern const struct dp_ops dp_cpu_ops;

/* Replaces the float32 operations by those for a narrow type. `own`: with the arithmetic of
 * bfloats, which the processor must have, if that is the type; else float32's. */
void dp_mixed_ops(struct dp_ops *ops, enum dp_type type, bool own);

#endif
