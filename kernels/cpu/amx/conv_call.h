/*
 * conv_call.h - what convolutions by tiles are asked for, and how they cut it (pointwise_amx.h,
 * conv_amx.h).
 */
#ifndef DP_KERNELS_CPU_AMX_CONV_CALL_H
#define DP_KERNELS_CPU_AMX_CONV_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/device.h"
#include "kernels/tensor.h"

/* Arrays as those of the convolutions in kernels/ops.h; what the use computes is written. How many
 * bytes of scratch a call takes is asked without arrays. */
struct dp_conv_call {
    const struct dp_window *w;
    size_t rows;
    unsigned use;      /* one of DP_CONV_FORWARD, _BACKWARD_DATA, _BACKWARD_WEIGHTS */
    enum dp_type type; /* of all arrays but dw */
    void *x, *y, *weights;
    bool adds;     /* dw is added to, else set */
    void *scratch; /* aligned to 64 bytes */
};

/* The size of each of the fewest parts of `whole` of which none is above `most`; the last one may
 * be smaller. A `most` of 0 counts as 1. */
static inline size_t dp_conv_equal_part(size_t whole, size_t most)
{
    return dp_div_up(whole, dp_div_up(whole, most > 0 ? most : 1));
}

#endif
