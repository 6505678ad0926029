/*
 * machine_rates.h - how fast the device of a rank computes and copies: the limits that its layers
 * are compared with. They are measured, never looked up by the name of a product.
 *
 * Each is the best of several tries of an operation of kernels/ops.h on a stream of its own, while
 * the other ranks of the host do the same.
 */
#ifndef DP_RUNTIME_MEASURE_MACHINE_RATES_H
#define DP_RUNTIME_MEASURE_MACHINE_RATES_H

#include "kernels/device.h"

/* GB = 1e9 bytes; NaN: not measured. */
struct dp_machine_rates {
    double peak_gflops;     /* of a large matrix product in the compute type */
    double copy_gbs;        /* bytes read and written by a copy of arrays beyond the caches */
    double cache_gbs;       /* the same of arrays that stay in a cache near the core */
    double host_device_gbs; /* bytes copied to and from the device, in turns; the host: NaN */
};

/* The members in order, and their keys, for a cache of them (rates_cache.h). */
enum dp_machine_rate {
    DP_RATE_PEAK,
    DP_RATE_COPY,
    DP_RATE_CACHE,
    DP_RATE_HOST_DEVICE,
    DP_MACHINE_RATES
};
extern const char *const dp_machine_rate_keys[DP_MACHINE_RATES];

/* All of them as an array [DP_MACHINE_RATES]. */
double *dp_machine_rates_array(struct dp_machine_rates *rates);

/* Nothing is known. */
void dp_machine_rates_clear(struct dp_machine_rates *rates);

/* Bytes of the device's memory that it takes; quick: in less than 0.05 seconds. */
size_t dp_machine_rates_bytes(const struct dp_device *device, bool quick);

/* Takes about `seconds`. like: a stream of the compute type, which is not used. Rates that need
 * more memory than there is stay NaN. Local. Errors: those of the device. */
DP_CHECKED dp_status dp_machine_rates_measure(const struct dp_stream *like, int threads,
                                              double seconds, struct dp_machine_rates *out);

#endif
