/*
 * bench_checkpoint.c - how long training is held up by a checkpoint, against what writing it takes.
 *
 *   bench_checkpoint MODEL.CFG [flags of ddp_train]
 *
 * Alone or under mpirun. Pieces of training that begin with a checkpoint and pieces without one, of
 * as many steps, follow each other in turns; a piece is so long that the write ends within it, or is
 * waited for. One JSON line with medians in milliseconds: `snapshot`, for which training stands
 * still; `delay`, how much longer a piece takes with a checkpoint: the snapshot, and the time that
 * writing takes from cores and memory; `write`, the write beside training; `write_alone`, with
 * nothing beside it. Ratios are of `delay` and of `snapshot` to `write_alone`.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/trace.h"
#include "runtime/run.h"

enum { ROUNDS = 15, WARM_STEPS = 5, STEPS_MOST = 100000 };

struct bench {
    double snapshot[ROUNDS], with[ROUNDS], without[ROUNDS], delay[ROUNDS], write[ROUNDS];
    double alone[ROUNDS];
};

static double ms_since(uint64_t begin_ns)
{
    return (double)(dp_now_ns() - begin_ns) / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(*values), compare);
    return values[ROUNDS / 2];
}

static dp_status train(struct dp_training *run, int steps)
{
    struct dp_step_report report;

    for (int i = 0; i < steps; i++) {
        DP_TRY(dp_trainer_step(run->trainer, &report));
    }
    return DP_OK;
}

/* All ranks begin together; only rank 0 writes. */
static dp_status wait_for_write(struct dp_training *run)
{
    const dp_status status = run->writer != NULL ? dp_writer_wait(run->writer) : DP_OK;

    return dp_exchange_agree(run->trainer->exchange, status);
}

static double write_ms(const struct dp_training *run)
{
    return run->writer != NULL ? (double)dp_writer_ns(run->writer) / 1e6 : 0.0;
}

/* A piece of training; with a checkpoint it ends when that is on disk. */
static dp_status piece(struct dp_training *run, int steps, bool saves, double *ms, double *snapshot)
{
    const uint64_t begin_ns = dp_now_ns();

    if (saves) {
        DP_TRY(dp_run_save(run));
        *snapshot = ms_since(begin_ns);
    }
    DP_TRY(train(run, steps));
    DP_TRY(wait_for_write(run));
    *ms = ms_since(begin_ns);
    return DP_OK;
}

/* How many steps take a little longer than twice the write; equal on all ranks. */
static dp_status piece_length(struct dp_training *run, int *steps)
{
    uint64_t begin_ns;
    double longest;

    DP_TRY(train(run, WARM_STEPS));
    DP_TRY(dp_run_save(run));
    DP_TRY(wait_for_write(run));
    begin_ns = dp_now_ns();
    DP_TRY(train(run, WARM_STEPS));
    longest = 2.0 * write_ms(run) / (ms_since(begin_ns) / WARM_STEPS) + 2.0;
    *steps = longest < STEPS_MOST ? (int)longest : STEPS_MOST;
    return dp_exchange_broadcast(run->trainer->exchange, steps, sizeof(*steps), 0);
}

static dp_status measure(struct dp_training *run, struct bench *b, int *steps)
{
    DP_TRY(piece_length(run, steps));
    for (int i = 0; i < ROUNDS; i++) {
        DP_TRY(piece(run, *steps, true, &b->with[i], &b->snapshot[i]));
        b->write[i] = write_ms(run);
        DP_TRY(piece(run, *steps, false, &b->without[i], NULL));
        b->delay[i] = b->with[i] - b->without[i];
        DP_TRY(dp_run_save(run));
        DP_TRY(wait_for_write(run));
        b->alone[i] = write_ms(run);
        DP_TRY(train(run, 1));
    }
    return DP_OK;
}

static void print(const struct dp_training *run, struct bench *b, int steps)
{
    const double alone = median(b->alone), delay = median(b->delay), snapshot = median(b->snapshot);

    printf("{\"model\":\"%s\",\"ranks\":%d,\"strategy\":\"%s\",\"parameters\":%zu,\"rounds\":%d,"
           "\"steps\":%d,\"piece\":%.2f,\"piece_without\":%.2f,\"snapshot\":%.3f,\"delay\":%.3f,"
           "\"write\":%.2f,\"write_alone\":%.2f,\"delay_ratio\":%.4f,\"snapshot_ratio\":%.4f}\n",
           run->config->name, run->world->train->size, run->trainer->exchange->label,
           run->model->parameters, ROUNDS, steps, median(b->with), median(b->without), snapshot,
           delay, median(b->write), alone, delay / alone, snapshot / alone);
}

static dp_status bench(struct dp_training *run)
{
    struct bench b;
    int steps = 0;

    DP_TRY(dp_run_configure(run));
    DP_TRY(dp_run_setup(run));
    DP_TRY(measure(run, &b, &steps));
    if (dp_run_leads(run)) {
        print(run, &b, steps);
    }
    return DP_OK;
}

int main(int argc, char **argv)
{
    struct dp_training run = {.exit = DP_RUN_FINISHED};
    struct dp_world *world = NULL;
    struct dp_cli cli;
    dp_status status = dp_cli_parse(argc, argv, dp_world_launch_rank() > 0, &cli);

    if (status == DP_OK) {
        cli.steps = INT32_MAX;
        cli.quiet = true;
        status = dp_world_create(&world);
    }
    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    run.cli = &cli;
    run.world = world;
    dp_progress_init(&run.progress, stdout, false, true);
    status = bench(&run);
    if (status != DP_OK) {
        dp_world_abort(world, dp_status_exit(status));
    }
    dp_run_teardown(&run);
    dp_world_destroy(world);
    return dp_status_exit(status);
}
