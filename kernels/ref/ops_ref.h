/*
 * ops_ref.h - the operations of the device `ref`: plain C, one loop for each formula.
 *
 * They are the reference of the tests and the start of every new device. kernels/ops.h documents
 * each; a prototype is generated from the slot of that name in struct dp_ops, so the two cannot
 * differ. Sums are computed in double.
 */
#ifndef DP_KERNELS_REF_OPS_REF_H
#define DP_KERNELS_REF_OPS_REF_H

#include "base/status.h"
#include "kernels/ops.h"

/* clang-format off */

/* Every operation but those below. */
#define DP_OPS_FLAT(X)                                                                 \
    X(zero) X(copy) X(add) X(scale) X(blend) X(sum_tree) X(block_squares)              \
    X(put_columns) X(take_columns)                                                     \
    X(bytes_load) X(floats_load)                                                       \
    X(dense_prepare) X(dense_forward) X(dense_backward_data) X(dense_backward_weights) \
    X(sum_rows)                                                                        \
    X(relu_forward) X(relu_backward) X(gelu_forward) X(gelu_backward)                  \
    X(silu_forward) X(silu_backward) X(leaky_forward) X(leaky_backward)                \
    X(add_forward) X(accumulate) X(dropout)                                            \
    X(norm_moments) X(norm_apply) X(norm_backward_sums) X(norm_backward_apply)         \
    X(group_norm_forward) X(group_norm_backward)                                       \
    X(softmax_loss) X(output_loss) X(count_top) X(sgd) X(adamw) X(lamb_moments) X(lamb)

/* Codes of compressors. */
#define DP_OPS_CODE(X)                                                                 \
    X(narrow) X(widen) X(quantize) X(dequantize) X(take_signs) X(put_signs)            \
    X(scale_add) X(take_largest) X(lowrank_split) X(orthogonalize)

/* A CPU needs no more than the plain loop of ref for these: they touch few numbers. */
#define DP_OPS_FEW(X) X(sum_all) X(sample) X(take_at) X(add_at)

/* Some hundred numbers, or none: every device of the host uses the plain loop. */
#define DP_OPS_SMALL(X) \
    X(norm_mean) X(norm_variance) X(norm_share) X(norm_grads) X(norm_widen) X(trust_ratios)

#define DP_OPS_CONV(X) \
    X(conv_prepare) X(conv_forward) X(conv_backward_data) X(conv_backward_weights)

#define DP_OPS_POOL(X) X(pool_prepare) X(pool_forward) X(pool_backward)

/* clang-format on */

#define DP_OPS_LIST(X) \
    DP_OPS_FLAT(X) DP_OPS_SMALL(X) DP_OPS_CODE(X) DP_OPS_FEW(X) DP_OPS_CONV(X) DP_OPS_POOL(X)

/* The type of the function in a slot of struct dp_ops. */
#define DP_OP_TYPE(name) __typeof__(*((struct dp_ops *)0)->name)

#define X(name) DP_CHECKED DP_OP_TYPE(name) dp_ref_##name;
DP_OPS_LIST(X)
#undef X

/* orthogonalize: a column of length 1 in the space of the previous ones leaves only float32
 * roundings, which are shorter than this. */
#define DP_ORTHO_NOTHING 1e-5

/* Makes the length of each column of y [rows, cols] 1; one of length 0 stays 0. */
void dp_ref_unit_columns(float *y, size_t rows, size_t cols);

/* Replaces column k of y [rows, cols] by a fixed random one of length 1, orthogonal to the k < rows
 * orthonormal columns before it. */
void dp_ref_random_column(float *y, size_t rows, size_t cols, size_t k);

extern const struct dp_ops dp_ref_ops;

#endif
