/*
 * choose_dense.h - which way computes a product of a dense layer: oneDNN's or one of ours, chosen
 * by measuring when a layer is prepared, as convolutions are (choose_onednn.h).
 *
 * oneDNN computes what was not prepared, and everything where nothing may be measured. It stays
 * unless one of ours takes at least 5 % less time.
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
    void *scratch; /* aligned */
};

enum { DP_DENSE_WAYS = 3 /* at most */ };

/* The first one is oneDNN's. */
struct dp_dense_ways {
    int count;
    struct {
        const char *name; /* as a choice */
        size_t bytes;     /* of scratch */
    } way[DP_DENSE_WAYS];
    bool by_all; /* ranks that follow measure at the same time, and choose, too: by a unit that
                  * ranks, or other users of the machine, may share */
    dp_status (*run)(struct dp_stream *s, const struct dp_dense_key *key,
                     const struct dp_dense_arrays *arrays, int way);
};

/* Whether a layer's products are worth measuring, and may be. */
bool dp_dense_is_open(const struct dp_stream *s, size_t rows, size_t in, size_t out);

/* Chooses, once for each key. The stream's arena then has room for the scratch of what was chosen.
 * Errors: DP_ERR_NOMEM, and those of run(). */
DP_CHECKED dp_status dp_dense_decide(struct dp_stream *s, const struct dp_dense_key *key,
                                     const struct dp_dense_ways *ways);

/* Which was chosen; 0, oneDNN's, also of what was not prepared. */
int dp_dense_way(const struct dp_stream *s, const struct dp_dense_key *key);

#endif
