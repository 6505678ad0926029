/*
 * mixed.h - the operations of `cpu` on narrow types.
 *
 * DP_OPS_MIXED store narrow types and compute in float32: mixed.c, mixed_arrays.c, and for
 * convolutions mixed_onednn.c. DP_OPS_BFLOAT replace those of bfloat16 that need no copy in
 * float32, since their loops convert in registers: bfloat.c, norm.c, columns.c, pool.c; they give
 * the same bits. DP_OPS_BF16 are the operations for which oneDNN has bfloat16
 * arithmetic where the processor has it (AVX512_BF16). These are about twice as fast as float32 at
 * the shapes of models/{mlp,lenet}.cfg on one core of Zen 5, but half as fast on Emerald Rapids
 * without its tiles (benchmarks/bench_peak). Computing in float32 costs the conversions.
 */
#ifndef DP_KERNELS_CPU_MIXED_H
#define DP_KERNELS_CPU_MIXED_H

#include <stdbool.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/device.h"

/* clang-format off */
#define DP_OPS_MIXED(X)                                                                   \
    X(bytes_load) X(floats_load) X(relu_forward) X(relu_backward) X(gelu_forward)         \
    X(silu_forward) X(silu_backward) X(leaky_forward) X(leaky_backward)                   \
    X(gelu_backward) X(add_forward) X(accumulate) X(dropout)                              \
    X(dense_forward) X(dense_backward_data) X(dense_backward_weights) X(sum_rows)         \
    X(pool_forward) X(pool_backward)                                                      \
    X(norm_moments) X(norm_apply) X(norm_backward_sums) X(norm_backward_apply)            \
    X(group_norm_forward) X(group_norm_backward)                                          \
    X(softmax_loss) X(output_loss) X(count_top)

#define DP_OPS_BFLOAT(X)                                                                  \
    X(relu_forward) X(relu_backward) X(add_forward) X(accumulate) X(sum_rows)             \
    X(pool_forward) X(pool_backward)                                                      \
    X(norm_moments) X(norm_apply) X(norm_backward_sums) X(norm_backward_apply)

#define DP_OPS_MIXED_CONV(X) X(conv_forward) X(conv_backward_data) X(conv_backward_weights)

#define DP_OPS_BF16(X)                                                                    \
    X(dense_prepare) X(dense_forward) X(dense_backward_data) X(dense_backward_weights)    \
    X(conv_prepare) DP_OPS_MIXED_CONV(X)
/* clang-format on */

#define X(name) DP_CHECKED DP_OP_TYPE(name) dp_cpu_mixed_##name;
DP_OPS_MIXED(X)
DP_OPS_MIXED_CONV(X)
#undef X

#define X(name) DP_CHECKED DP_OP_TYPE(name) dp_cpu_bfloat_##name;
DP_OPS_BFLOAT(X)
#undef X

#define X(name) DP_CHECKED DP_OP_TYPE(name) dp_cpu_bf16_##name;
DP_OPS_BF16(X)
#undef X

/* Whether the processor and oneDNN have bfloat16 arithmetic, and whether it is also faster than
 * float32's: the same on all processors of a kind. */
bool dp_cpu_has_bf16(void);
bool dp_cpu_prefers_bf16(void);

/* The part of a stream's scratch that a call has not used yet. */
struct dp_scratch {
    struct dp_stream *stream;
    float *next;
    size_t left;
};

struct dp_scratch dp_scratch_of(struct dp_stream *s);

/* Takes memory for `count` elements. Errors: DP_ERR_INTERNAL (reserve() was called with less). */
DP_CHECKED dp_status dp_scratch_take(struct dp_scratch *scratch, size_t count, float **out);

/* Converts x [count] from narrow to float32; NULL stays NULL. Errors: as above. */
DP_CHECKED dp_status dp_scratch_widen(struct dp_scratch *scratch, const void *x, size_t count,
                                      float **out);

/* y [count] = values, rounded to the stream's type. */
DP_CHECKED dp_status dp_scratch_narrow(const struct dp_scratch *scratch, void *y,
                                       const float *values, size_t count);

#endif
