#include "launch/bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

/* What is compared, and on which ranks (bench.h). */
#include "collectives/compressors/compressor.h"
#include "collectives/core/consistency.h"
#include "collectives/exchange/strategy_select.h"
#include "runtime/run/setup.h"

/* For all curves together. */
static const double probe_s = 2.0;

/* The longest messages are at least this long, if there are any: shorter ones do not show
 * bandwidth. */
enum { PROBE_LEAST = 1 << 20 };

bool dp_bench_plain(const char *compressor)
{
    return strcmp(compressor, dp_plugin_at(&dp_compressors, 0)->name) == 0;
}

/* Prints the line through a link's points. There may be none, because of noise, or because time ran
 * out after the first point. */
static void tell_link(const struct dp_bench *bench, const char *name, enum dp_link link)
{
    const struct dp_curve *curve = &bench->cost.exchange[link];
    const double alpha = bench->cost.alpha[link], beta = bench->cost.beta[link];

    if (curve->count == 0) {
        return;
    }
    if (alpha > 0.0 && beta > 0.0) {
        dp_bench_rows_note(&bench->rows, "%s: alpha %.1f us, beta %.3f ns/B (%.2f GB/s each way)",
                           name, 1e6 * alpha, 1e9 * beta, 1e-9 / beta);
    } else {
        dp_bench_rows_note(&bench->rows,
                           "%s: %.1f us for %.0f bytes, %.1f us for %.0f; no line "
                           "of alpha and beta fits",
                           name, 1e6 * curve->seconds[0], curve->bytes[0],
                           1e6 * curve->seconds[curve->count - 1], curve->bytes[curve->count - 1]);
    }
}

dp_status dp_bench_probe(struct dp_bench *bench, struct dp_group *group, size_t max_bytes)
{
    const size_t least = group->size > 1 ? PROBE_LEAST : 0;
    const struct dp_device *device;
    struct dp_stream *stream;
    dp_status status;

    DP_TRY(dp_device_find("cpu", &device));
    DP_TRY(device->stream_create(device, bench->run->job.threads, &stream));
    group->stream = stream;
    status = dp_cost_measure(group, max_bytes > least ? max_bytes : least, probe_s, &bench->cost);
    group->stream = NULL;
    device->stream_destroy(stream);
    DP_TRY(status);
    tell_link(bench, "messages on a node", DP_LINK_NODE);
    tell_link(bench, "messages between nodes", DP_LINK_WIRE);
    dp_bench_rows_note(&bench->rows, "adding: gamma %.3f ns/B", 1e9 * bench->cost.gamma);
    return DP_OK;
}

/* A misspelled name ends the program before anything is measured. */
static dp_status check_names(const struct dp_bench *bench)
{
    const struct dp_plugin *plugin;
    char problem[256];
    void *state;

    for (int i = 0; i < bench->strategies.count; i++) {
        const dp_status status =
            dp_strategy_select_check(bench->strategies.at[i], false, problem, sizeof(problem));
        if (status != DP_OK) {
            return DP_FAIL(status, "--strategies: %s", problem);
        }
    }
    for (int i = 0; i < bench->compressors.count; i++) {
        const dp_status status = dp_plugin_create(&dp_compressors, bench->compressors.at[i],
                                                  &plugin, &state, problem, sizeof(problem));
        if (status != DP_OK) {
            return DP_FAIL(status, "--compressors: %s", problem);
        }
        dp_free(state);
    }
    return DP_OK;
}

/* Losses are compared with those of uncompressed training, so that is added, as the first. */
static void put_plain_first(struct dp_bench_names *names)
{
    int at = 0;

    while (at < names->count && !dp_bench_plain(names->at[at])) {
        at++;
    }
    names->count += at == names->count;
    memmove(names->at + 1, names->at, (size_t)at * sizeof(*names->at)); /* NOLINT: pointers */
    names->at[0] = dp_plugin_at(&dp_compressors, 0)->name;
}

static dp_status read_names(struct dp_bench *bench)
{
    const struct dp_bench_options *o = bench->options;

    DP_TRY(dp_bench_names_create(o->strategies, &dp_strategies, &bench->strategies));
    DP_TRY(dp_bench_names_create(o->compressors, &dp_compressors, &bench->compressors));
    if (o->train_steps > 0) {
        put_plain_first(&bench->compressors);
    }
    return check_names(bench);
}

/* Ranks with different options would wait for each other, or compare different things. */
static dp_status compare_options(const struct dp_bench *bench)
{
    const struct dp_bench_options *o = bench->options;
    char turns[DP_CONSISTENCY_TEXT], sets[8192] = "";
    size_t used = 0;

    (void)snprintf(turns, sizeof(turns), "-b %zu -e %zu -f %d -n %d -w %d -c %d --train %d%s",
                   o->min_bytes, o->max_bytes, o->factor, o->iterations, o->warmups, o->checks,
                   o->train_steps, o->bound ? " --bound" : "");
    for (int i = 0; i < o->set_count && used < sizeof(sets); i++) {
        used += (size_t)snprintf(sets + used, sizeof(sets) - used, "%s%s", i == 0 ? "" : " ",
                                 o->sets[i]);
    }
    const struct dp_consistency_item items[] = {
        dp_consistency_text("version", DP_VERSION),
        dp_consistency_text("options", turns),
        dp_consistency_text("--strategies", o->strategies),
        dp_consistency_text("--compressors", o->compressors),
        dp_consistency_text("--buckets", o->buckets == NULL ? "" : o->buckets),
        dp_consistency_text("--set", sets),
        dp_consistency_text("device", o->buckets == NULL ? bench->device->plugin.name : ""),
    };

    return dp_consistency_check(bench->world->all, items, sizeof(items) / sizeof(items[0]));
}

static dp_status run_bench(struct dp_bench *bench)
{
    const struct dp_group *group = bench->world->all;
    const bool leads = group->rank == 0;
    struct dp_log_capture capture = {0};
    struct dp_log_capture *const silenced = leads ? NULL : &capture;
    const struct dp_device *other;
    char *verdict = NULL;
    const char *why_not;
    dp_status status;

    dp_bench_rows_begin(&bench->rows, bench->options, leads ? stdout : NULL);
    DP_TRY(dp_group_agree(bench->world->all, dp_device_find("auto", &bench->device)));
    DP_TRY(compare_options(bench));
    dp_log_capture_begin(silenced, DP_LOG_DEBUG); /* all read the same command line */
    status = read_names(bench);
    dp_log_capture_end(silenced, DP_LOG_DROP);
    DP_TRY(status);
    dp_bench_rows_note(&bench->rows, "lockstep %s: %d rank%s on %d node%s, %s", DP_VERSION,
                       group->size, dp_plural(group->size), group->nodes, dp_plural(group->nodes),
                       bench->world->library);
    other = dp_device_passed_over(bench->device, &why_not);
    if (other != NULL) {
        dp_bench_rows_note(&bench->rows, "gradients lie where %s computes, not %s: %s",
                           bench->device->plugin.name, other->plugin.name, why_not);
    }
    status = bench->options->buckets != NULL ? dp_bench_model(bench) : dp_bench_sweep(bench);
    if (bench->rows.count > 0) { /* after a failure, too, all rows so far are printed */
        const dp_status printed = dp_bench_rows_end(&bench->rows);
        status = status != DP_OK ? status : printed;
    }
    DP_TRY(status);
    if (bench->rows.count == 0) {
        return dp_bench_none_left(bench);
    }
    DP_TRY(dp_bench_verdict(&bench->rows, &verdict));
    dp_bench_rows_note(&bench->rows, "verdict: %s", verdict);
    dp_free(verdict);
    return DP_OK;
}

/* Fails if sums are wrong without a compressor: then the numbers mean nothing. */
static dp_status check_wrong(const struct dp_bench *bench)
{
    for (size_t i = 0; i < bench->rows.count; i++) {
        const struct dp_bench_row *row = &bench->rows.row[i];
        if (dp_bench_plain(row->compressor) && row->wrong > 0.0) {
            return bench->rows.file == NULL
                       ? DP_ERR_INTERNAL
                       : DP_FAIL(DP_ERR_INTERNAL, "%s: %.0f wrong elements of %.0f", row->strategy,
                                 row->wrong, row->ranks * row->count);
        }
    }
    return DP_OK;
}

dp_status dp_bench_main(const struct dp_bench_options *options, struct dp_world *world)
{
    struct dp_bench bench = {.options = options, .world = world, .asked = {.quiet = true}};
    dp_status status;

    bench.run = dp_zalloc(1, sizeof(*bench.run));
    if (bench.run != NULL) {
        dp_run_init(bench.run, &bench.asked, world);
    }
    status = bench.run != NULL ? run_bench(&bench) : DP_FAIL(DP_ERR_NOMEM, "bench");
    if (status != DP_OK && !dp_status_together(status)) {
        dp_world_abort(world, dp_status_exit(status));
    }
    if (status == DP_OK) {
        status = check_wrong(&bench);
    }
    if (bench.run != NULL) {
        dp_run_teardown(bench.run);
    }
    dp_free(bench.run);
    dp_bench_rows_destroy(&bench.rows);
    dp_bench_names_destroy(&bench.compressors);
    dp_bench_names_destroy(&bench.strategies);
    return status;
}
