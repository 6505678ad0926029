/*
 * limits.h - how fast the parts of a step could be here: the layers, the machine, the sum over
 * ranks. What a step achieves is compared with it.
 *
 * Between two steps all ranks measure at the same time, as they compute at the same time in a step.
 * They work on scratch memory: no bit of the training changes. Whatever disturbs a measurement
 * makes it slower, so the best counts: of this one and of one after the last step, of earlier runs,
 * and of what the layers themselves reach. The best rates of a host are kept for later runs
 * (rates_cache.h); layers and sums are measured in every run, since a link may have become another
 * one.
 */
#ifndef DP_RUNTIME_MEASURE_LIMITS_H
#define DP_RUNTIME_MEASURE_LIMITS_H

#include "collectives/exchange/exchange_links.h"
#include "collectives/exchange/exchange_speed.h"
#include "runtime/measure/machine_rates.h"
#include "runtime/trainer/compute/layer_times.h"
#include "runtime/trainer/trainer.h"

struct dp_limits_config {
    int threads;          /* of this rank */
    bool quick;           /* a tenth of a second at most, for short runs */
    double step_s;        /* of a step, about, by which ranks know how long to wait; 0: short */
    const char *host_key; /* what the machine's rates depend on; NULL: they are not kept */
    const char *data_folder, *run_folder; /* whose disks are measured; NULL: they are not */
};

enum { DP_DISK_READ, DP_DISK_WRITE, DP_DISK_RATES };

struct dp_limits {
    bool measured; /* all else is of this rank, but for `sum` and `links` */
    struct dp_machine_rates machine;
    char raised[96]; /* keys of those that a layer exceeds, and what it reaches they now are */
    double disk_gbs[DP_DISK_RATES];  /* GB = 1e9 bytes; NaN: not measured */
    struct dp_exchange_speed sum;    /* equal on all ranks */
    struct dp_exchange_links links;  /* equal on all ranks; zeroed in short runs */
    struct dp_layer_times layers;    /* owned */
    double gemm_gflops, conv_gflops; /* at the model's shapes; NaN: it has none */
};

/* Collective, between steps. Takes a second, less if rates are known. `out` is released by
 * dp_limits_free(), also after an error. Errors: those of the device, strategy and transport. */
DP_CHECKED dp_status dp_limits_measure(struct dp_trainer *trainer,
                                       const struct dp_limits_config *config,
                                       struct dp_limits *out);

/* Measures the machine again, and takes the better rates: what else ran during the first time may
 * have ended. Collective, as above. Nothing where the first was quick or none. */
DP_CHECKED dp_status dp_limits_measure_again(struct dp_trainer *trainer,
                                             const struct dp_limits_config *config,
                                             struct dp_limits *limits);

void dp_limits_free(struct dp_limits *limits);

#endif
