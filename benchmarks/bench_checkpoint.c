/*
 * bench_checkpoint.c - how long training is held up by a checkpoint, against what writing it takes.
 *
 *   bench_checkpoint MODEL.CFG [flags of ddp_train]
 *
 * Alone or under mpirun. Pieces of training that begin with a checkpoint and pieces without one, of
 * as many steps, follow each other in pairs, of which every other one is turned round, so that a
 * machine that grows slower or faster favours neither; a piece is so long that the write nearly
 * always ends within it, and is waited for otherwise. One JSON line with medians over pairs, in
 * milliseconds:
 *
 *   snapshot     for which training stands still
 *   delay        how much longer a piece takes with a checkpoint, and the quartiles of that
 *   preempted    what of the delay rank 0's training thread spent waiting for its own core
 *   write        the write beside training
 *   write_alone  with nothing beside it; what it then has of a core is write_core
 *
 * Ratios are of `delay` and of `snapshot` to `write_alone`.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/trace.h"
#include "runtime/run.h"

enum { ROUNDS = 200, WARM_STEPS = 5, TRIES = 5, STEPS_MOST = 1000 };
static const double measure_ms = 35e3; /* or until ROUNDS */

struct bench {
    double snapshot[ROUNDS], with[ROUNDS], without[ROUNDS], delay[ROUNDS], preempted[ROUNDS];
    double write[ROUNDS], alone[ROUNDS], core[ROUNDS];
    int rounds, steps;
};

/* One piece of training. */
struct piece {
    double ms, preempted, snapshot;
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

/* The value below which `share` of them lie. Sorts. */
static double quantile(double *values, int count, double share)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[(int)(share * (count - 1))];
}

static double median(const struct bench *b, double *values)
{
    return quantile(values, b->rounds, 0.5);
}

/* How long the calling thread has been ready to run while its core did something else. */
static double preempted_ms(void)
{
    char text[128] = "", *end = text;
    FILE *file = fopen("/proc/thread-self/schedstat", "r");
    const bool read = file != NULL && fgets(text, sizeof(text), file) != NULL;

    if (file != NULL) {
        (void)fclose(file);
    }
    (void)strtoull(text, &end, 10); /* how long it ran */
    return read ? (double)strtoull(end, NULL, 10) / 1e6 : 0.0;
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

/* With a checkpoint it ends when that is on disk. */
static dp_status train_piece(struct dp_training *run, int steps, bool saves, struct piece *piece)
{
    const uint64_t begin_ns = dp_now_ns();
    const double preempted = preempted_ms();

    if (saves) {
        DP_TRY(dp_run_save(run));
        piece->snapshot = ms_since(begin_ns);
    }
    DP_TRY(train(run, steps));
    DP_TRY(wait_for_write(run));
    piece->ms = ms_since(begin_ns);
    piece->preempted = preempted_ms() - preempted;
    return DP_OK;
}

/* How many steps it takes until a checkpoint is on disk, and some more; equal on all ranks. */
static dp_status find_length(struct dp_training *run, int *steps)
{
    struct piece piece;

    DP_TRY(train(run, WARM_STEPS));
    for (*steps = WARM_STEPS; *steps < STEPS_MOST; *steps *= 2) {
        double ms[TRIES], write[TRIES];
        int ended;

        for (int i = 0; i < TRIES; i++) {
            DP_TRY(train_piece(run, *steps, true, &piece));
            ms[i] = piece.ms;
            write[i] = write_ms(run);
        }
        ended = quantile(write, TRIES, 1.0) < 0.9 * quantile(ms, TRIES, 0.0);
        DP_TRY(dp_exchange_broadcast(run->trainer->exchange, &ended, sizeof(ended), 0));
        if (ended != 0) {
            return DP_OK;
        }
    }
    return DP_OK;
}

static dp_status measure_pair(struct dp_training *run, struct bench *b, int i)
{
    struct piece pieces[2];

    for (int k = 0; k < 2; k++) {
        const bool saves = (k + i) % 2 == 0;

        DP_TRY(train_piece(run, b->steps, saves, &pieces[saves]));
        b->write[i] = saves ? write_ms(run) : b->write[i];
    }
    b->snapshot[i] = pieces[1].snapshot;
    b->with[i] = pieces[1].ms;
    b->without[i] = pieces[0].ms;
    b->delay[i] = pieces[1].ms - pieces[0].ms;
    b->preempted[i] = pieces[1].preempted - pieces[0].preempted;
    DP_TRY(dp_run_save(run));
    DP_TRY(wait_for_write(run));
    b->alone[i] = write_ms(run);
    b->core[i] = run->writer != NULL ? (double)dp_writer_core_ns(run->writer) / 1e6 : 0.0;
    return train(run, 1);
}

static dp_status measure(struct dp_training *run, struct bench *b)
{
    uint64_t begin_ns;
    int more = 1;

    DP_TRY(find_length(run, &b->steps));
    begin_ns = dp_now_ns();
    for (b->rounds = 0; b->rounds < ROUNDS && more != 0; b->rounds++) {
        DP_TRY(measure_pair(run, b, b->rounds));
        more = ms_since(begin_ns) < measure_ms;
        DP_TRY(dp_exchange_broadcast(run->trainer->exchange, &more, sizeof(more), 0));
    }
    return DP_OK;
}

static void print(const struct dp_training *run, struct bench *b)
{
    const double alone = median(b, b->alone), delay = median(b, b->delay);
    const double snapshot = median(b, b->snapshot);

    printf("{\"model\":\"%s\",\"ranks\":%d,\"strategy\":\"%s\",\"parameters\":%zu,\"rounds\":%d,"
           "\"steps\":%d,\"piece\":%.2f,\"piece_without\":%.2f,\"snapshot\":%.3f,\"delay\":%.3f,"
           "\"delay_quartiles\":[%.3f,%.3f],\"preempted\":%.3f,\"write\":%.2f,"
           "\"write_alone\":%.2f,\"write_core\":%.2f,\"delay_ratio\":%.4f,"
           "\"snapshot_ratio\":%.4f}\n",
           run->config->name, run->world->train->size, run->trainer->exchange->label,
           run->model->parameters, b->rounds, b->steps, median(b, b->with), median(b, b->without),
           snapshot, delay, quantile(b->delay, b->rounds, 0.25),
           quantile(b->delay, b->rounds, 0.75), median(b, b->preempted), median(b, b->write), alone,
           median(b, b->core), delay / alone, snapshot / alone);
}

static dp_status bench(struct dp_training *run)
{
    static struct bench b;

    DP_TRY(dp_run_configure(run));
    DP_TRY(dp_run_setup(run));
    DP_TRY(measure(run, &b));
    if (dp_run_leads(run)) {
        print(run, &b);
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
