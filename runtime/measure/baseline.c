#include "runtime/measure/baseline.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/memory_limit.h"
#include "base/trace.h"
#include "collectives/core/transport.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/report/ledger.h"
#include "runtime/trainer/compute/graph_capture.h"
#include "runtime/trainer/prepare/memory_plan.h"
#include "runtime/trainer/update/deferred_update.h"

enum {
    WARM_STEPS = DP_GRAPH_CAPTURE_PLAIN + 1, /* the step that is recorded is not measured */
    PIECES = 3,      /* measured one after another: their spread shows the noise */
    PIECE_STEPS = 2, /* at least */
    MAX_STEPS = 4096
};

/* Each piece takes at least so long: long or quick. */
static const double piece_lengths_s[2] = {0.4, 0.0};

/* Bytes of state that are made and copied in a second, at least. */
static const double copied_per_s = 5e8;

/* What the measuring rank measures with. */
struct bench {
    struct dp_group *group;   /* owned; of this rank alone */
    struct dp_trainer *alone; /* owned */
    const struct dp_stop *stop;
    struct dp_ledger ledger;
    double piece_s, seconds;
    double step_s; /* of the last step that warmed up */
    uint64_t rows;
};

static dp_status bench_step(struct bench *b)
{
    struct dp_step_report report;

    return dp_stop_asked(b->stop) != DP_STOP_NONE ? DP_STOPPED : dp_trainer_step(b->alone, &report);
}

/* A trainer of this rank alone, with a copy of all state, and its first steps. */
static dp_status bench_open(struct bench *b, struct dp_trainer *trainer, int threads)
{
    struct dp_trainer_config config = dp_trainer_lend(trainer);

    DP_TRY(dp_local_alone(&b->group));
    config.group = b->group;
    config.threads = threads;
    config.total_steps = MAX_STEPS;
    DP_TRY(dp_trainer_create(&config, &b->alone));
    DP_TRY(dp_trainer_copy_state(b->alone, trainer));
    for (int i = 0; i < WARM_STEPS; i++) {
        const uint64_t begin_ns = dp_now_ns();
        DP_TRY(bench_step(b));
        b->step_s = (double)(dp_now_ns() - begin_ns) / 1e9;
        dp_trace_beat();
    }
    dp_ledger_init(&b->ledger, 0, 0);
    return DP_OK;
}

/* One more piece; `out` is the result of all so far. */
static dp_status bench_piece(struct bench *b, struct dp_baseline *out)
{
    const uint64_t begin_ns = dp_now_ns();
    double seconds = 0.0, rate, step_ms[DP_STEP_PART_COUNT];
    uint64_t rows = 0;

    dp_ledger_restart(&b->ledger, 0);
    for (int i = 0; i < MAX_STEPS / PIECES - 1; i++) {
        DP_TRY(bench_step(b));
        rows += dp_trainer_batch(b->alone)->rows;
        dp_ledger_mark(&b->ledger, dp_trainer_batch(b->alone)->rows,
                       dp_trainer_batch(b->alone)->rows, 0);
        seconds = (double)(dp_now_ns() - begin_ns) / 1e9;
        if (i + 1 >= PIECE_STEPS && seconds >= b->piece_s) {
            break;
        }
    }
    rate = (double)rows / seconds;
    out->fastest = rate > out->fastest ? rate : out->fastest;
    out->slowest = b->rows == 0 || rate < out->slowest ? rate : out->slowest;
    b->seconds += seconds;
    b->rows += rows;
    dp_ledger_means(&b->ledger, step_ms);
    out->samples_per_second = (double)b->rows / b->seconds;
    out->compute_ms = dp_compute_ms(step_ms);
    return DP_OK;
}

static void bench_close(struct bench *b)
{
    dp_trainer_destroy(b->alone);
    dp_group_destroy(b->group);
}

/* Bytes of the copy of all state. */
static size_t state_bytes(const struct dp_trainer *t)
{
    const struct dp_memory_plan plan = {
        .config = dp_trainer_configuration(t),
        .model = dp_trainer_model(t),
    };

    return dp_memory_plan_state(&plan);
}

/* Whether the host has memory for another copy of the state; without this check it would kill a
 * rank. A GPU refuses the allocation itself. */
static dp_status bench_check(const struct dp_trainer *t)
{
    const size_t needed = state_bytes(t);
    struct dp_memory_limits limits;

    dp_memory_limits_read("", &limits);
    for (int i = 0; i < limits.count; i++) {
        if (needed > limits.limit[i].available) {
            return DP_ERR_NOMEM;
        }
    }
    return DP_OK;
}

/* There may be memory for the state once, but not twice: then training goes on without a
 * baseline. */
static dp_status bench_try(struct bench *b, struct dp_trainer *trainer, int threads,
                           struct dp_baseline *out)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = bench_check(trainer);
    status = status == DP_OK ? bench_open(b, trainer, threads) : status;
    dp_log_capture_end(&capture, DP_LOG_SOFTEN);
    if (status == DP_ERR_NOMEM) {
        DP_WARN(
            "there is no memory to measure one rank alone beside the training, so efficiency is "
            "not known; --baseline FILE takes it from another run");
        out->no_memory = true;
        return DP_OK;
    }
    return status == DP_OK || status == DP_STOPPED
               ? status
               : DP_FAIL(status, "one rank alone cannot be measured");
}

/* What rank 0, which measures, has for the others after a piece. */
struct piece {
    dp_status status;
    double expected_s; /* how long the next one may take */
    struct dp_baseline baseline;
};

/* Whether any rank was asked to stop. */
struct asked_call {
    struct dp_group *group;
    int goes_on;
};

static dp_status find_asked(void *arg, int index)
{
    struct asked_call *call = arg;

    (void)index;
    return dp_group_least(call->group, &call->goes_on);
}

/* A piece, after which ranks synchronise; -1 sets up the measurement. All have begun it together,
 * and so know for how long rank 0 is at work. */
static dp_status measure_piece(struct dp_trainer *trainer, int threads, struct bench *bench, int i,
                               struct piece *piece)
{
    struct dp_exchange *exchange = dp_trainer_exchange(trainer);
    struct asked_call call = {.group = dp_trainer_group(trainer)};

    if (call.group->rank == 0) {
        piece->status = i < 0 ? bench_try(bench, trainer, threads, &piece->baseline)
                              : bench_piece(bench, &piece->baseline);
        piece->expected_s = bench->piece_s + PIECE_STEPS * bench->step_s;
    }
    call.goes_on = dp_stop_asked(dp_trainer_stop(trainer)) == DP_STOP_NONE;
    DP_TRY(dp_exchange_call(exchange, find_asked, &call, 0));
    DP_TRY(dp_exchange_broadcast(exchange, piece, sizeof(*piece), 0));
    dp_trace_beat();
    DP_TRY(piece->status);
    return call.goes_on == 0 && i + 1 < PIECES ? DP_STOPPED : DP_OK;
}

/* Returns the measuring rank's status, or DP_STOPPED where a rank was asked to stop while pieces
 * are left. step_s: of the last step of all ranks; one rank alone takes about as long. */
static dp_status measure(struct dp_trainer *trainer, int threads, struct bench *bench,
                         double step_s, struct dp_baseline *out)
{
    struct piece piece;

    memset(&piece, 0, sizeof(piece));
    piece.expected_s = (double)state_bytes(trainer) / copied_per_s + WARM_STEPS * step_s;
    DP_TRY(dp_exchange_barrier(dp_trainer_exchange(trainer)));
    for (int i = -1; i < PIECES && !piece.baseline.no_memory; i++) {
        DP_EXPECT(piece.expected_s);
        DP_TRY(measure_piece(trainer, threads, bench, i, &piece));
    }
    *out = piece.baseline;
    return DP_OK;
}

dp_status dp_baseline_measure(struct dp_trainer *trainer, int threads, double step_s, bool quick,
                              struct dp_baseline *out)
{
    DP_SPAN(DP_PHASE_MEASURE, (int64_t)dp_trainer_steps(trainer));
    struct bench bench;
    dp_status status;

    DP_TRY(dp_deferred_update_finish(trainer));
    memset(&bench, 0, sizeof(bench));
    bench.stop = dp_trainer_stop(trainer);
    bench.piece_s = piece_lengths_s[quick];
    status = measure(trainer, threads, &bench, step_s, out);
    bench_close(&bench);
    return status;
}

double dp_baseline_mean(double before, double after)
{
    const int made = (before > 0.0) + (after > 0.0);

    return made > 0 ? (fmax(before, 0.0) + fmax(after, 0.0)) / made : (double)NAN;
}
