/*
 * op_args.h - what operations are told and handed: sizes, kinds, and arguments that belong
 * together.
 */
#ifndef DP_KERNELS_OP_ARGS_H
#define DP_KERNELS_OP_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/step_params.h"
#include "kernels/tensor.h"

enum dp_order { DP_PLAIN, DP_TRANSPOSED };
enum dp_activation { DP_ACT_NONE, DP_ACT_RELU };
/* What a model's outputs are compared with its targets by; see softmax_loss and output_loss. */
enum dp_loss_kind { DP_LOSS_SOFTMAX, DP_LOSS_SIGMOID, DP_LOSS_SQUARE };

/* What a row is compared with: a number for each output, a class, or two classes by shares. */
enum dp_target_kind { DP_TARGET_NUMBERS, DP_TARGET_CLASSES, DP_TARGET_PAIRS };

/* A loss of each output by itself; or of pairs, or with smoothing, DP_LOSS_SOFTMAX. */
struct dp_output_loss {
    enum dp_loss_kind kind;
    size_t rows, outputs; /* outputs: of a row */
    enum dp_target_kind targets;
    float smoothing; /* of DP_LOSS_SOFTMAX: this share of each target is spread over all outputs */
};

/* A pair of classes: int32 of both, and the float32 share of the first, 0 to 1. */
enum { DP_PAIR_WORDS = 3 };

enum dp_pool_kind { DP_POOL_MAX, DP_POOL_AVERAGE /* padding counted */ };

/* A window that moves over an image: convolutions and pools. All in elements. out = (in + 2 padding
 * - kernel) / stride + 1, rounded down. Unused bytes must be zero. */
struct dp_window {
    size_t in_h, in_w, in_c;
    size_t out_h, out_w, out_c; /* pools: out_c == in_c */
    size_t kernel_h, kernel_w, stride, padding;
    size_t groups; /* of a convolution: see dp_window_groups(); 0 is 1 */
};

/* A convolution of several groups has one of each group's in_c / groups channels into its
 * out_c / groups, in their order; with as many groups as channels it is depthwise. */
static inline size_t dp_window_groups(const struct dp_window *w)
{
    return w->groups > 1 ? w->groups : 1;
}

/* Channels of the input that one of the output is made of. */
static inline size_t dp_window_fan(const struct dp_window *w)
{
    return w->in_c / dp_window_groups(w);
}

/* Elements of the weights of a convolution. */
static inline size_t dp_window_weights(const struct dp_window *w)
{
    return w->out_c * w->kernel_h * w->kernel_w * dp_window_fan(w);
}

/* Which operations a convolution will be used for. */
enum dp_conv_use {
    DP_CONV_FORWARD = 1,
    DP_CONV_BACKWARD_DATA = 2,
    DP_CONV_BACKWARD_WEIGHTS = 4,
    DP_CONV_BIAS = 8, /* there is a bias */
    DP_CONV_RELU = 16 /* forward is called with DP_ACT_RELU */
};

/* Columns [at, at + count) of an array with `width` of them. */
struct dp_columns {
    size_t at, count, width;
};

/* The fixed part of a dropout layer's random numbers. */
struct dp_dropout {
    uint64_t seed;
    uint32_t what; /* DP_RANDOM_DROPOUT + number of the layer */
    float rate;    /* probability that an element becomes 0; others are scaled by 1/(1-rate) */
};

/* Signs of DP_SIGNS numbers, or of fewer at the end of an array: bit k of word j is 1 where number
 * 32 k + j is negative. Each block of DP_BLOCK numbers has a scale. */
enum { DP_SIGNS = 1024, DP_SIGN_SCALES = DP_SIGNS / DP_BLOCK };

struct dp_signs {
    float scale[DP_SIGN_SCALES]; /* mean of the magnitudes; 0 beyond the end of the array */
    uint32_t words[DP_SIGNS / 32];
};

/* The random numbers of a range of elements: element i gets number first + i of the sequence (seed,
 * what, step) of base/random.h. */
struct dp_key {
    uint64_t seed, first;
    uint32_t what, step;
};

/* Size of a batch normalisation: x is [count, channels], count = rows * height * width; and factors
 * that norm_statistics and norm_backward have made, NULL: they have not. Signs are of narrow types
 * and channels that are multiples of 8: element 8 i + k is positive if bit k of byte i is set. */
struct dp_norm {
    size_t count, channels;
    float eps;              /* added to the variance */
    enum dp_activation act; /* applied after scale and shift */
    const float *scale;     /* [channels] gamma / sqrt(var + eps) */
    const float *slopes;    /* [2, channels] what norm_backward_apply needs of the sums */
    uint8_t *signs;         /* [count channels / 8] of y: norm_apply writes them, and norm_backward
                             * reads them instead of y; NULL: neither does */
};

/* Size of a normalisation of each sample by itself: x is [rows, places, channels]; a group is
 * channels / groups channels of a sample, at all places. */
struct dp_group_norm {
    size_t rows, places, channels, groups;
    float eps; /* added to the variance */
};

/* What norm_statistics makes. */
struct dp_norm_statistics {
    float *mean, *var, *scale; /* out [channels] */
    const void *weights[2];    /* in [channels] gamma and beta, in the compute type */
    float *wide[2];            /* out [channels] the same as float32; NULL in float32 */
    float *shares;             /* [2, channels] keep shares + those of mean and variance */
    size_t rows;               /* of norm_share: both shares' */
    float unbiased;            /* of norm_share: the variance's factor; the mean's is 1 */
    float keep;
    const struct dp_step_params *step_params;
};

/* What norm_backward reads and makes. */
struct dp_norm_backward {
    const void *dy, *x;                     /* in [count, channels] */
    const void *dy2, *y;                    /* in [count, channels] or NULL: of a join */
    void *g;                                /* out [count, channels]; NULL: no join */
    const float *mean, *var, *gamma, *beta; /* in [channels] */
    float *dgamma, *dbeta;                  /* [channels] keep dgamma + ... */
    float *slopes;                          /* out [2, channels] */
    double total;                           /* elements a channel, normalised together */
    float keep;
};

/* Which operations a dense layer will be used for. */
enum dp_dense_use {
    DP_DENSE_FORWARD = 1,
    DP_DENSE_BACKWARD_DATA = 2,
    DP_DENSE_BACKWARD_WEIGHTS = 4,
    DP_DENSE_BIAS = 8, /* forward is called with a bias */
    DP_DENSE_RELU = 16 /* forward is called with DP_ACT_RELU */
};

/* What dense_backward_relu reads and makes. */
struct dp_dense_backward {
    const void *dy, *y, *x; /* in [rows, out], [rows, out], [rows, in] */
    void *g;                /* out [rows, out] dy where y > 0, else 0; may be dy */
    float *dw, *db;         /* [out, in], [out]: keep dw + ... of g */
    size_t rows, in, out;
    float keep;
};

/* How trust_ratios makes a tensor's factor of its norms. */
struct dp_trust {
    float coefficient, decay, eps;
    bool of_gradient; /* the second squares are of the gradient, before step_params->factor */
};

/* The blocks of a tensor in the flat order; `fixed`: its ratio is 1. */
struct dp_tensor_blocks {
    uint32_t begin, count, fixed;
};

#endif
