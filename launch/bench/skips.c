/*
 * skips.c - ways to share that are left out, while the others are measured.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "launch/bench/bench.h"

/* Which strategies can run here. */
#include "collectives/exchange/strategy_select.h"
#include "collectives/strategies/comm.h"

/* What was logged while a way to share was tried. */
static _Thread_local struct dp_log_capture attempt;

/* `tried`: its parts can run here. */
static void leave_out(struct dp_bench *bench, const char *way, dp_status status, bool tried,
                      const char *why)
{
    struct dp_bench_skipped *skipped = &bench->skipped;

    dp_bench_rows_note(&bench->rows, "skipped %s: %s", way, why);
    if (skipped->first[0] == '\0') {
        (void)snprintf(skipped->first, sizeof(skipped->first), "%s: %s", way, why);
    }
    if (skipped->status != DP_ERR_UNAVAILABLE) {
        skipped->status = status;
    }
    skipped->tried = skipped->tried || tried;
}

dp_status dp_bench_usable(struct dp_bench *bench, const struct dp_group *group,
                          const char *strategy, bool *usable)
{
    const struct dp_plugin *plugin =
        dp_plugin_find(&dp_strategies, strategy, strcspn(strategy, ":"));
    const char *why_not = "it shares nothing";

    if (plugin == NULL || ((const struct dp_strategy *)plugin)->sum != NULL) {
        DP_TRY(dp_strategy_select_supports(group, strategy, &why_not));
    }
    *usable = why_not == NULL;
    if (!*usable) {
        leave_out(bench, strategy, DP_ERR_UNAVAILABLE, false, why_not);
    }
    return DP_OK;
}

static bool left_out(dp_status status)
{
    return status == DP_ERR_UNAVAILABLE || status == DP_ERR_CONFIG;
}

void dp_bench_try_begin(const struct dp_group *group)
{
    dp_log_capture_begin(&attempt, group->rank == 0 ? DP_LOG_ERROR : DP_LOG_DEBUG);
}

void dp_bench_try_end(const struct dp_group *group, dp_status status)
{
    const bool reports = group->rank == 0 && status != DP_OK && !left_out(status);

    dp_log_capture_end(&attempt, reports ? DP_LOG_PRINT : DP_LOG_DROP);
}

void dp_bench_leave_out(struct dp_bench *bench, const char *strategy, const char *compressor,
                        dp_status status, const char *why)
{
    char way[DP_BENCH_WAY];

    (void)snprintf(way, sizeof(way), "%s with compressor %s", strategy, compressor);
    leave_out(bench, way, status, true, why);
}

bool dp_bench_skips(struct dp_bench *bench, const char *strategy, const char *compressor,
                    dp_status status)
{
    const char *why = dp_log_captured(&attempt);

    if (left_out(status)) {
        dp_bench_leave_out(bench, strategy, compressor, status,
                           *why != '\0' ? why : "another rank cannot take part");
    }
    return left_out(status);
}

dp_status dp_bench_none_left(const struct dp_bench *bench)
{
    const struct dp_bench_skipped *skipped = &bench->skipped;
    char names[256] = "";

    if (bench->rows.file == NULL) {
        return skipped->status; /* rank 0 reports it */
    }
    if (!skipped->tried) {
        dp_comm_list_sharing(bench->world->train, names, sizeof(names));
    }
    return DP_FAIL(skipped->status, "no strategy of '%s' can run here (%s)%s%s",
                   bench->options->strategies, skipped->first,
                   skipped->tried ? "" : "; these can: ", names);
}
