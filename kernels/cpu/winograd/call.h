/*
 * call.h - one use of a convolution that winograd.h computes.
 */
#ifndef DP_KERNELS_CPU_WINOGRAD_CALL_H
#define DP_KERNELS_CPU_WINOGRAD_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/ops.h"

struct dp_winograd_code; /* code.h */

/* Arrays as those of conv_forward and of its gradients in kernels/ops.h. */
struct dp_winograd {
    const struct dp_window *w;
    const struct dp_winograd_code *code; /* NULL: the fastest here */
    size_t rows;
    unsigned use;          /* DP_CONV_FORWARD, DP_CONV_BACKWARD_DATA or DP_CONV_BACKWARD_WEIGHTS */
    float *x, *y;          /* or their gradients; the use writes one of them, or none */
    float *weights, *bias; /* of DP_CONV_BACKWARD_WEIGHTS: their gradients; bias: NULL if none */
    bool adds;             /* the gradients of weights and bias are added to, else set */
    void *scratch;         /* dp_winograd_bytes(), aligned to 64 bytes */
};

#endif
