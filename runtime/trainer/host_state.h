/*
 * host_state.h - a trainer's state where the host can read and write it.
 *
 * Weights, running statistics and optimizer state live in the memory of the device. Who looks
 * at them or changes them on the host (initial values, files, comparison of replicas) uses these
 * arrays: fetched from the device before, put back after. Where the device's memory is the host's
 * they are the same arrays, and nothing is copied.
 */
#ifndef DP_RUNTIME_TRAINER_HOST_STATE_H
#define DP_RUNTIME_TRAINER_HOST_STATE_H

#include "kernels/device.h"
#include "kernels/flat.h"

struct dp_host_state {
    struct dp_flat flat;         /* all but grad are the host's; else as the device's */
    const struct dp_flat *there; /* borrowed; the device's */
    struct dp_stream *stream;    /* borrowed; what is queued there comes before a copy */
    size_t statistics;           /* elements of running */
    bool same;                   /* the arrays are the device's own */
};

/* `flat` is complete, and `statistics` long in running. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_host_state_create(const struct dp_flat *flat, size_t statistics,
                                          struct dp_stream *stream, struct dp_host_state **out);
void dp_host_state_destroy(struct dp_host_state *host_state);

/* All arrays, from the device and to it; done when they return. */
DP_CHECKED dp_status dp_host_state_fetch(struct dp_host_state *host_state);
DP_CHECKED dp_status dp_host_state_put(struct dp_host_state *host_state);

/* A part of the weights, from the device. */
DP_CHECKED dp_status dp_host_state_fetch_weights(struct dp_host_state *host_state,
                                                 struct dp_range range);

#endif
