#include "runtime/measure/overlap.h"

#include <string.h>

#include "base/mem.h"
#include "base/statistics.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/update/deferred_update.h"

enum { TRIALS = 2 * DP_OVERLAP_TRIALS };

static void set_run(struct dp_trainer *t, bool on)
{
    const enum dp_run run = on ? DP_RUN_ON_THREAD : DP_RUN_AT_WAIT;

    if (run !=
        dp_exchange_run(dp_trainer_exchange(t))) { /* else a deferred bucket may be on its way */
        dp_exchange_set_run(dp_trainer_exchange(t), run);
    }
}

void dp_overlap_begin(struct dp_overlap *o, struct dp_trainer *t, uint64_t total_steps)
{
    const int wanted = dp_trainer_configuration(t)->comm.overlap;
    const uint64_t needed = DP_OVERLAP_SKIP + TRIALS;

    memset(o, 0, sizeof(*o));
    dp_deferred_update_allow(t, false);
    o->first = dp_trainer_steps(t);
    if (wanted == DP_OVERLAP_AUTO && dp_trainer_group(t)->size > 1 &&
        !dp_config_stale(dp_trainer_configuration(t)) && dp_exchange_sums(dp_trainer_exchange(t)) &&
        total_steps - dp_trainer_steps(t) > needed) {
        o->trying = true;
        return;
    }
    o->on = wanted == DP_OVERLAP_ON && dp_trainer_group(t)->size > 1;
    set_run(t, o->on);
    dp_deferred_update_allow(t, o->on);
}

/* Off, on, on, off ...: a drift of the machine's speed affects both ways alike. */
static int way_of(const struct dp_overlap *o, uint64_t step)
{
    const uint64_t i = step - o->first - DP_OVERLAP_SKIP;

    return (i & 3) == 1 || (i & 3) == 2;
}

void dp_overlap_before(struct dp_overlap *o, struct dp_trainer *t)
{
    if (o->trying && dp_trainer_steps(t) >= o->first + DP_OVERLAP_SKIP) {
        const bool on = way_of(o, dp_trainer_steps(t)) == 1;
        dp_deferred_update_allow(t, on);
        set_run(t, on);
    }
}

static dp_status decide(struct dp_overlap *o, struct dp_trainer *t)
{
    const int ranks = dp_trainer_group(t)->size;
    double mine[2], *all = dp_zalloc((size_t)ranks, sizeof(mine));
    dp_status status;

    if (all == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "overlap of %d ranks", ranks);
    }
    for (int way = 0; way < 2; way++) {
        dp_sort(o->step_ms[way], o->tried[way]);
        mine[way] = dp_median(o->step_ms[way], o->tried[way]);
    }
    status = dp_exchange_gather(dp_trainer_exchange(t), mine, sizeof(mine), all);
    for (int i = 0; i < 2 * ranks; i++) {
        o->median_ms[i % 2] = all[i] > o->median_ms[i % 2] ? all[i] : o->median_ms[i % 2];
    }
    dp_free(all);
    DP_TRY(status);
    o->on = o->median_ms[1] < o->median_ms[0];
    o->trying = false;
    set_run(t, o->on);
    dp_deferred_update_allow(t, o->on);
    return DP_OK;
}

dp_status dp_overlap_after(struct dp_overlap *o, struct dp_trainer *t, uint64_t step_ns)
{
    const uint64_t done = dp_trainer_steps(t) - 1; /* the step that this time is of */

    if (!o->trying || done < o->first + DP_OVERLAP_SKIP) {
        return DP_OK;
    }
    const uint64_t i = done - o->first - DP_OVERLAP_SKIP;
    const int way = way_of(o, done);
    /* A step that defers work to the next one, but has none from the one before, would look too
     * fast. */
    if (!(dp_exchange_plan(dp_trainer_exchange(t))->deferred > 0 && (i & 3) == 1)) {
        o->step_ms[way][o->tried[way]++] = (double)step_ns / 1e6;
    }
    DP_TRY((i & 3) == 2 ? dp_deferred_update_finish(t) : DP_OK);
    return i + 1 == TRIALS ? decide(o, t) : DP_OK;
}
