/*
 * op_table_cpu.h - which functions of `cpu` are its operations, for float32 and for narrow types.
 */
#ifndef DP_KERNELS_CPU_OP_TABLE_CPU_H
#define DP_KERNELS_CPU_OP_TABLE_CPU_H

#include "kernels/ops.h"

extern const struct dp_ops dp_cpu_ops;

/* Replaces the float32 operations by those for a narrow type. */
void dp_mixed_ops(struct dp_ops *ops, enum dp_type type);

#endif
