/*
 * ops.h - the computations of every device, and their contracts.
 *
 * Operations are queued on a stream and may return before they are done; on the CPU they are done
 * when they return. The status reports only bad arguments and failed launches. Arrays are row-major
 * and densely packed, are in the memory of the stream's device, and must not overlap unless the
 * comment says so. `void *` is the stream's compute type (float32, bfloat16 or half; results in
 * narrow types are rounded once, to the nearest, ties to even), `float *` is float32. Shapes are
 * written [rows, cols]; images are [rows, height, width, channels]. A GPU may round sums in narrow
 * types once more before it adds a bias.
 *
 * Every operation accepts rows or count 0. Outputs are then empty; outputs that are sums over rows
 * become 0 (with keep 0) or are unchanged (with keep 1).
 *
 * `keep` is 0 or 1: out = keep * out + result. With keep 0 the old content is not read (it may be
 * NaN).
 *
 * Only the *_prepare operations allocate. They are called before the first step with every row
 * count that can occur; using an unprepared row count is DP_ERR_INTERNAL. Preparing the same thing
 * twice costs nothing. A NULL slot means that a device lacks an operation.
 */
#ifndef DP_KERNELS_OPS_H
#define DP_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/flat.h"
#include "kernels/op_args.h"

struct dp_stream;

struct dp_ops {
    /* ---- memory ---- */

    dp_status (*zero)(struct dp_stream *s, void *y, size_t bytes);
    dp_status (*copy)(struct dp_stream *s, void *y, const void *x, size_t bytes);

    /* y += x; [count] */
    dp_status (*add)(struct dp_stream *s, float *y, const float *x, size_t count);

    /* y = factor x; [count]; y may be x. */
    dp_status (*scale)(struct dp_stream *s, float *y, const float *x, float factor, size_t count);

    /* y = (1 - weight) y + weight x; [count]: running averages. */
    dp_status (*blend)(struct dp_stream *s, float *y, const float *x, float weight, size_t count);

    /*
     * sum_tree - the sum of `n` arrays in the order of the one binary tree (ARCHITECTURE.md):
     * ((0+1)+(2+3))+..., where the left part is the largest power of two below n.
     *
     *   ys  out  [outs] arrays of [count]: all get the same sum; any of them may be one of xs
     *   xs  in   [n] arrays of [count]
     */
    dp_status (*sum_tree)(struct dp_stream *s, float *const *ys, int outs, const float *const *xs,
                          int n, size_t count);

    /*
     * block_squares - for clipping by norm: out[i] = sum over block i of x squared; blocks are of
     * DP_BLOCK elements, so the result does not depend on how the array is cut into ranges.
     *
     *   out  out  [ceil(count / DP_BLOCK)]
     *   x    in   [count]
     */
    dp_status (*block_squares)(struct dp_stream *s, float *out, const float *x, size_t count);

    /* out = the sum of x [count], in double, in an order that depends on `count` alone. */
    dp_status (*sum_all)(struct dp_stream *s, double *out, const float *x, size_t count);

    /* Bytes of images to the compute type: y[i] = x[i] * scale[i % channels] + shift[...].
     * y, x [count]; scale, shift [channels]; count is a multiple of channels. */
    dp_status (*bytes_load)(struct dp_stream *s, void *y, const uint8_t *x, const float *scale,
                            const float *shift, size_t channels, size_t count);

    /* The same of float32. */
    dp_status (*floats_load)(struct dp_stream *s, void *y, const float *x, const float *scale,
                             const float *shift, size_t channels, size_t count);

    /* ---- dense ---- */

    dp_status (*dense_prepare)(struct dp_stream *s, size_t rows, size_t in, size_t out,
                               unsigned uses);
    /* y = act(x w' + b): y [rows, out], x [rows, in], w [out, in], b [out] or NULL. */
    dp_status (*dense_forward)(struct dp_stream *s, void *y, const void *x, const void *w,
                               const void *b, size_t rows, size_t in, size_t out,
                               enum dp_activation act);

    /* Only the columns `part` of y; y, w and b are the whole arrays. NULL: not on this device, or
     * not for this type. */
    dp_status (*dense_forward_part)(struct dp_stream *s, void *y, const void *x, const void *w,
                                    const void *b, size_t rows, size_t in, size_t out,
                                    struct dp_range part, enum dp_activation act);

    /* dx = dy w: dx [rows, in], dy [rows, out], w [out, in]. */
    dp_status (*dense_backward_data)(struct dp_stream *s, void *dx, const void *dy, const void *w,
                                     size_t rows, size_t in, size_t out);

    /* dw = keep dw + dy' x: dw [out, in] float32. */
    dp_status (*dense_backward_weights)(struct dp_stream *s, float *dw, const void *dy,
                                        const void *x, size_t rows, size_t in, size_t out,
                                        float keep);

    /* The same, and also sum_rows() of dy [rows, out] to db, in one pass over dy. NULL: not on this
     * device; call both. */
    dp_status (*dense_backward_both)(struct dp_stream *s, float *dw, float *db, const void *dy,
                                     const void *x, size_t rows, size_t in, size_t out, float keep);

    /* relu_backward, then dense_backward_both of its result, in the form that was measured to be
     * faster if the layer was prepared with DP_DENSE_RELU and DP_DENSE_BIAS. NULL: not on this
     * device; call both. */
    dp_status (*dense_backward_relu)(struct dp_stream *s, const struct dp_dense_backward *b);

    /* Column sums, the gradient of a bias: db = keep db + sum over rows of dy [rows, cols]. */
    dp_status (*sum_rows)(struct dp_stream *s, float *db, const void *dy, size_t rows, size_t cols,
                          float keep);

    /* ---- elementwise; all [count]; dx may be dy, y may be x ---- */

    dp_status (*relu_forward)(struct dp_stream *s, void *y, const void *x, size_t count);
    /* dx = y > 0 ? dy : 0, where y is what forward wrote. */
    dp_status (*relu_backward)(struct dp_stream *s, void *dx, const void *dy, const void *y,
                               size_t count);
    /* Exact, by erf: Hendrycks and Gimpel, "Gaussian error linear units", arXiv:1606.08415. */
    dp_status (*gelu_forward)(struct dp_stream *s, void *y, const void *x, size_t count);
    dp_status (*gelu_backward)(struct dp_stream *s, void *dx, const void *dy, const void *x,
                               size_t count);
    /* y = x / (1 + e^-x): Elfwing, Uchibe and Doya, arXiv:1702.03118. */
    dp_status (*silu_forward)(struct dp_stream *s, void *y, const void *x, size_t count);
    dp_status (*silu_backward)(struct dp_stream *s, void *dx, const void *dy, const void *x,
                               size_t count);
    /* y = x > 0 ? x : slope x, and dx = x > 0 ? dy : slope dy. */
    dp_status (*leaky_forward)(struct dp_stream *s, void *y, const void *x, float slope,
                               size_t count);
    dp_status (*leaky_backward)(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                float slope, size_t count);
    /* y = act(a + b); y may be a or b. */
    dp_status (*add_forward)(struct dp_stream *s, void *y, const void *a, const void *b,
                             size_t count, enum dp_activation act);
    /* dx += dy in the compute type: where two branches of a residual join. */
    dp_status (*accumulate)(struct dp_stream *s, void *dx, const void *dy, size_t count);

    /* y [rows, width] = x [rows, cols] in columns [at, at + cols), and 0 elsewhere; and x = those
     * columns of y: where arrays are put beside each other. y and x in the compute type. */
    dp_status (*put_columns)(struct dp_stream *s, void *y, const void *x, size_t rows,
                             const struct dp_columns *columns);
    dp_status (*take_columns)(struct dp_stream *s, void *x, const void *y, size_t rows,
                              const struct dp_columns *columns);

    /* The same in forward and backward: y = x / (1 - rate) where kept, else 0. Element i is kept
     * when dp_random_unit(dp_random_u32(seed, what, step_params->step, first + i)) >= rate. Source:
     * Srivastava et al., "Dropout", JMLR 15 (2014). */
    dp_status (*dropout)(struct dp_stream *s, void *y, const void *x, size_t count,
                         const struct dp_dropout *dropout, uint64_t first,
                         const struct dp_step_params *step_params);

    /* ---- convolution; weights [out_c, kernel_h, kernel_w, in_c / groups] ---- */

    dp_status (*conv_prepare)(struct dp_stream *s, const struct dp_window *w, size_t rows,
                              unsigned uses);
    dp_status (*conv_forward)(struct dp_stream *s, void *y, const void *x, const void *weights,
                              const void *bias, const struct dp_window *w, size_t rows,
                              enum dp_activation act);
    dp_status (*conv_backward_data)(struct dp_stream *s, void *dx, const void *dy,
                                    const void *weights, const struct dp_window *w, size_t rows);
    /* db may be NULL. dw, db: out = keep out + result. */
    dp_status (*conv_backward_weights)(struct dp_stream *s, float *dw, float *db, const void *dy,
                                       const void *x, const struct dp_window *w, size_t rows,
                                       float keep);

    /* ---- pools; the padding of a maximum is minus infinity ---- */

    dp_status (*pool_prepare)(struct dp_stream *s, const struct dp_window *w, size_t rows,
                              enum dp_pool_kind kind, bool training);
    /* which: [rows, out_h, out_w, out_c] bytes, opaque, kept for backward by DP_POOL_MAX; NULL
     * outside of training. The first of equal values counts as the maximum. Kernels of more than
     * 255 elements are refused (DP_ERR_ARG) for DP_POOL_MAX. */
    dp_status (*pool_forward)(struct dp_stream *s, void *y, uint8_t *which, const void *x,
                              const struct dp_window *w, size_t rows, enum dp_pool_kind kind);
    dp_status (*pool_backward)(struct dp_stream *s, void *dx, const void *dy, const uint8_t *which,
                               const struct dp_window *w, size_t rows, enum dp_pool_kind kind);

    /* ---- batch normalisation: y = act((x - mean) / sqrt(var + eps) * gamma + beta) ----
     * Source: Ioffe and Szegedy, arXiv:1502.03167. mean, var, gamma, beta: [channels] float32;
     * var is the biased variance. Each pass over a large array costs as much as reading it, so
     * statistics are one pass. */

    /* Statistics of x. `moments` already holds `before` elements per channel (0: none; it is not
     * read). moments [2, channels] double: mean, sum of (x - mean)^2. */
    dp_status (*norm_moments)(struct dp_stream *s, double *moments, size_t before, const void *x,
                              const struct dp_norm *norm);
    /* mean = weight * the means in moments: this pass's share of the mean of all that is normalised
     * together. mean [channels]. */
    dp_status (*norm_mean)(struct dp_stream *s, float *mean, const double *moments, double weight,
                           size_t channels);
    /* var = each * (sum of squares about `mean`) of this pass's n elements per channel, divided by
     * the number of all elements. var [channels]. */
    dp_status (*norm_variance)(struct dp_stream *s, float *var, const double *moments,
                               const float *mean, double n, double each, size_t channels);
    /* y = keep y + rows per_sample (factor x): this pass's share of the batch's statistics. */
    dp_status (*norm_share)(struct dp_stream *s, float *y, const float *x, size_t rows,
                            float factor, const struct dp_step_params *step_params, size_t count,
                            float keep);
    /* From the sums below: shared [2, channels] = sums; dbeta = keep dbeta + the first half, dgamma
     * = keep dgamma + the second. */
    dp_status (*norm_grads)(struct dp_stream *s, float *dgamma, float *dbeta, float *shared,
                            const double *sums, size_t channels, float keep);
    /* y = x; [count]: converts sums over ranks back to double. */
    dp_status (*norm_widen)(struct dp_stream *s, double *y, const float *x, size_t count);

    /* y, with given statistics. `add`, if not NULL, is added before act: where a residual's
     * branches join. In float32 it has the bits of add_forward after norm_apply. y may be x or
     * add. Only devices that have norm_backward write norm->signs. */
    dp_status (*norm_apply)(struct dp_stream *s, void *y, const void *x, const void *add,
                            const float *mean, const float *var, const float *gamma,
                            const float *beta, const struct dp_norm *norm);
    /* sums [2, channels] double: keep sums + the sum of dy, and of dy (x - mean) / sqrt(var + eps).
     * With DP_ACT_RELU dy is masked by y > 0; y is recomputed from x in the same operations, so it
     * is equal to the bit. The sums are the gradients of beta and gamma. */
    dp_status (*norm_backward_sums)(struct dp_stream *s, double *sums, const void *dy,
                                    const void *x, const float *mean, const float *var,
                                    const float *gamma, const float *beta,
                                    const struct dp_norm *norm, float keep);
    /* dx through mean and variance, from those sums over the `total` elements per channel that were
     * normalised together. dx may be dy. */
    dp_status (*norm_backward_apply)(struct dp_stream *s, void *dx, const void *dy, const void *x,
                                     const float *mean, const float *var, const float *gamma,
                                     const float *beta, const double *sums, double total,
                                     const struct dp_norm *norm);

    /* norm_moments, norm_mean and norm_variance of elements that are normalised alone, with what is
     * made of them in a training step: the same bits in fewer launches. NULL: not on this
     * device. */
    dp_status (*norm_statistics)(struct dp_stream *s, const struct dp_norm_statistics *to,
                                 const void *x, const struct dp_norm *norm);
    /* norm_backward_sums and norm_grads of elements that are normalised alone, likewise. With g
     * they belong to a join, and the gradient is g = dy + dy2, rounded, where y > 0: add_forward
     * (if there is a dy2), relu_backward (if there is a y) and the sums (without act) in one pass;
     * g may be dy or dy2. NULL: not on this device. */
    dp_status (*norm_backward)(struct dp_stream *s, const struct dp_norm_backward *b,
                               const struct dp_norm *norm);

    /* ---- normalisation of groups: y = (x - mean) / sqrt(var + eps) gamma + beta ----
     * mean and biased variance of a group; gamma, beta [channels] in the compute type; saved
     * [rows, groups, 2] float32: mean, 1 / sqrt(var + eps), for backward; NULL outside of
     * training. Sources: Wu and He, arXiv:1803.08494; one group of one place: Ba, Kiros and
     * Hinton, arXiv:1607.06450. */

    dp_status (*group_norm_forward)(struct dp_stream *s, void *y, float *saved, const void *x,
                                    const void *gamma, const void *beta,
                                    const struct dp_group_norm *norm);
    /* dx may be dy, or NULL: not needed. dgamma, dbeta: out = keep out + result. */
    dp_status (*group_norm_backward)(struct dp_stream *s, void *dx, float *dgamma, float *dbeta,
                                     const void *dy, const void *x, const void *gamma,
                                     const float *saved, const struct dp_group_norm *norm,
                                     float keep);

    /* ---- loss ---- */

    /*
     * softmax_loss - softmax cross-entropy over integer labels, and its gradient.
     *
     *   dx       out  [rows, classes]  (softmax(x) - onehot) * scale; NULL: not needed; may be x
     *   loss     out  [1]  keep loss + scale * sum of -log softmax(x)[label]
     *   correct  out  [1]  keep correct + rows whose largest logit (first of equals) is the label
     *   labels   in   [rows], each < classes
     *   scale    in   [1], device memory: 1 / rows of the global batch (step_params->per_sample)
     */
    dp_status (*softmax_loss)(struct dp_stream *s, void *dx, float *loss, float *correct,
                              const void *x, const int32_t *labels, size_t rows, size_t classes,
                              const float *scale, float keep);

    /*
     * output_loss - a loss of each output by itself, and its gradient. A row's loss is the mean
     * over its outputs.
     *
     *   kind     in   of *how. DP_LOSS_SIGMOID: -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)),
     *                 computed as max(x, 0) - x t + log(1 + e^-|x|). DP_LOSS_SQUARE: (x - t)^2
     *   dx       out  [rows, outputs]  the gradient, times scale; NULL: not needed; may be x
     *   loss     out  [1]  keep loss + scale * the sum of the rows' losses
     *   score    out  [1]  keep score + a sum over rows. DP_LOSS_SQUARE: of the mean of |x - t|.
     *                 DP_LOSS_SIGMOID: of the share of outputs where x > 0 is t > 0.5; of classes
     *                 rows whose largest output (first of equals) is the target's
     *   targets  in   float32 [rows, outputs]: t; of classes int32 [rows]: the output with t = 1,
     *                 where others have t = 0; of pairs [rows, DP_PAIR_WORDS]: the first has its
     *                 share as t, the other one the rest of 1, which is also what they add to the
     *                 score
     *   scale    in   [1], as in softmax_loss
     *
     * Of classes and pairs also DP_LOSS_SOFTMAX: a row's loss is - the sum of t' log softmax(x),
     * not divided by the outputs, its gradient softmax(x) - t', where t' = (1 - smoothing) t +
     * smoothing / outputs: Szegedy et al., arXiv:1512.00567, section 7. The score is that of t.
     */
    dp_status (*output_loss)(struct dp_stream *s, const struct dp_output_loss *how, void *dx,
                             float *loss, float *score, const void *x, const void *targets,
                             const float *scale, float keep);

    /*
     * count_top - right answers among the best k.
     *
     *   count   out  [1]  keep count + rows with fewer than k logits that are larger than that of
     *                the label, or equal to it and before it; not rows where that one is NaN
     *   labels  in   [rows], each < classes
     */
    dp_status (*count_top)(struct dp_stream *s, float *count, const void *x, const int32_t *labels,
                           size_t rows, size_t classes, size_t k, float keep);

    /* ---- optimizers: one pass; g = factor * grad; `decay` is that of dp_update times its
     * decays; nothing happens if step_params->skip ---- */

    /* g += decay w; g *= rate; v = momentum v + g; w -= lr (nesterov ? g + momentum v : v).
     * slots[0] = v; it is unused and may be NULL when momentum is 0. As torch.optim.SGD (zero v is
     * the same as its first step when dampening is 0); with rates, the second half of LARS. */
    dp_status (*sgd)(struct dp_stream *s, const struct dp_update *u, float momentum, bool nesterov,
                     float decay);
    /* w -= lr decay w; m, v = moments; t = step_params->applied + 1; w -= lr mhat / (sqrt(vhat) +
     * eps). slots[0] = m, slots[1] = v. As torch.optim.AdamW. Source: Loshchilov and Hutter,
     * arXiv:1711.05101, algorithm 2. The betas are double, since 1 - beta2 cancels: from 0.99f it
     * would be off by 1e-6. */
    dp_status (*adamw)(struct dp_stream *s, const struct dp_update *u, double beta1, double beta2,
                       float eps, float decay);
    /* The first half of LAMB: m, v and t as adamw's; r = mhat / (sqrt(vhat) + eps) + decay w; then
     * squares[i] = the sum over block i of r squared, as block_squares. Weights do not change. */
    dp_status (*lamb_moments)(struct dp_stream *s, float *squares, const struct dp_update *u,
                              double beta1, double beta2, float eps, float decay);
    /* The second half: w -= lr rate r, of the moments that the first has written. Source: You et
     * al., arXiv:1904.00962, algorithm 2, whose phi is the identity. */
    dp_status (*lamb)(struct dp_stream *s, const struct dp_update *u, double beta1, double beta2,
                      float eps, float decay);
    /*
     * trust_ratios - how far each tensor may move: between the halves of LARS and LAMB.
     *
     *   rates    out  [blocks]  coefficient |w| / (|r| + decay |w| + eps), where both norms are
     *                 above 0; else, and of fixed tensors, 1. Blocks of no tensor are unchanged
     *   squares  in   [2, blocks]  of the weights, and of r, which the factor scales if it is the
     *                 gradient. They are summed in double, in the order of a tensor's blocks or
     *                 another one that its size decides
     *   tensors  in   [n], device memory
     *
     * Source: You, Gitman and Ginsburg, arXiv:1708.03888, equation 6; arXiv:1904.00962.
     */
    dp_status (*trust_ratios)(struct dp_stream *s, float *rates, const float *squares,
                              size_t blocks, const struct dp_tensor_blocks *tensors, int n,
                              const struct dp_trust *how, const struct dp_step_params *step_params);

    /* ---- codes: smaller forms of a gradient, for compressors. A result depends neither on the
     * number of threads nor on the instruction set unless the comment says so. ---- */

    /* y = x rounded to 16 bits, DP_TYPE_F16 or DP_TYPE_BF16: to the nearest, ties to even. Above
     * the largest number it becomes infinity; a NaN stays a NaN. y, x [count]. */
    dp_status (*narrow)(struct dp_stream *s, uint16_t *y, const float *x, size_t count,
                        enum dp_type type);
    /* y = x, exactly; a NaN stays a NaN. */
    dp_status (*widen)(struct dp_stream *s, float *y, const uint16_t *x, size_t count,
                       enum dp_type type);

    /*
     * quantize - numbers as multiples of their block's scale, rounded up or down at random so that
     * the mean is right: y = floor(x / scale + u), u in [0, 1) by dp_random_unit, at most 127.
     *
     *   y       out  [count]
     *   scales  out  [ceil(count / block)]: the largest |x| of the block / 127; 0 (and y 0) where
     *                that is below FLT_MIN; NaN where x holds NaN or infinity
     *   x       in   [count]
     *
     * Source: Alistarh et al., "QSGD", NIPS 2017, section 3.1, in blocks scaled by their maximum
     * (section 4).
     */
    dp_status (*quantize)(struct dp_stream *s, int8_t *y, float *scales, const float *x,
                          size_t block, size_t count, const struct dp_key *key);
    /* y = x times the scale of its block. */
    dp_status (*dequantize)(struct dp_stream *s, float *y, const int8_t *x, const float *scales,
                            size_t block, size_t count);

    /*
     * take_signs - one bit a number: +scale or -scale of its block. Scales are exact within
     * rounding; a NaN or an infinity makes its block's scale the same. NaN counts by its sign bit.
     *
     *   y  out     [ceil(count / DP_SIGNS)]
     *   x  in/out  [count]: the values that y represents are subtracted
     *
     * Source: Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent", Interspeech 2014,
     * section 3.2, with one scale for both signs.
     */
    dp_status (*take_signs)(struct dp_stream *s, struct dp_signs *y, float *x, size_t count);
    /* y = the values that the signs represent; [count]. */
    dp_status (*put_signs)(struct dp_stream *s, float *y, const struct dp_signs *x, size_t count);

    /* y = scale y + x; [count]: momentum. */
    dp_status (*scale_add)(struct dp_stream *s, float *y, const float *x, float scale,
                           size_t count);
    /*
     * take_largest - moves the k numbers of largest magnitude out of x. A NaN is larger than all
     * numbers; of equal ones the first are taken.
     *
     *   index  out     [k], ascending
     *   value  out     [k]
     *   x      in/out  [count], count < 2^32: taken elements become 0
     *   k      at most count
     */
    dp_status (*take_largest)(struct dp_stream *s, uint32_t *index, float *value, float *x,
                              size_t k, size_t count);
    /* sample - k random places of [0, count), ascending: place i is in [i count / k, (i+1) count /
     * k), both rounded down; 1 <= k <= count < 2^32. The number of place i is element i of
     * `key`. */
    dp_status (*sample)(struct dp_stream *s, uint32_t *index, size_t k, size_t count,
                        const struct dp_key *key);
    /* Moves the numbers at index [k], ascending, from x to value [k]; they become 0 in x. */
    dp_status (*take_at)(struct dp_stream *s, float *value, float *x, const uint32_t *index,
                         size_t k);
    /*
     * orthogonalize - makes the columns of y [rows, cols] orthonormal, each in the space of those
     * up to it: Gram and Schmidt, twice. A column in the space of the previous ones, or one that is
     * not finite, becomes a fixed random one. cols is at most rows. Equal on all ranks for equal y.
     */
    dp_status (*orthogonalize)(struct dp_stream *s, float *y, size_t rows, size_t cols);
    /*
     * lowrank_split - the product of low-rank matrices, and what it leaves out:
     *
     *   sum   out     [rows, cols]  p q
     *   kept  in/out  [rows, cols]  kept - p mine
     *   p     in      [rows, rank]
     *   q, mine  in   [rank, cols], rank > 0
     */
    dp_status (*lowrank_split)(struct dp_stream *s, float *sum, float *kept, const float *p,
                               const float *q, const float *mine, size_t rows, size_t cols,
                               size_t rank);
    /* y[index[i]] += value[i] for i below k; index is ascending. */
    dp_status (*add_at)(struct dp_stream *s, float *y, const uint32_t *index, const float *value,
                        size_t k);
};

#endif
