/*
 * bench_checkpoint.c - how long a checkpoint delays training, compared with the time of writing it.
 *
 *   bench_checkpoint MODEL.CFG [flags of ddp_train]
 *
 * Alone or under mpirun. Pieces of training that begin with a checkpoint and pieces without one, of
 * equal numbers of steps, alternate in pairs; every second pair is in reverse order, so that a
 * machine that becomes slower or faster favours neither. A piece is so long that the write nearly
 * always ends within it; otherwise the piece waits for it.
 *
 * Sometimes the machine stops for tens of milliseconds, which is more than the measured delay. So a
 * step counts as at most CUT times the median step, in both kinds of pieces. Steps during a write
 * are far shorter than that. `cut` is the number of such steps, and `delay_raw` is the delay
 * without this limit. One JSON line with medians over pairs, in milliseconds:
 *
 *   snapshot     time that training stops: to copy immediately, and to copy the rest in the
 *                next step
 *   delay        how much longer a piece takes with a checkpoint, snapshot included; its quartiles,
 *                its mean, and the standard error of that
 *   preempted    what of it training threads spent waiting for their own cores, added over ranks
 *   write        the write beside training; what it then has of a core is core_beside
 *   write_alone  with nothing beside it; what it then has of a core is write_core
 *
 * A delay of a few milliseconds can seldom be resolved if training varies by more. But it is at
 * least `snapshot` and, except for caches, at most `snapshot` plus core_beside.
 *
 * Ratios are of `delay`, its mean, `snapshot` and the upper bound (most) to `write_alone`.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/statistics.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/run/cli.h"
#include "runtime/run/setup.h"
#include "runtime/run/training.h"

enum { ROUNDS = 400, WARM_STEPS = 5, TRIES = 5, STEPS_MOST = 640 };
static const double measure_ms = 25e3; /* or until ROUNDS */
static const double cut = 1.5;

/* One piece of training. */
struct piece {
    double ms, preempted;
    double save, copy; /* to begin the checkpoint; to copy the rest in the first step */
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

/* The value below which `share` of them lie. Sorts. */
static double quantile(double *values, int count, double share)
{
    dp_sort(values, (size_t)count);
    return dp_quantile(values, (size_t)count, share);
}

static double median(const struct bench *b, double *values)
{
    return quantile(values, b->rounds, 0.5);
}

/* How long the calling thread was ready to run while its core did something else. */
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

        DP_TRY(dp_trainer_step(run->job.trainer, &report));
        if (ms != NULL) {
            ms[i] = ms_since(begin_ns);
        }
    }
    return DP_OK;
}

/* Of all ranks. */
static dp_status add_up(struct dp_training *run, double *value)
{
    struct dp_exchange *e = dp_trainer_exchange(run->job.trainer);
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
    const dp_status status = run->saver.writer != NULL ? dp_worker_wait(run->saver.writer) : DP_OK;

    return dp_exchange_agree(dp_trainer_exchange(run->job.trainer), status);
}

static double core_ms(const struct dp_training *run)
{
    return run->saver.writer != NULL ? (double)dp_worker_core_ns(run->saver.writer) / 1e6 : 0.0;
}

static double write_ms(const struct dp_training *run)
{
    return run->saver.writer != NULL ? (double)dp_worker_ns(run->saver.writer) / 1e6 : 0.0;
}

static double copy_ms(const struct dp_training *run)
{
    return (double)dp_async_copy_finish_ns(run->saver.snapshot->async_copy) / 1e6;
}

/* A piece with a checkpoint ends when that is on disk. */
static dp_status train_piece(struct dp_training *run, int steps, bool saves, struct piece *piece)
{
    const uint64_t begin_ns = dp_now_ns();
    const double preempted = preempted_ms();

    if (saves) {
        DP_TRY(dp_saver_save(&run->saver, &run->outcome, &run->figures.metrics));
        piece->save = ms_since(begin_ns);
    }
    DP_TRY(train(run, steps, piece->steps));
    DP_TRY(wait_for_write(run));
    piece->ms = ms_since(begin_ns);
    piece->copy = saves ? copy_ms(run) : 0.0;
    piece->preempted = preempted_ms() - preempted;
    return add_up(run, &piece->preempted);
}

/* The number of steps until a checkpoint is on disk, and some more; equal on all ranks. */
static dp_status find_length(struct dp_training *run, int *steps)
{
    DP_TRY(train(run, WARM_STEPS, NULL));
    for (*steps = WARM_STEPS; *steps < STEPS_MOST; *steps *= 2) {
        int ended = 1;

        for (int i = 0; i < TRIES && ended != 0; i++) {
            struct piece piece = {.steps = NULL};

            DP_TRY(train_piece(run, *steps, true, &piece));
            ended = write_ms(run) < 0.9 * piece.ms;
            DP_TRY(dp_exchange_broadcast(dp_trainer_exchange(run->job.trainer), &ended,
                                         sizeof(ended), 0));
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
    DP_TRY(dp_saver_save(&run->saver, &run->outcome, &run->figures.metrics));
    dp_async_copy_finish(run->saver.snapshot->async_copy);
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
    DP_TRY(dp_exchange_agree(dp_trainer_exchange(run->job.trainer),
                             b->times != NULL ? DP_OK : DP_ERR_NOMEM));
    begin_ns = dp_now_ns();
    for (b->rounds = 0; b->rounds < ROUNDS && more != 0; b->rounds++) {
        DP_TRY(measure_pair(run, b, b->rounds));
        more = ms_since(begin_ns) < measure_ms;
        DP_TRY(
            dp_exchange_broadcast(dp_trainer_exchange(run->job.trainer), &more, sizeof(more), 0));
    }
    return DP_OK;
}

/* The delays, where each step counts as at most `most`. */
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
    double *sorted = dp_zalloc((size_t)count, sizeof(*sorted)), value = (double)INFINITY;

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
           run->job.config->name, run->job.world->train->size, run->job.threads,
           dp_exchange_label(dp_trainer_exchange(run->job.trainer)), run->job.model->parameters,
           b->rounds, b->steps, step, b->cuts[0], b->cuts[1], median(b, b->with),
           median(b, b->without));
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

    DP_TRY(dp_run_configure(&run->job));
    DP_TRY(dp_run_setup(run, NULL));
    DP_TRY(measure(run, &b));
    if (dp_run_leads(&run->job)) {
        print(run, &b);
    }
    dp_free(b.times);
    return DP_OK;
}

int main(int argc, char **argv)
{
    struct dp_training run;
    struct dp_world *world = NULL;
    struct dp_cli cli;
    dp_status status = dp_cli_parse(argc, argv, dp_world_launch_rank() > 0, &cli);

    if (status == DP_OK) {
        cli.run.steps = INT32_MAX;
        cli.run.quiet = true;
        status = dp_world_create(&world);
    }
    if (status != DP_OK) {
        return dp_status_exit(status);
    }
    dp_run_init(&run, &cli.run, world);
    status = bench(&run);
    if (status != DP_OK) {
        dp_world_abort(world, dp_status_exit(status));
    }
    dp_run_teardown(&run);
    dp_world_destroy(world);
    return dp_status_exit(status);
}
