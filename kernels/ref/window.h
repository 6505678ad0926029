/*
 * window.h - arithmetic that every loop over a struct dp_window needs.
 */
#ifndef DP_KERNELS_REF_WINDOW_H
#define DP_KERNELS_REF_WINDOW_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "kernels/ops.h"

/* Checks that sizes are positive, the output fits the formula of struct dp_window, and groups
 * divide the channels. Logs what is wrong. Errors: DP_ERR_ARG. */
DP_CHECKED dp_status dp_window_check(const struct dp_window *w);

/* As above for a pool, whose windows must each overlap the image: padding below kernel, out_c equal
 * to in_c, and for a maximum at most 255 elements. Errors: DP_ERR_ARG. */
DP_CHECKED dp_status dp_window_check_pool(const struct dp_window *w, enum dp_pool_kind kind);

/* The kernel positions [begin, end) of output position `at` that lie inside the image; `in` and
 * `kernel` are sizes along the same direction. begin == end when there is none. */
static inline void dp_window_inside(const struct dp_window *w, size_t at, size_t in, size_t kernel,
                                    size_t *begin, size_t *end)
{
    const size_t from = at * w->stride; /* in padded coordinates */
    const size_t last = in + w->padding;

    *begin = from < w->padding ? w->padding - from : 0;
    *end = from >= last ? 0 : last - from;
    *end = *end < kernel ? *end : kernel;
    *begin = *begin < *end ? *begin : *end;
}

/* Whether kernel position `k` of some output position reads input position `at`; *out is that
 * output position. `outs` is the output size along that direction. */
static inline bool dp_window_source(const struct dp_window *w, size_t at, size_t k, size_t outs,
                                    size_t *out)
{
    const size_t padded = at + w->padding;

    if (padded < k || (padded - k) % w->stride != 0) {
        return false;
    }
    *out = (padded - k) / w->stride;
    return *out < outs;
}

static inline size_t dp_window_in(const struct dp_window *w)
{
    return w->in_h * w->in_w * w->in_c;
}

static inline size_t dp_window_out(const struct dp_window *w)
{
    return w->out_h * w->out_w * w->out_c;
}

#endif
