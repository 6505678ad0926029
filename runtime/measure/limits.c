#include "runtime/measure/limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/files/disk_speed.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/measure/rates_cache.h"
#include "runtime/trainer/update/deferred_update.h"

/* Seconds for each, long and quick. */
static const struct lengths {
    double machine, layers, sum, disk, links, wire; /* links on one node; and between nodes */
} lengths[2] = {{0.24, 0.2, 0.3, 0.1, 0.25, 1.5}, {0.004, 0.004, 0.004, 0.0, 0.0, 0.0}};

/* What is known already is measured again in this part of the time. */
static const double again = 0.25;

enum {
    KEY_BYTES = 320,
    STEPS_MOST = 20 /* in whose time layers are measured, however long a step is */
};

/* The speed of a model's products: of convolutions, or of matrices. */
static double products_gflops(const struct dp_layer_times *times, bool convolutions)
{
    double flops = 0.0, seconds = 0.0;

    for (int i = 0; i < times->count; i++) {
        const struct dp_layer_profile *l = &times->layers[i];
        if (l->best_s > 0.0 && (strcmp(l->kind, "conv2d") == 0) == convolutions) {
            flops += l->flops;
            seconds += l->best_s;
        }
    }
    return seconds > 0.0 ? flops / seconds / 1e9 : (double)NAN;
}

/* ---- this rank ---- */

static dp_status measure_layers(struct dp_trainer *t, const struct dp_limits_config *c,
                                struct dp_limits *out)
{
    DP_TRY(dp_layer_times_measure(t, lengths[c->quick].layers, &out->layers));
    out->gemm_gflops = products_gflops(&out->layers, false);
    out->conv_gflops = products_gflops(&out->layers, true);
    return DP_OK;
}

static void raise_to(struct dp_limits *l, enum dp_machine_rate which, double rate)
{
    double *rates = dp_machine_rates_array(&l->machine);
    const size_t used = strlen(l->raised);

    if (rate > rates[which] && strstr(l->raised, dp_machine_rate_keys[which]) == NULL) {
        (void)snprintf(l->raised + used, sizeof(l->raised) - used, "%s%s", used > 0 ? ", " : "",
                       dp_machine_rate_keys[which]);
    }
    rates[which] = rate > rates[which] ? rate : rates[which];
}

/* A layer that is faster than the machine is the better measurement of it. */
static void raise_to_layers(struct dp_limits *l)
{
    for (int i = 0; i < l->layers.count; i++) {
        const struct dp_layer_profile *layer = &l->layers.layers[i];
        const double seconds = layer->seconds[DP_FORWARD] + layer->seconds[DP_BACKWARD];
        const double best_s =
            layer->best_s > 0.0 && layer->best_s < seconds ? layer->best_s : seconds;

        if (!(best_s > 0.0)) {
            continue;
        }
        raise_to(l, DP_RATE_PEAK, layer->flops / best_s / 1e9);
        if (!layer->product) {
            raise_to(l, layer->cached && l->machine.cache_gbs > 0.0 ? DP_RATE_CACHE : DP_RATE_COPY,
                     layer->bytes / best_s / 1e9);
        }
    }
}

/* What earlier runs have found. Read before ranks begin together, since storage may be slow. */
struct known {
    bool some;
    double rates[DP_MACHINE_RATES];
};

static bool keeps(const struct dp_limits_config *c)
{
    return c->host_key != NULL && !c->quick;
}

static void recall(const struct dp_limits_config *c, struct known *known)
{
    known->some = keeps(c) && dp_rates_cache_get(c->host_key, dp_machine_rate_keys, known->rates,
                                                 DP_MACHINE_RATES);
}

static void keep(const struct dp_limits_config *c, struct dp_limits *l)
{
    if (keeps(c)) {
        dp_rates_cache_put(c->host_key, dp_machine_rate_keys, dp_machine_rates_array(&l->machine),
                           DP_MACHINE_RATES);
    }
}

static dp_status measure_machine(struct dp_trainer *t, const struct dp_limits_config *c,
                                 const struct known *known, struct dp_limits *out)
{
    const double share = known->some || out->measured ? again : 1.0;
    double *rates = dp_machine_rates_array(&out->machine);
    struct dp_machine_rates found;

    DP_TRY(dp_machine_rates_measure(dp_trainer_stream(t), c->threads,
                                    lengths[c->quick].machine * share, &found));
    for (int i = 0; i < DP_MACHINE_RATES; i++) { /* of one NaN: the other */
        rates[i] = fmax(rates[i], dp_machine_rates_array(&found)[i]);
        rates[i] = known->some ? fmax(rates[i], known->rates[i]) : rates[i];
    }
    out->raised[0] = '\0'; /* by a second measurement it may be no more */
    raise_to_layers(out);
    return DP_OK;
}

/* Layers, where they are wanted, and the machine, on all ranks at once. Collective. */
static dp_status measure_together(struct dp_trainer *t, const struct dp_limits_config *c,
                                  bool layers, struct dp_limits *out)
{
    struct dp_exchange *e = dp_trainer_exchange(t);
    struct known known;
    dp_status status = DP_OK;

    recall(c, &known);
    DP_TRY(dp_exchange_barrier(e));
    DP_EXPECT(lengths[c->quick].machine + lengths[c->quick].layers + STEPS_MOST * c->step_s);
    if (layers) {
        status = measure_layers(t, c, out);
    }
    status = status == DP_OK ? measure_machine(t, c, &known, out) : status;
    return dp_exchange_agree(e, status);
}

/* ---- its disks ---- */

/* A disk is measured once: later runs take what is known of it. */
static void measure_disks(const struct dp_limits_config *c, struct dp_limits *out)
{
    static const char *const names[DP_DISK_RATES] = {"read_gbs", "write_gbs"};
    const double seconds = lengths[c->quick].disk;
    char key[KEY_BYTES];

    if (c->quick || (c->data_folder == NULL && c->run_folder == NULL)) {
        return;
    }
    (void)snprintf(key, sizeof(key), "%s; disks %lu, %lu", c->host_key != NULL ? c->host_key : "",
                   c->data_folder != NULL ? dp_disk_number(c->data_folder) : 0,
                   c->run_folder != NULL ? dp_disk_number(c->run_folder) : 0);
    if (c->host_key != NULL && dp_rates_cache_get(key, names, out->disk_gbs, DP_DISK_RATES)) {
        return;
    }
    if (c->data_folder != NULL) {
        out->disk_gbs[DP_DISK_READ] = dp_disk_read_gbs(c->data_folder, seconds);
    }
    if (c->run_folder != NULL) {
        out->disk_gbs[DP_DISK_WRITE] = dp_disk_write_gbs(c->run_folder, seconds);
    }
    if (c->host_key != NULL) {
        dp_rates_cache_put(key, names, out->disk_gbs, DP_DISK_RATES);
    }
}

dp_status dp_limits_measure(struct dp_trainer *t, const struct dp_limits_config *c,
                            struct dp_limits *out)
{
    DP_SPAN(DP_PHASE_MEASURE, (int64_t)dp_trainer_steps(t));
    struct dp_exchange *e = dp_trainer_exchange(t);

    *out = (struct dp_limits){.gemm_gflops = (double)NAN, .conv_gflops = (double)NAN};
    out->disk_gbs[DP_DISK_READ] = out->disk_gbs[DP_DISK_WRITE] = (double)NAN;
    dp_machine_rates_clear(&out->machine);
    DP_TRY(dp_deferred_update_finish(t));
    DP_TRY(measure_together(t, c, true, out));
    keep(c, out);
    measure_disks(c, out);
    DP_TRY(dp_exchange_barrier(e));
    DP_TRY(dp_exchange_measure_speed(e, lengths[c->quick].sum, &out->sum));
    if (lengths[c->quick].links > 0.0) {
        DP_TRY(dp_exchange_measure_links(e, lengths[c->quick].links, lengths[c->quick].wire,
                                         &out->links));
    }
    out->measured = true;
    return DP_OK;
}

dp_status dp_limits_measure_again(struct dp_trainer *t, const struct dp_limits_config *c,
                                  struct dp_limits *l)
{
    DP_SPAN(DP_PHASE_MEASURE, (int64_t)dp_trainer_steps(t));

    if (!l->measured || c->quick) {
        return DP_OK;
    }
    DP_TRY(dp_deferred_update_finish(t));
    DP_TRY(measure_together(t, c, false, l));
    keep(c, l);
    return DP_OK;
}

void dp_limits_free(struct dp_limits *l)
{
    dp_free(l->layers.layers);
    l->layers = (struct dp_layer_times){0};
}
