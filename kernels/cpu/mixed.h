/*
 * mixed.h - the operations of `cpu` on narrow types.
 *
 * DP_OPS_MIXED compute in float32 what is stored narrow: mixed.c, mixed_arrays.c, and for
 * convolutions mixed_onednn.c. DP_OPS_BF16 are those for which oneDNN has arithmetic on bfloats
 * where the processor has it (AVX512_BF16): about twice as fast as float32 at the shapes of
 * models/{mlp,lenet}.cfg (one core, Zen 5), where the same through float32 is slower than float32.
 */
#ifndef DP_KERNELS_CPU_MIXED_H
#define DP_KERNELS_CPU_MIXED_H

#include <stdbool.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/device.h"

/* clang-format off */
#define DP_OPS_MIXED(X)                                                                   \
    X(bytes_load) X(relu_forward) X(relu_backward) X(gelu_forward) X(gelu_backward)       \
    X(add_forward) X(accumulate) X(dropout)                                               \
    X(dense_forward) X(dense_backward_data) X(dense_backward_weights) X(sum_rows)         \
    X(pool_forward) X(pool_backward)                                                      \
    X(norm_moments) X(norm_apply) X(norm_backward_sums) X(norm_backward_apply)            \
    X(softmax_loss)

#define DP_OPS_MIXED_CONV(X) X(conv_forward) X(conv_backward_data) X(conv_backward_weights)

#define DP_OPS_BF16(X)                                                                    \
    X(dense_prepare) X(dense_forward) X(dense_backward_data) X(dense_backward_weights)    \
    X(conv_prepare) DP_OPS_MIXED_CONV(X)
/* clang-format on */

#define X(name) DP_CHECKED DP_OP_TYPE(name) dp_cpu_mixed_##name;
DP_OPS_MIXED(X)
DP_OPS_MIXED_CONV(X)
#undef X

#define X(name) DP_CHECKED DP_OP_TYPE(name) dp_cpu_bf16_##name;
DP_OPS_BF16(X)
#undef X

/* Whether the processor and oneDNN compute with bfloats. */
bool dp_cpu_has_bf16(void);

/* The part of a stream's scratch that one call has not taken yet. */
struct dp_room {
    struct dp_stream *stream;
    float *next;
    size_t left;
};

struct dp_room dp_room_of(struct dp_stream *s);

/* Memory for `count` elements. Errors: DP_ERR_INTERNAL (reserve() was told of less). */
DP_CHECKED dp_status dp_room_take(struct dp_room *room, size_t count, float **out);

/* x [count], narrow, in float32; NULL stays NULL. Errors: as above. */
DP_CHECKED dp_status dp_room_widen(struct dp_room *room, const void *x, size_t count, float **out);

/* y [count] = values, rounded to the stream's type. */
DP_CHECKED dp_status dp_room_narrow(const struct dp_room *room, void *y, const float *values,
                                    size_t count);

#endif
