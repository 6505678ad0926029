/*
 * host_state.h - a trainer's state where the host can read and write it.
 *
 * Weights, running statistics and optimizer state live in the memory of the device. Code that reads
 * or writes them on the host (initial values, files, comparison of replicas) uses these arrays:
 * fetch them from the device before, put them back after. Where the device uses the host's memory
 * they are the same arrays, and nothing is copied.
 */
#ifndef DP_RUNTIME_TRAINER_STATE_HOST_STATE_H
#define DP_RUNTIME_TRAINER_STATE_HOST_STATE_H

#include "kernels/device.h"
#include "kernels/flat.h"

struct dp_host_state {
    struct dp_flat flat;         /* arrays of the host, but grad; all else as on the device */
    const struct dp_flat *there; /* borrowed; the device's */
    struct dp_stream *stream;    /* borrowed; copies wait for what is queued there */
    size_t statistics;           /* number of elements of running */
    bool same;                   /* the arrays are the device's own */
};

/* `flat` must be complete; running has `statistics` elements. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_host_state_create(const struct dp_flat *flat, size_t statistics,
                                          struct dp_stream *stream, struct dp_host_state **out);
void dp_host_state_destroy(struct dp_host_state *host_state);

/* Copy all arrays from the device, or to it; they return when done. */
DP_CHECKED dp_status dp_host_state_fetch(struct dp_host_state *host_state);
DP_CHECKED dp_status dp_host_state_put(struct dp_host_state *host_state);

/* Copies a part of the weights from the device. */
DP_CHECKED dp_status dp_host_state_fetch_weights(struct dp_host_state *host_state,
                                                 struct dp_range range);

#endif
