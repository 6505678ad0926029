/*
 * bench_checkpoint.c - how long training is held up by a checkpoint, against what writing it takes.
 *
 *   bench_checkpoint MODEL.CFG [flags of ddp_train]
 *
 * Alone or under mpirun. Pieces of training that begin with a checkpoint and pieces without one, of
 * as many steps, follow each other in pairs, of which every other one is turned round, so that a
 * machine that grows slower or faster favours neither; a piece is so long that the write nearly
 * always ends within it, and is waited for otherwise.
 *
 * The machine stops everything for tens of milliseconds now and then, which is more than what is
 * looked for: a step counts as at most CUT times the median step, in both kinds of pieces. That is
 * far above what a step beside a write takes; `cut` says how many steps it met, and `delay_raw` is
 * the delay without it. One JSON line with medians over pairs, in milliseconds:
 *
 *   snapshot     for which training stands still: what is copied at once, and what the step behind
 *                it still finds to copy
 *   delay        how much longer a piece takes with a checkpoint, snapshot included; its quartiles,
 *                its mean, and the standard error of that
 *   preempted    what of it training threads spent waiting for their own cores, added over ranks
 *   write        the write beside training; what it then has of a core is core_beside
 *   write_alone  with nothing beside it; what it then has of a core is write_core
 *
 * What a delay of a few milliseconds is beside training that varies by more is seldom resolved. Its
 * bounds are: it is no less than `snapshot` and, but for caches, no more than that and core_beside.
 *
 * Ratios are of `delay`, its mean, `snapshot` and the upper bound (most) to `write_alone`.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/run/save.h"
#include "runtime/run/setup.h"
#include "runtime/run/training.h"

enum { ROUNDS = 400, WARM_STEPS = 5, TRIES = 5, STEPS_MOST = 640 };
static const double measure_ms = 25e3; /* or until ROUNDS */
static const double cut = 1.5;

/* One piece of training. */
struct piece {
    double ms, preempted;
    double save, copy; /* what began the checkpoint, and what was left to copy in the first step */
    double *steps;     /* borrowed; of each step, or NULL */
};

struct bench {
    double snapshot[ROUNDS], save[ROUNDS], with[ROUNDS], without[ROUNDS], raw[ROUNDS],
        delay[ROUNDS];
    double preempted[ROUNDS], write[ROUNDS], alone[ROUNDS], core[ROUNDS], core_beside[ROUNDS];
    double *times; /* owned; [rounds][2][steps]: without a checkpoint, and with one */
    int rounds, steps, cuts[2];
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

/* `ms` of each step, or NULL. */
static dp_status train(struct dp_training *run, int steps, double *ms)
{
    struct dp_step_report report;

    for (int i = 0; i < steps; i++) {
        const uint64_t begin_ns = dp_now_ns();

        DP_TRY(dp_trainer_step(run->trainer, &report));
        if (ms != NULL) {
            ms[i] = ms_since(begin_ns);
        }
    }
    return DP_OK;
}

/* Of all ranks. */
static dp_status add_up(struct dp_training *run, double *value)
{
    struct dp_exchange *e = dp_trainer_exchange(run->trainer);
    double sum = 0.0;

    for (int rank = 0; rank < dp_exchange_group(e)->size; rank++) {
        double of_rank = *value;

        DP_TRY(dp_exchange_broadcast(e, &of_rank, sizeof(of_rank), rank));
        sum += of_rank;
    }
    *value = sum;
    return DP_OK;
}

/* All ranks begin together; only rank 0 writes. */
static dp_status wait_for_write(struct dp_training *run)
{
    const dp_status status = run->writer != NULL ? dp_writer_wait(run->writer) : DP_OK;

    return dp_exchange_agree(dp_trainer_exchange(run->trainer), status);
}

static double core_ms(const struct dp_training *run)
{
    return run->writer != NULL ? (double)dp_writer_core_ns(run->writer) / 1e6 : 0.0;
}

static double write_ms(const struct dp_training *run)
{
    return run->writer != NULL ? (double)dp_writer_ns(run->writer) / 1e6 : 0.0;
}

static double copy_ms(const struct dp_training *run)
{
    return (double)dp_async_copy_finish_ns(run->snapshot->async_copy) / 1e6;
}

/* With a checkpoint it ends when that is on disk. */
static dp_status train_piece(struct dp_training *run, int steps, bool saves, struct piece *piece)
{
    const uint64_t begin_ns = dp_now_ns();
    const double preempted = preempted_ms();

    if (saves) {
        DP_TRY(dp_run_save(run));
        piece->save = ms_since(begin_ns);
    }
    DP_TRY(train(run, steps, piece->steps));
    DP_TRY(wait_for_write(run));
    piece->ms = ms_since(begin_ns);
    piece->copy = saves ? copy_ms(run) : 0.0;
    piece->preempted = preempted_ms() - preempted;
    return add_up(run, &piece->preempted);
}

/* How many steps it takes until a checkpoint is on disk, and some more; equal on all ranks. */
static dp_status find_length(struct dp_training *run, int *steps)
{
    DP_TRY(train(run, WARM_STEPS, NULL));
    for (*steps = WARM_STEPS; *steps < STEPS_MOST; *steps *= 2) {
        int ended = 1;

        for (int i = 0; i < TRIES && ended != 0; i++) {
            struct piece piece = {.steps = NULL};

            DP_TRY(train_piece(run, *steps, true, &piece));
            ended = write_ms(run) < 0.9 * piece.ms;
            DP_TRY(
                dp_exchange_broadcast(dp_trainer_exchange(run->trainer), &ended, sizeof(ended), 0));
        }
        if (ended != 0) {
            return DP_OK;
        }
    }
    return DP_OK;
}

static dp_status measure_pair(struct dp_training *run, struct bench *b, int i)
{
    struct piece pieces[2] = {{.steps = b->times + (size_t)(2 * i) * (size_t)b->steps},
                              {.steps = b->times + (size_t)(2 * i + 1) * (size_t)b->steps}};

    for (int k = 0; k < 2; k++) {
        const bool saves = (k + i) % 2 == 0;

        DP_TRY(train_piece(run, b->steps, saves, &pieces[saves]));
        if (saves) {
            b->write[i] = write_ms(run);
            b->core_beside[i] = core_ms(run);
        }
    }
    b->save[i] = pieces[1].save;
    b->snapshot[i] = pieces[1].save + pieces[1].copy;
    b->with[i] = pieces[1].ms;
    b->without[i] = pieces[0].ms;
    b->raw[i] = pieces[1].ms - pieces[0].ms;
    b->preempted[i] = pieces[1].preempted - pieces[0].preempted;
    DP_TRY(dp_run_save(run));
    dp_async_copy_finish(run->snapshot->async_copy);
    DP_TRY(wait_for_write(run));
    b->alone[i] = write_ms(run) - copy_ms(run); /* it waits for the copy */
    b->core[i] = core_ms(run);
    return train(run, 1, NULL);
}

static dp_status measure(struct dp_training *run, struct bench *b)
{
    uint64_t begin_ns;
    int more = 1;

    DP_TRY(find_length(run, &b->steps));
    b->times = dp_zalloc((size_t)(2 * ROUNDS) * (size_t)b->steps, sizeof(*b->times));
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(run->trainer),
                             b->times != NULL ? DP_OK : DP_ERR_NOMEM));
    begin_ns = dp_now_ns();
    for (b->rounds = 0; b->rounds < ROUNDS && more != 0; b->rounds++) {
        DP_TRY(measure_pair(run, b, b->rounds));
        more = ms_since(begin_ns) < measure_ms;
        DP_TRY(dp_exchange_broadcast(dp_trainer_exchange(run->trainer), &more, sizeof(more), 0));
    }
    return DP_OK;
}

/* The delays, of steps that count as at most `most`. */
static void compare_pieces(struct bench *b, double most)
{
    for (int i = 0; i < b->rounds; i++) {
        double sums[2] = {0.0, b->save[i]}; /* what was left to copy is a part of a step */

        for (int k = 0; k < 2; k++) {
            const double *ms = b->times + (size_t)(2 * i + k) * (size_t)b->steps;

            for (int n = 0; n < b->steps; n++) {
                sums[k] += fmin(ms[n], most);
                b->cuts[k] += ms[n] > most;
            }
        }
        b->delay[i] = sums[1] - sums[0];
    }
}

static double median_step(const struct bench *b)
{
    const int count = 2 * b->rounds * b->steps;
    double *sorted = dp_zalloc((size_t)count, sizeof(*sorted)), value = INFINITY;

    if (sorted != NULL) {
        memcpy(sorted, b->times, (size_t)count * sizeof(*sorted));
        value = quantile(sorted, count, 0.5);
    }
    dp_free(sorted);
    return value;
}

/* Of the mean. */
static double mean_error(const double *values, int count, double *mean)
{
    double squares = 0.0;

    *mean = 0.0;
    for (int i = 0; i < count; i++) {
        *mean += values[i] / count;
    }
    for (int i = 0; i < count; i++) {
        squares += (values[i] - *mean) * (values[i] - *mean);
    }
    return sqrt(squares / fmax(count - 1, 1) / count);
}

static void print(const struct dp_training *run, struct bench *b)
{
    const double alone = median(b, b->alone), snapshot = median(b, b->snapshot);
    const double beside = median(b, b->core_beside), step = median_step(b);
    double mean, error, delay;

    compare_pieces(b, cut * step);
    error = mean_error(b->delay, b->rounds, &mean);
    delay = median(b, b->delay);
    printf("{\"model\":\"%s\",\"ranks\":%d,\"threads\":%d,\"strategy\":\"%s\",\"parameters\":%zu,"
           "\"rounds\":%d,\"steps\":%d,\"step\":%.3f,\"cut\":[%d,%d],\"piece\":%.2f,"
           "\"piece_without\":%.2f,",
           run->config->name, run->world->train->size, run->threads,
           dp_exchange_label(dp_trainer_exchange(run->trainer)), run->model->parameters, b->rounds,
           b->steps, step, b->cuts[0], b->cuts[1], median(b, b->with), median(b, b->without));
    printf("\"snapshot\":%.3f,\"delay\":%.3f,\"delay_quartiles\":[%.3f,%.3f],\"delay_mean\":%.3f,"
           "\"delay_error\":%.3f,\"delay_raw\":%.3f,\"preempted\":%.3f,",
           snapshot, delay, quantile(b->delay, b->rounds, 0.25),
           quantile(b->delay, b->rounds, 0.75), mean, error, median(b, b->raw),
           median(b, b->preempted));
    printf("\"write\":%.2f,\"core_beside\":%.3f,\"write_alone\":%.2f,\"write_core\":%.3f,"
           "\"delay_ratio\":%.4f,\"delay_mean_ratio\":%.4f,\"snapshot_ratio\":%.4f,"
           "\"most_ratio\":%.4f}\n",
           median(b, b->write), beside, alone, median(b, b->core), delay / alone, mean / alone,
           snapshot / alone, (snapshot + beside) / alone);
}

static dp_status bench(struct dp_training *run)
{
    static struct bench b;

    DP_TRY(dp_run_configure(run));
    DP_TRY(dp_run_setup(run, NULL));
    DP_TRY(measure(run, &b));
    if (dp_run_leads(run)) {
        print(run, &b);
    }
    dp_free(b.times);
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
