#include "runtime/measure/limits.h"

#include <math.h>
#include <string.h>

#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/measure/rates_cache.h"
#include "runtime/trainer/update/deferred_update.h"

/* Seconds for each, long and quick. */
static const struct lengths {
    double machine, layers, sum;
} lengths[2] = {{0.24, 0.2, 0.3}, {0.004, 0.004, 0.004}};

/* What is known from earlier runs is measured again in this part of the time. */
static const double again = 0.25;

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
    DP_TRY(dp_layer_times_measure(t, lengths[c->quick].layers, c->step_s, &out->layers));
    out->gemm_gflops = products_gflops(&out->layers, false);
    out->conv_gflops = products_gflops(&out->layers, true);
    return DP_OK;
}

/* The best of this run and of those before: whatever disturbs a measurement makes it slower. */
static dp_status measure_machine(struct dp_trainer *t, const struct dp_limits_config *c,
                                 struct dp_limits *out)
{
    const bool keeps = c->host_key != NULL && !c->quick;
    double known[DP_MACHINE_RATES], found[DP_MACHINE_RATES];
    const bool before =
        keeps && dp_rates_cache_get(c->host_key, dp_machine_rate_keys, known, DP_MACHINE_RATES);
    const double seconds = lengths[c->quick].machine * (before ? again : 1.0);

    _Static_assert(sizeof(found) == sizeof(out->machine), "a rate is a double");
    DP_TRY(dp_machine_rates_measure(dp_trainer_stream(t), c->threads, seconds, &out->machine));
    if (keeps) {
        memcpy(found, &out->machine, sizeof(found));
        for (int i = 0; before && i < DP_MACHINE_RATES; i++) {
            found[i] = fmax(found[i], known[i]); /* of one NaN: the other */
        }
        memcpy(&out->machine, found, sizeof(found));
        dp_rates_cache_put(c->host_key, dp_machine_rate_keys, found, DP_MACHINE_RATES);
    }
    return DP_OK;
}

dp_status dp_limits_measure(struct dp_trainer *t, const struct dp_limits_config *c,
                            struct dp_limits *out)
{
    DP_SPAN(DP_PHASE_MEASURE, (int64_t)dp_trainer_steps(t));
    struct dp_exchange *e = dp_trainer_exchange(t);
    dp_status status;

    *out = (struct dp_limits){.gemm_gflops = (double)NAN, .conv_gflops = (double)NAN};
    dp_machine_rates_clear(&out->machine);
    DP_TRY(dp_deferred_update_finish(t));
    DP_TRY(dp_exchange_barrier(e)); /* all begin together */
    status = measure_layers(t, c, out);
    status = status == DP_OK ? measure_machine(t, c, out) : status;
    DP_TRY(dp_exchange_agree(e, status));
    DP_TRY(dp_exchange_measure_speed(e, lengths[c->quick].sum, &out->sum));
    out->measured = true;
    return DP_OK;
}

void dp_limits_free(struct dp_limits *l)
{
    dp_free(l->layers.layers);
    l->layers = (struct dp_layer_times){0};
}
