#include "runtime/report/record/comparison.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/report/figure_text.h"
#include "runtime/report/page/page_step.h"

/* ---- what was changed ---- */

static void add_difference(struct dp_comparison *c, const char *group, const char *key,
                           const char *before, const char *after)
{
    struct dp_difference *d = &c->differences[c->difference_count];

    if (c->difference_count == DP_DIFFERENCES_MOST) {
        c->left_out++;
        return;
    }
    d->group = group;
    (void)snprintf(d->key, sizeof(d->key), "%s", key);
    (void)snprintf(d->before, sizeof(d->before), "%s", before);
    (void)snprintf(d->after, sizeof(d->after), "%s", after);
    c->difference_count++;
}

static dp_status compare_configs(struct dp_comparison *c)
{
    struct dp_config_keys before, after;
    dp_status status = DP_OK;

    if (c->before->config == NULL || c->after->config == NULL) {
        return DP_OK; /* a note of the record says so */
    }
    DP_TRY(dp_config_keys_parse(c->before->config, &before));
    status = dp_config_keys_parse(c->after->config, &after);
    for (int i = 0; status == DP_OK && i < before.count; i++) {
        const char *other = dp_config_keys_find(&after, before.entries[i].key);
        if (other == NULL || strcmp(other, before.entries[i].value) != 0) {
            add_difference(c, "configuration", before.entries[i].key, before.entries[i].value,
                           other == NULL ? "-" : other);
        }
    }
    for (int i = 0; status == DP_OK && i < after.count; i++) {
        if (dp_config_keys_find(&before, after.entries[i].key) == NULL) {
            add_difference(c, "configuration", after.entries[i].key, "-", after.entries[i].value);
        }
    }
    dp_config_keys_release(&before);
    if (status == DP_OK) {
        dp_config_keys_release(&after);
    }
    return status;
}

static const struct {
    const char *group, *key;
} run_keys[] = {{"build", "version"},  {"run", "exit"},           {"run", "world_size"},
                {"run", "device"},     {"run", "precision"},      {"run", "strategy"},
                {"run", "compressor"}, {"run", "plan"},           {"run", "global_batch"},
                {"run", "steps"},      {"run", "baseline.source"}};

static const struct dp_report_row *run_row(const char *key)
{
    const struct dp_report_row *row;
    int i = 0;

    while ((row = dp_report_run_row(i)) != NULL && strcmp(row->key, key) != 0) {
        i++;
    }
    return row;
}

/* Whether two texts are the same, but for the times that a plan was chosen by. */
static bool is_same_plan(const char *before, const char *after)
{
    static const char times[] = " (measured: ";
    const char *first = strstr(before, times), *second = strstr(after, times);

    return first != NULL && second != NULL
               ? first - before == second - after &&
                     memcmp(before, after, (size_t)(first - before)) == 0
               : strcmp(before, after) == 0;
}

static void compare_runs(struct dp_comparison *c)
{
    for (size_t i = 0; i < sizeof(run_keys) / sizeof(run_keys[0]); i++) {
        const struct dp_report_row *row = run_row(run_keys[i].key);
        char first[DP_FIGURE_BYTES], second[DP_FIGURE_BYTES];
        const char *before, *after;

        if (row == NULL) {
            continue;
        }
        before = dp_figure_value(first, row, &c->before->summary);
        after = dp_figure_value(second, row, &c->after->summary);
        if (!is_same_plan(before, after)) {
            add_difference(c, run_keys[i].group, run_keys[i].key, before, after);
        }
    }
}

/* What the ranks have in a row, in their order: "node1 x4, node2 x4". */
static void list_ranks(const struct dp_run_summary *s, const struct dp_report_row *row,
                       char text[DP_CONFIG_VALUE_BYTES])
{
    char first[DP_FIGURE_BYTES], second[DP_FIGURE_BYTES];
    size_t used = 0;

    (void)snprintf(text, DP_CONFIG_VALUE_BYTES, "-");
    for (int i = 0; i < s->rank_count && used < DP_CONFIG_VALUE_BYTES;) {
        const char *value = dp_figure_value(first, row, &s->ranks[i]);
        int same = 1, length;

        while (i + same < s->rank_count &&
               strcmp(value, dp_figure_value(second, row, &s->ranks[i + same])) == 0) {
            same++;
        }
        length = snprintf(text + used, DP_CONFIG_VALUE_BYTES - used, "%s%s x%d",
                          used > 0 ? ", " : "", value, same);
        used += length > 0 ? (size_t)length : 0;
        i += same;
    }
}

static void compare_hosts(struct dp_comparison *c)
{
    static const char *const keys[] = {"host", "cpus", "threads"};
    const struct dp_report_row *row;

    if (c->before->summary.rank_count == 0 || c->after->summary.rank_count == 0) {
        return;
    }
    for (int i = 0; (row = dp_report_rank_row(i)) != NULL; i++) {
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            char before[DP_CONFIG_VALUE_BYTES], after[DP_CONFIG_VALUE_BYTES];
            if (strcmp(row->key, keys[k]) != 0) {
                continue;
            }
            list_ranks(&c->before->summary, row, before);
            list_ranks(&c->after->summary, row, after);
            if (strcmp(before, after) != 0) {
                add_difference(c, "host", keys[k], before, after);
            }
        }
    }
}

/* ---- what that did ---- */

static void add_change(struct dp_comparison *c, struct dp_change change)
{
    if (c->change_count < DP_CHANGES_MOST && (isfinite(change.before) || isfinite(change.after))) {
        c->changes[c->change_count++] = change;
    }
}

/* Twice the standard error of a difference. */
static double noise_of(double before_error, double after_error)
{
    return 2.0 * sqrt(before_error * before_error + after_error * after_error);
}

/* The standard error of a run's scaling efficiency. */
static double efficiency_error(const struct dp_run_summary *s, const struct dp_history_pace *pace)
{
    const double rate = pace->rate_error / pace->rate;
    const double alone = s->world_size == 1 ? 0.0 : s->baseline_spread / 4.0;

    return s->world_size == 1 ? 0.0 : s->scaling_efficiency * sqrt(rate * rate + alone * alone);
}

static double most_memory(const struct dp_run_summary *s)
{
    double most = (double)NAN;

    for (int i = 0; i < s->rank_count; i++) {
        if (s->ranks[i].peak_rss_bytes >= 0) {
            most = fmax(most, (double)s->ranks[i].peak_rss_bytes);
        }
    }
    return most;
}

static double hidden_ms(const struct dp_run_summary *s)
{
    double sum = 0.0;

    for (int i = 0; i < s->rank_count; i++) {
        sum += s->ranks[i].hidden_comm_ms;
    }
    return s->rank_count > 0 ? sum / s->rank_count : (double)NAN;
}

/* The step, by run.json or else by its lines in metrics.jsonl. */
static double step_ms(const struct dp_run_summary *s, const struct dp_history_pace *pace)
{
    double sum = 0.0;

    for (int i = 0; i < s->rank_count; i++) {
        sum += dp_step_total_ms(s->ranks[i].step_ms);
    }
    return s->rank_count > 0 ? sum / s->rank_count : pace->ms;
}

static void compare_rates(struct dp_comparison *c, const struct dp_history_pace *a,
                          const struct dp_history_pace *b)
{
    const struct dp_run_summary *before = &c->before->summary, *after = &c->after->summary;

    add_change(c, (struct dp_change){"samples/s", DP_REPORT_RATE, before->samples_per_second,
                                     after->samples_per_second,
                                     noise_of(a->rate_error, b->rate_error), 1});
    add_change(c, (struct dp_change){
                      "scaling efficiency", DP_REPORT_FRACTION, before->scaling_efficiency,
                      after->scaling_efficiency,
                      noise_of(efficiency_error(before, a), efficiency_error(after, b)), 1});
    add_change(c,
               (struct dp_change){
                   "one rank alone", DP_REPORT_RATE, before->single_rank_samples_per_second,
                   after->single_rank_samples_per_second,
                   noise_of(before->baseline_spread / 4.0 * before->single_rank_samples_per_second,
                            after->baseline_spread / 4.0 * after->single_rank_samples_per_second),
                   1});
    add_change(c, (struct dp_change){"samples per dollar", DP_REPORT_PER_DOLLAR,
                                     before->samples_per_dollar, after->samples_per_dollar,
                                     noise_of(before->samples_per_dollar * a->rate_error / a->rate,
                                              after->samples_per_dollar * b->rate_error / b->rate),
                                     1});
}

/* Parts that the processor fills vary as the step does; waiting takes what is left over. */
static bool is_computing(int part)
{
    return part == DP_PART_COPY || part == DP_PART_FORWARD || part == DP_PART_BACKWARD ||
           part == DP_PART_OPTIMIZER;
}

static void compare_steps(struct dp_comparison *c, const struct dp_history_pace *a,
                          const struct dp_history_pace *b)
{
    const struct dp_run_summary *before = &c->before->summary, *after = &c->after->summary;
    const double noise = noise_of(a->ms_error, b->ms_error);

    add_change(c, (struct dp_change){"step, ms", DP_REPORT_PARTS, step_ms(before, a),
                                     step_ms(after, b), noise, -1});
    for (int i = 0; i < DP_STEP_PART_COUNT; i++) {
        const double first = dp_step_mean_ms(before, i), second = dp_step_mean_ms(after, i);
        add_change(c, (struct dp_change){dp_step_part_heading(i), DP_REPORT_PARTS, first, second,
                                         is_computing(i) ? noise_of(first * a->ms_error / a->ms,
                                                                    second * b->ms_error / b->ms)
                                                         : noise,
                                         -1});
    }
    add_change(c, (struct dp_change){"hidden", DP_REPORT_PARTS, hidden_ms(before), hidden_ms(after),
                                     noise, 0});
}

/* How much these differ from run to run is not known. */
static void compare_results(struct dp_comparison *c)
{
    const struct dp_run_summary *before = &c->before->summary, *after = &c->after->summary;
    const double unknown = (double)NAN;

    add_change(c,
               (struct dp_change){"test accuracy", DP_REPORT_ACCURACY, before->final_test_accuracy,
                                  after->final_test_accuracy, unknown, 1});
    add_change(c,
               (struct dp_change){"mean absolute error", DP_REPORT_LOSS, before->final_test_error,
                                  after->final_test_error, unknown, -1});
    add_change(c, (struct dp_change){"test loss", DP_REPORT_LOSS, before->final_test_loss,
                                     after->final_test_loss, unknown, -1});
    add_change(c, (struct dp_change){"train loss", DP_REPORT_LOSS, before->final_train_loss,
                                     after->final_train_loss, unknown, -1});
    add_change(c,
               (struct dp_change){"first step, s", DP_REPORT_SECONDS, before->time_to_first_step_s,
                                  after->time_to_first_step_s, unknown, -1});
    add_change(c, (struct dp_change){"all, s", DP_REPORT_SECONDS, before->seconds, after->seconds,
                                     unknown, -1});
    add_change(c, (struct dp_change){"memory of a rank", DP_REPORT_BYTES, most_memory(before),
                                     most_memory(after), unknown, -1});
}

enum dp_change_verdict dp_change_verdict(const struct dp_change *change)
{
    const double difference = change->after - change->before;

    if (!isfinite(difference) || !isfinite(change->noise)) {
        return DP_CHANGE_UNKNOWN;
    }
    if (fabs(difference) <= change->noise || change->direction == 0) {
        return DP_CHANGE_SAME;
    }
    return difference * change->direction > 0.0 ? DP_CHANGE_BETTER : DP_CHANGE_WORSE;
}

const char *dp_change_verdict_text(enum dp_change_verdict verdict)
{
    static const char *const texts[] = {[DP_CHANGE_UNKNOWN] = "-",
                                        [DP_CHANGE_SAME] = "in noise",
                                        [DP_CHANGE_BETTER] = "better",
                                        [DP_CHANGE_WORSE] = "worse"};

    return texts[verdict];
}

dp_status dp_comparison_create(const struct dp_run_record *before,
                               const struct dp_run_record *after, struct dp_comparison **out)
{
    const struct dp_history_pace a = dp_history_pace(&before->history);
    const struct dp_history_pace b = dp_history_pace(&after->history);
    struct dp_comparison *c = dp_zalloc(1, sizeof(*c));
    dp_status status;

    if (c == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "comparison of two runs");
    }
    c->before = before;
    c->after = after;
    status = compare_configs(c);
    if (status != DP_OK) {
        dp_free(c);
        return status;
    }
    compare_hosts(c);
    compare_runs(c);
    compare_rates(c, &a, &b);
    compare_steps(c, &a, &b);
    compare_results(c);
    *out = c;
    return DP_OK;
}
