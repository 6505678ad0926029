#include "runtime/baseline.h"

#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/transport.h"
#include "runtime/report/ledger.h"

enum {
    WARM_STEPS = 2,
    PIECES = 3,      /* measured one after another: their spread tells the noise */
    PIECE_STEPS = 2, /* at least */
    MAX_STEPS = 4096
};

/* Each piece takes at least so long: long or quick. */
static const double piece_lengths_s[2] = {0.4, 0.0};

static dp_status run_piece(struct dp_trainer *t, double piece_seconds, double *seconds,
                           uint64_t *rows, struct dp_ledger *ledger)
{
    const uint64_t begin_ns = dp_now_ns();
    struct dp_step_report report;

    *rows = 0;
    for (int i = 0; i < MAX_STEPS / PIECES - 1; i++) {
        DP_TRY(dp_trainer_step(t, &report));
        *rows += t->batch.rows;
        dp_ledger_mark(ledger, t->batch.rows, t->batch.rows, 0);
        *seconds = (double)(dp_now_ns() - begin_ns) / 1e9;
        if (i + 1 >= PIECE_STEPS && *seconds >= piece_seconds) {
            break;
        }
    }
    return DP_OK;
}

static dp_status run_alone(struct dp_trainer *t, bool quick, struct dp_baseline *out)
{
    double seconds = 0.0, step_ms[DP_STEP_PART_COUNT];
    uint64_t rows = 0;
    struct dp_step_report report;
    struct dp_ledger ledger;

    for (int i = 0; i < WARM_STEPS; i++) {
        DP_TRY(dp_trainer_step(t, &report));
    }
    dp_ledger_init(&ledger, 0, 0);
    *out = (struct dp_baseline){0.0, 0.0, 0.0, 0.0};
    for (int i = 0; i < PIECES; i++) {
        double piece_s = 0.0, rate;
        uint64_t piece_rows = 0;
        DP_TRY(run_piece(t, piece_lengths_s[quick], &piece_s, &piece_rows, &ledger));
        rate = (double)piece_rows / piece_s;
        out->fastest = rate > out->fastest ? rate : out->fastest;
        out->slowest = i == 0 || rate < out->slowest ? rate : out->slowest;
        seconds += piece_s;
        rows += piece_rows;
    }
    dp_ledger_means(&ledger, step_ms);
    out->samples_per_second = (double)rows / seconds;
    out->compute_ms = dp_compute_ms(step_ms);
    return DP_OK;
}

static dp_status measure(struct dp_trainer *trainer, int threads, bool quick,
                         struct dp_baseline *out)
{
    const size_t ranks = (size_t)trainer->group->size;
    struct dp_trainer *alone = NULL;
    struct dp_group *group = NULL;
    dp_status status;

    DP_TRY(dp_local_alone(&group));
    const struct dp_trainer_config config = {
        .config = trainer->config,
        .model = trainer->model,
        .device = trainer->device,
        .group = group,
        .data = trainer->data,
        .threads = threads,
        .global_batch = (trainer->global_batch + ranks - 1) / ranks,
        .total_steps = MAX_STEPS,
        .schedule_steps = trainer->schedule_steps,
        .lender = trainer,
    };
    status = dp_trainer_create(&config, &alone);
    if (status == DP_OK) {
        dp_trainer_copy_state(alone, trainer);
        status = run_alone(alone, quick, out);
    }
    dp_trainer_destroy(alone);
    dp_group_destroy(group);
    return status;
}

dp_status dp_baseline_measure(struct dp_trainer *trainer, int threads, bool quick,
                              struct dp_baseline *out)
{
    DP_SPAN(DP_PHASE_MEASURE, (int64_t)trainer->step);
    struct {
        dp_status status;
        struct dp_baseline baseline;
    } mine, *all;
    dp_status status;

    memset(&mine, 0, sizeof(mine));
    all = dp_zalloc((size_t)trainer->group->size, sizeof(*all));
    if (all == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "baseline");
    }
    if (trainer->group->rank == 0) {
        mine.status = measure(trainer, threads, quick, &mine.baseline);
    }
    status = dp_exchange_gather(trainer->exchange, &mine, sizeof(mine), all);
    if (status == DP_OK) {
        status = all[0].status;
        *out = all[0].baseline;
    }
    dp_free(all);
    return status;
}
