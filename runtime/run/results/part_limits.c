#include "runtime/run/results/part_limits.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/report/step_terms.h"
#include "runtime/report/summary_read.h"

enum { PARTS_MOST = 9 };

struct parts {
    struct dp_run_part rows[PARTS_MOST];
    int count;
};

/* A part that is faster than its limit is the better measurement of it: something else ran while
 * the limit was measured. */
static void add(struct parts *parts, const char *name, double ms, double limit_ms,
                const char *limit)
{
    struct dp_run_part *row = &parts->rows[parts->count];

    if (!(ms > 0.0) || !(limit_ms > 0.0) || isinf(limit_ms)) {
        return;
    }
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    (void)snprintf(row->limit, sizeof(row->limit), "%s", limit);
    row->ms = ms;
    row->limit_ms = fmin(limit_ms, ms);
    row->of_limit = row->limit_ms / ms;
    parts->count++;
}

/* ---- what computes ---- */

static double memory_gbs(const struct dp_machine_rates *m, const struct dp_layer_profile *layer)
{
    return layer->cached && m->cache_gbs > 0.0 ? m->cache_gbs : m->copy_gbs;
}

/* Products by the peak of arithmetic, other layers by memory, as each was timed. */
static void add_layers(const struct dp_limits *l, struct parts *parts)
{
    double took_s[2] = {0.0, 0.0}, limit_s[2] = {0.0, 0.0};

    for (int i = 0; i < l->layers.count; i++) {
        const struct dp_layer_profile *layer = &l->layers.layers[i];
        took_s[layer->product] += layer->seconds[DP_FORWARD] + layer->seconds[DP_BACKWARD];
        limit_s[layer->product] += layer->product
                                       ? layer->flops / l->machine.peak_gflops / 1e9
                                       : layer->bytes / memory_gbs(&l->machine, layer) / 1e9;
    }
    add(parts, "products", 1e3 * took_s[true], 1e3 * limit_s[true], "peak of products");
    add(parts, "other layers", 1e3 * took_s[false], 1e3 * limit_s[false], "copying in memory");
}

/* Weights and state are read and written, gradients read. Small ones stay in a cache. */
static void add_optimizer(const struct dp_limits *l, const struct dp_run_rank *rank,
                          struct parts *parts)
{
    const double ms = rank->step_ms[DP_PART_OPTIMIZER];
    const double bytes = 2.0 * (double)rank->memory_weights + (double)rank->memory_gradients +
                         2.0 * (double)rank->memory_optimizer;
    const double limit_ms = bytes / l->machine.copy_gbs / 1e6;
    const bool is_cached = limit_ms > ms;

    if (rank->memory_weights > 0 && rank->memory_gradients > 0) {
        add(parts, "optimizer", ms, is_cached ? bytes / l->machine.cache_gbs / 1e6 : limit_ms,
            is_cached ? "copying in a cache" : "copying in memory");
    }
}

/* ---- what moves ---- */

static void add_input(const struct dp_run_summary *s, double step_ms, struct parts *parts)
{
    double bytes = 0.0;

    for (int i = 0; i < s->rank_count; i++) {
        bytes += fmax((double)s->ranks[i].copied_input, 0.0);
    }
    add(parts, "input", step_ms, 1e3 * (double)s->global_batch / s->limit_input,
        "what its threads prepare");
    add(parts, "reading", step_ms, bytes / s->limit_disk_read / 1e6, "reading the data's disk");
}

/* A checkpoint that was written faster than the disk is the better measurement of it. */
static void raise_disk(const struct dp_saver *saver, struct dp_limits *l, struct dp_run_summary *s)
{
    const double reached_gbs = (double)saver->write_bytes / (double)saver->write_ns;
    const size_t used = strlen(l->raised);

    if (saver->write_ns > 0 && reached_gbs > s->limit_disk_write) {
        s->limit_disk_write = reached_gbs;
        (void)snprintf(l->raised + used, sizeof(l->raised) - used, "%sdisk_write_gbs",
                       used > 0 ? ", " : "");
        s->limits_raised = l->raised;
    }
}

dp_status dp_part_limits_summarize(struct dp_training *run, struct dp_run_summary *s)
{
    struct dp_limits *l = &run->figures.limits;
    const struct dp_saver *saver = &run->saver;
    struct parts parts = {.count = 0};
    struct dp_step_terms terms;
    char alone[DP_EXCHANGE_BY_BYTES + sizeof(" alone")];

    if (!l->measured || !dp_step_terms_find(s, &terms)) {
        return DP_OK;
    }
    const struct dp_run_rank *first = &s->ranks[0];
    raise_disk(saver, l, s);
    add(&parts, "forward and backward",
        first->step_ms[DP_PART_FORWARD] + first->step_ms[DP_PART_BACKWARD], s->limit_compute,
        "each layer at its own");
    add_layers(l, &parts);
    add_optimizer(l, first, &parts);
    add(&parts, "copy to the device", first->step_ms[DP_PART_COPY],
        (double)first->copied_input / l->machine.host_device_gbs / 1e6, "host to device");
    (void)snprintf(alone, sizeof(alone), "%s alone", l->sum.by);
    add(&parts, "sum over ranks", terms.sending + terms.hidden, s->limit_sum, alone);
    add_input(s, terms.step, &parts);
    add(&parts, "a checkpoint", (double)saver->write_ns / 1e6,
        (double)saver->write_bytes / s->limit_disk_write / 1e6, "writing the run's disk");
    DP_TRY(dp_run_summary_resize(s, DP_TABLE_PARTS, parts.count));
    for (int i = 0; i < s->part_count; i++) {
        s->parts[i] = parts.rows[i];
    }
    return DP_OK;
}
