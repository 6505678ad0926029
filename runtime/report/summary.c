#include "runtime/report/summary.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "runtime/report/progress.h"

enum { CELL_BYTES = DP_GROUPED_BYTES };

const char *dp_run_exit_text(enum dp_run_exit exit)
{
    static const char *const texts[] = {
#define X(name, text) text,
        DP_RUN_EXITS(X)
#undef X
    };

    return (unsigned)exit < DP_RUN_EXIT_COUNT ? texts[exit] : "error";
}

/* ---- run.json ---- */

static const char *const part_keys[] = {
#define X(name, key, heading) key,
    DP_STEP_PARTS(X)
#undef X
};

/* An integer that is null when it is not known. */
static dp_status set_count(struct dp_json *object, const char *key, int64_t value)
{
    return value < 0 ? dp_json_set_null(object, key) : dp_json_set_int(object, key, value);
}

static dp_status fill_rank(struct dp_json *object, const struct dp_run_rank *rank)
{
    struct dp_json *parts;

    DP_TRY(dp_json_set_int(object, "rank", rank->rank));
    DP_TRY(dp_json_set_text(object, "host", rank->host));
    DP_TRY(dp_json_set_text(object, "cpus", rank->cpus));
    DP_TRY(dp_json_set_int(object, "threads", rank->threads));
    DP_TRY(dp_json_set_real(object, "samples_per_second", rank->samples_per_second));
    DP_TRY(dp_json_set_real(object, "scaling_efficiency", rank->scaling_efficiency));
    DP_TRY(dp_json_set_real(object, "compute_efficiency", rank->compute_efficiency));
    parts = dp_json_set_object(object, "step_ms");
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        DP_TRY(dp_json_set_real(parts, part_keys[i], rank->step_ms[i]));
    }
    DP_TRY(dp_json_set_real(object, "hidden_comm_ms", rank->hidden_comm_ms));
    DP_TRY(set_count(object, "peak_rss_bytes", rank->peak_rss_bytes));
    return set_count(object, "peak_device_bytes", rank->peak_device_bytes);
}

/* What was run. */
static dp_status fill_setup(struct dp_json *object, const struct dp_run_summary *summary)
{
    DP_TRY(dp_json_set_text(object, "schema", DP_SUMMARY_SCHEMA));
    DP_TRY(dp_json_set_text(object, "name", summary->name));
    DP_TRY(dp_json_set_text(object, "version", summary->version));
    DP_TRY(dp_json_set_text(object, "started", summary->started));
    DP_TRY(dp_json_set_text(object, "exit", dp_run_exit_text(summary->exit)));
    DP_TRY(dp_json_set_text(object, "reason", summary->reason));
    DP_TRY(dp_json_set_int(object, "world_size", summary->world_size));
    DP_TRY(dp_json_set_text(object, "device", summary->device));
    DP_TRY(dp_json_set_text(object, "precision", summary->precision));
    DP_TRY(dp_json_set_text(object, "strategy", summary->strategy));
    DP_TRY(dp_json_set_text(object, "compressor", summary->compressor));
    DP_TRY(dp_json_set_text(object, "plan", summary->plan));
    DP_TRY(dp_json_set_int(object, "global_batch", summary->global_batch));
    DP_TRY(dp_json_set_int(object, "steps", summary->steps));
    DP_TRY(set_count(object, "resumed_from", summary->resumed_from));
    return dp_json_set_real(object, "epochs", summary->epochs);
}

/* What it came to. */
static dp_status fill_results(struct dp_json *object, const struct dp_run_summary *summary)
{
    struct dp_json *baseline, *final;

    DP_TRY(dp_json_set_real(object, "samples_per_second", summary->samples_per_second));
    DP_TRY(dp_json_set_real(object, "single_rank_samples_per_second",
                            summary->single_rank_samples_per_second));
    baseline = dp_json_set_object(object, "baseline");
    DP_TRY(dp_json_set_text(baseline, "source", summary->baseline.source));
    DP_TRY(dp_json_set_real(baseline, "before", summary->baseline.before));
    DP_TRY(dp_json_set_real(baseline, "after", summary->baseline.after));
    DP_TRY(dp_json_set_real(baseline, "spread", summary->baseline.spread));
    DP_TRY(dp_json_set_real(object, "scaling_efficiency", summary->scaling_efficiency));
    DP_TRY(dp_json_set_real(object, "samples_per_dollar", summary->samples_per_dollar));
    DP_TRY(set_count(object, "wire_bytes_per_step", summary->wire_bytes_per_step));
    DP_TRY(set_count(object, "skipped_steps", summary->skipped_steps));
    DP_TRY(set_count(object, "restored", summary->restored));
    DP_TRY(dp_json_set_real(object, "time_to_first_step_s", summary->time_to_first_step_s));
    DP_TRY(dp_json_set_real(object, "seconds", summary->seconds));
    final = dp_json_set_object(object, "final");
    DP_TRY(dp_json_set_real(final, "train_loss", summary->final.train_loss));
    DP_TRY(dp_json_set_real(final, "test_loss", summary->final.test_loss));
    DP_TRY(dp_json_set_real(final, "test_accuracy", summary->final.test_accuracy));
    return dp_json_set_text(object, "verdict", summary->verdict);
}

static dp_status fill(struct dp_json *object, const struct dp_run_summary *summary)
{
    struct dp_json *staleness, *ranks;

    DP_TRY(fill_setup(object, summary));
    DP_TRY(fill_results(object, summary));
    staleness = dp_json_set_array(object, "staleness");
    for (size_t i = 0; i < summary->staleness_count; i++) {
        DP_TRY(dp_json_push_int(staleness, (int64_t)summary->staleness[i]));
    }
    ranks = dp_json_set_array(object, "ranks");
    for (int i = 0; i < summary->rank_count; i++) {
        DP_TRY(fill_rank(dp_json_push_object(ranks), &summary->ranks[i]));
    }
    return staleness == NULL || ranks == NULL ? DP_ERR_NOMEM : DP_OK;
}

dp_status dp_run_summary_write(const struct dp_run_summary *summary, const char *path)
{
    struct dp_json *object = dp_json_create();
    dp_status status = fill(object, summary);

    if (status == DP_OK) {
        status = dp_json_save(object, DP_JSON_READABLE, path);
    }
    dp_json_destroy(object);
    return status;
}

/* ---- for people ---- */

/* "95.8 %", or "-". */
static const char *percent(char text[CELL_BYTES], double fraction)
{
    if (isfinite(fraction)) {
        (void)snprintf(text, CELL_BYTES, "%.1f %%", 100 * fraction);
    } else {
        (void)snprintf(text, CELL_BYTES, "-");
    }
    return text;
}

/* "95.81 %", as evaluations print it, or "-". */
static const char *accuracy(char text[CELL_BYTES], double fraction)
{
    if (isfinite(fraction)) {
        (void)snprintf(text, CELL_BYTES, "%.2f %%", 100 * fraction);
    } else {
        (void)snprintf(text, CELL_BYTES, "-");
    }
    return text;
}

/* A number with `decimals`, or "-". */
static const char *fixed(char text[CELL_BYTES], double value, int decimals)
{
    if (isfinite(value) && fabs(value) < 1e15) {
        (void)snprintf(text, CELL_BYTES, "%.*f", decimals, value);
    } else {
        (void)snprintf(text, CELL_BYTES, "-");
    }
    return text;
}

/* "3.2 MiB", or "-". */
static const char *bytes_text(char text[CELL_BYTES], int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    if (bytes < 0) {
        (void)snprintf(text, CELL_BYTES, "-");
    } else {
        (void)snprintf(text, CELL_BYTES, "%.*f %s", unit == 0 || value >= 100 ? 0 : 1, value,
                       units[unit]);
    }
    return text;
}

static const char *or_dash(const char *text)
{
    return text == NULL || *text == '\0' ? "-" : text;
}

static void print_head(const struct dp_run_summary *summary, FILE *out)
{
    char a[CELL_BYTES], b[CELL_BYTES], c[CELL_BYTES];

    dp_text_line(out, "%s: %s after %" PRId64 " step%s, %s epochs, on %d rank%s",
                 or_dash(summary->name), dp_run_exit_text(summary->exit), summary->steps,
                 dp_plural((uint64_t)summary->steps),
                 fixed(a, summary->epochs, summary->epochs < 1 ? 2 : 1), summary->world_size,
                 dp_plural(summary->world_size));
    if (summary->reason != NULL) {
        dp_text_line(out, "reason: %s", summary->reason);
    }
    dp_text_line(out, "device %s, %s, strategy %s, compressor %s, global batch %d",
                 or_dash(summary->device), or_dash(summary->precision), or_dash(summary->strategy),
                 or_dash(summary->compressor), summary->global_batch);
    if (summary->plan != NULL) {
        dp_text_line(out, "plan: %s", summary->plan);
    }
    (void)fprintf(out, "train loss %s, test loss %s, test accuracy %s\n",
                  fixed(a, summary->final.train_loss, 4), fixed(b, summary->final.test_loss, 4),
                  accuracy(c, summary->final.test_accuracy));
}

static void print_rates(const struct dp_run_summary *summary, FILE *out)
{
    char a[CELL_BYTES], b[CELL_BYTES], c[CELL_BYTES], d[CELL_BYTES], spread[4 * CELL_BYTES] = "";

    (void)fprintf(out, "%s samples/s, scaling efficiency %s\n",
                  dp_grouped(a, summary->samples_per_second),
                  percent(b, summary->scaling_efficiency));
    if (isfinite(summary->baseline.before)) {
        (void)snprintf(spread, sizeof(spread), "; before %s, after %s, spread %s",
                       dp_grouped(a, summary->baseline.before),
                       dp_grouped(b, summary->baseline.after),
                       percent(c, summary->baseline.spread));
    }
    dp_text_line(out, "one rank alone: %s samples/s (%s%s)",
                 dp_grouped(a, summary->single_rank_samples_per_second),
                 or_dash(summary->baseline.source), spread);
    (void)fprintf(out, "wire %s a step, skipped steps %" PRId64 ", first step after %s s, all %s s",
                  bytes_text(a, summary->wire_bytes_per_step), summary->skipped_steps,
                  fixed(b, summary->time_to_first_step_s, 1), fixed(c, summary->seconds, 1));
    if (isfinite(summary->samples_per_dollar)) {
        (void)fprintf(out, ", %s samples per dollar", dp_grouped(d, summary->samples_per_dollar));
    }
    (void)fprintf(out, "\n");
}

static void print_staleness(const struct dp_run_summary *summary, FILE *out)
{
    char a[CELL_BYTES];
    double count = 0, sum = 0;
    size_t most = 0;

    for (size_t i = 0; i < summary->staleness_count; i++) {
        count += (double)summary->staleness[i];
        sum += (double)i * (double)summary->staleness[i];
        most = summary->staleness[i] > 0 ? i : most;
    }
    if (count > 0) {
        (void)fprintf(
            out,
            "staleness: weights of %.0f gradients lacked %s of other ranks on average, %zu "
            "at most\n",
            count, fixed(a, sum / count, 2), most);
    }
}

/* Columns are as wide as their headings, but for the two that hold texts. */
static const char *const part_headings[] = {
#define X(name, key, heading) heading,
    DP_STEP_PARTS(X)
#undef X
};

enum { PART_WIDTH = 8, HOST_MOST = 24, CPUS_MOST = 16 };

struct widths {
    int host, cpus;
};

static int wider(int width, const char *text, int most)
{
    const int length = (int)strlen(text), bounded = length < most ? length : most;

    return bounded > width ? bounded : width;
}

static void print_headings(const struct widths *widths, FILE *out)
{
    (void)fprintf(out, "%4s  %-*s  %-*s  %7s  %9s  %7s  %7s |", "rank", widths->host, "host",
                  widths->cpus, "cpus", "threads", "samples/s", "scaling", "compute");
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        (void)fprintf(out, " %*s", PART_WIDTH, part_headings[i]);
    }
    (void)fprintf(out, " = %*s ms | %6s  %9s\n", PART_WIDTH, "step", "hidden", "memory");
}

static void print_rank(const struct dp_run_rank *rank, const struct widths *widths, FILE *out)
{
    char a[CELL_BYTES], b[CELL_BYTES], c[CELL_BYTES], host[HOST_MOST + 1];
    double step_ms = 0;

    (void)dp_text_clean(rank->host, host, sizeof(host));
    (void)fprintf(out, "%4d  %-*s  %-*.*s  %7d  %9s  %7s  %7s |", rank->rank, widths->host, host,
                  widths->cpus, CPUS_MOST, or_dash(rank->cpus), rank->threads,
                  dp_grouped(a, rank->samples_per_second), percent(b, rank->scaling_efficiency),
                  percent(c, rank->compute_efficiency));
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        step_ms += rank->step_ms[i];
        (void)fprintf(out, " %*s", PART_WIDTH, fixed(a, rank->step_ms[i], 2));
    }
    (void)fprintf(out, " = %*s ms | %6s  %9s\n", PART_WIDTH, fixed(a, step_ms, 2),
                  fixed(b, rank->hidden_comm_ms, 2), bytes_text(c, rank->peak_rss_bytes));
}

void dp_run_summary_print(const struct dp_run_summary *summary, FILE *out)
{
    struct widths widths = {.host = 4, .cpus = 4};

    print_head(summary, out);
    print_rates(summary, out);
    print_staleness(summary, out);
    for (int i = 0; i < summary->rank_count; i++) {
        widths.host = wider(widths.host, summary->ranks[i].host, HOST_MOST);
        widths.cpus = wider(widths.cpus, summary->ranks[i].cpus, CPUS_MOST);
    }
    print_headings(&widths, out);
    for (int i = 0; i < summary->rank_count; i++) {
        print_rank(&summary->ranks[i], &widths, out);
    }
    if (summary->verdict != NULL) {
        dp_text_line(out, "verdict: %s", summary->verdict);
    }
    (void)fflush(out);
}
