/*
 * choose_dense.h - which of two ways computes a product of a dense layer: oneDNN's or ours, chosen
 * by measuring when a layer is prepared, as convolutions are (choose_onednn.h).
 *
 * oneDNN computes what was not prepared, and everything where nothing may be measured. It stays
 * unless ours takes at least 5 % less time.
 */
#ifndef DP_KERNELS_CPU_ONEDNN_CHOOSE_DENSE_H
#define DP_KERNELS_CPU_ONEDNN_CHOOSE_DENSE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "kernels/cpu/matmul.h"
#include "kernels/device.h"

/* The arrays of c = op(a) op(b), packed. */
struct dp_dense_arrays {
    void *c;
    const void *a, *b;
    void *scratch; /* of ours, aligned */
};

struct dp_dense_ways {
    const char *theirs, *own; /* their names as choices */
    size_t own_bytes;         /* of scratch */
    dp_status (*run)(struct dp_stream *s, const struct dp_dense_key *key,
                     const struct dp_dense_arrays *arrays, bool own);
};

/* Whether a layer's products are worth measuring, and may be. */
bool dp_dense_is_open(const struct dp_stream *s, size_t rows, size_t in, size_t out);

/* Chooses, once for each key. The stream's arena then has room for the scratch of ours.
 * Errors: DP_ERR_NOMEM, and those of run(). */
DP_CHECKED dp_status dp_dense_decide(struct dp_stream *s, const struct dp_dense_key *key,
                                     const struct dp_dense_ways *ways);

/* Whether ours was chosen. */
bool dp_dense_is_own(const struct dp_stream *s, const struct dp_dense_key *key);

#endif
