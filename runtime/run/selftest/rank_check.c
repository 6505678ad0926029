#include "runtime/run/selftest/rank_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "collectives/core/transport.h"
#include "collectives/exchange/exchange_calls.h"
#include "collectives/strategies/strategy.h"
#include "runtime/run/selftest/thread_ranks.h"

enum { STEPS = 2, SCHEDULE = 100, THREAD_RANKS = 2 };

enum { ROUNDINGS = 32 }; /* one at the weights is followed by one at each operation and step */

static const double least = 1e-6; /* where one rounding of the weights happens to change nothing */

/* One training, and what it comes to. */
struct training {
    const struct dp_run_job *job;
    struct dp_config config; /* the user's, but for what depends on the number of ranks */
    const struct dp_device *device;
    int threads;
    bool nudge;     /* round initial weights otherwise; one rank only */
    float *weights; /* owned; [trained]: of the first rank at the end */
    bool split;     /* ranks ended with different weights */
};

/* FNV-1a. */
static uint64_t hash_of(const float *weights, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &weights[i], sizeof(bits));
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    return hash;
}

/* A weight that is rounded otherwise. */
static float nudged(float weight, size_t i)
{
    return weight * (1.0f + dp_selftest_noise(3, i) / 8388608.0f);
}

static dp_status nudge(struct dp_trainer *t, const struct dp_run_job *job)
{
    float *weights = NULL, *whole = dp_trainer_whole(t);

    DP_TRY(dp_selftest_weights(job, &weights));
    for (size_t i = 0; i < job->model->trained; i++) {
        whole[i] = nudged(weights[i], i);
    }
    dp_free(weights);
    return dp_trainer_take(t);
}

/* Keeps the weights, and compares those of all ranks. */
static dp_status keep(struct training *training, struct dp_trainer *t)
{
    const struct dp_group *group = dp_trainer_group(t);
    const size_t count = training->job->model->trained;
    uint64_t *all = dp_zalloc((size_t)group->size, sizeof(*all)), mine;
    const float *weights = NULL;
    dp_status status = all == NULL ? DP_FAIL(DP_ERR_NOMEM, "hashes") : DP_OK;

    status = dp_exchange_agree(dp_trainer_exchange(t), status);
    if (status != DP_OK || all == NULL) {
        dp_free(all);
        return status;
    }
    DP_TRY_GOTO(dp_trainer_sync_weights(t), status, done);
    DP_TRY_GOTO(dp_trainer_wide(t, &weights), status, done);
    if (group->rank == 0) {
        memcpy(training->weights, weights, count * sizeof(float));
    }
    mine = hash_of(weights, count);
    DP_TRY_GOTO(dp_exchange_gather(dp_trainer_exchange(t), &mine, sizeof(mine), all), status, done);
    for (int i = 1; i < group->size && group->rank == 0; i++) {
        training->split = training->split || all[i] != all[0];
    }

done:
    dp_free(all);
    return status;
}

static dp_status steps_of(struct training *training, struct dp_trainer *t)
{
    struct dp_fault *faults = dp_trainer_group(t)->size > 1 ? training->job->faults : NULL;
    struct dp_step_report report;

    DP_TRY(dp_trainer_init(t));
    DP_TRY(training->nudge ? nudge(t, training->job) : DP_OK);
    DP_TRY(dp_fault_injection_check(faults, t));
    for (int i = 0; i < STEPS; i++) {
        DP_TRY(dp_trainer_step(t, &report));
        DP_TRY(dp_fault_injection_apply(faults, t));
    }
    return keep(training, t);
}

static dp_status train(struct dp_group *group, void *context)
{
    struct training *training = context;
    const struct dp_trainer_config config = {
        .config = &training->config,
        .model = training->job->model,
        .device = training->device,
        .group = group,
        .data = &training->job->data,
        .threads = training->threads,
        .total_steps = STEPS,
        .schedule_steps = SCHEDULE,
    };
    struct dp_trainer *t = NULL;
    dp_status status;

    DP_TRY(dp_trainer_create(&config, &t));
    status = steps_of(training, t);
    if (status != DP_OK && status != DP_ERR_DISAGREE) {
        dp_group_leave(group, DP_ERR_CANCELLED);
    }
    dp_trainer_destroy(t);
    return status;
}

static dp_status train_alone(struct training *training)
{
    struct dp_group *alone = NULL;
    dp_status status;

    DP_TRY(dp_local_alone(&alone));
    status = train(alone, training);
    dp_group_destroy(alone);
    return status;
}

/* The training of one rank and of several differ in nothing that is meant to differ: compressors
 * and local steps do, and servers and own paces are no matter of one rank. */
static void make_training(const struct dp_selftest *selftest, size_t rows, struct training *out)
{
    const struct dp_run_job *job = selftest->job;
    struct dp_config *c = &out->config;

    *out = (struct training){
        .job = job,
        .config = *job->config,
        .device = job->world->all->size > 1 ? job->device : dp_selftest_host_device(selftest),
        .threads = job->threads};
    c->train.global_batch = (int)rows;
    c->train.mode = DP_MODE_SYNC;
    c->train.staleness = 0;
    c->train.local_steps = 1;
    c->optimizer.schedule.warmup_steps = 0; /* its first steps change next to nothing */
    c->comm.servers = 0;
    c->comm.compressor = "none";
    out->weights = dp_zalloc(job->model->trained, sizeof(float));
}

/* Strategies that threads of a process cannot have: those of MPI and of GPUs. */
static bool can_run(const char *text)
{
    const struct dp_strategy *strategy =
        (const struct dp_strategy *)dp_plugin_find(&dp_strategies, text, strcspn(text, ":"));

    return strategy == NULL || (!strategy->gpus && strcmp(strategy->plugin.name, "mpi") != 0);
}

static bool depends_on_ranks(const struct dp_selftest *selftest)
{
    const struct dp_model *m = selftest->job->model;

    for (int i = 0; i < m->node_count && selftest->job->config->train.lanes == 0; i++) {
        if (m->nodes[i].plan.statistics > 0 && !m->nodes[i].plan.synchronised) {
            return true;
        }
    }
    return false;
}

struct outcomes {
    struct training one, near, several;
    int ranks;
};

static void judge(struct dp_selftest *selftest, const struct outcomes *o)
{
    const size_t count = selftest->job->model->trained;
    float *start = NULL, *near = o->near.weights;
    double apart, own, way, bound;

    if (o->several.split) {
        dp_selftest_line(selftest, false, "ranks", "weights of %d ranks differ after %d steps",
                         o->ranks, STEPS);
        return;
    }
    if (depends_on_ranks(selftest)) {
        dp_selftest_line(selftest, true, "ranks",
                         "the same bits on all of %d ranks; one rank may differ, since batch norm "
                         "normalises each rank's rows",
                         o->ranks);
        return;
    }
    if (selftest->job->config->train.lanes > 0) {
        const bool same = hash_of(o->one.weights, count) == hash_of(o->several.weights, count);
        dp_selftest_line(selftest, same, "lanes", "%s bits on 1 and %d ranks after %d steps",
                         same ? "the same" : "other", o->ranks, STEPS);
        return;
    }
    if (dp_selftest_weights(selftest->job, &start) != DP_OK) {
        dp_selftest_broken(selftest, "ranks", DP_ERR_NOMEM, "");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        near[i] -= nudged(start[i], i) - start[i];
    }
    apart = dp_selftest_distance(o->several.weights, o->one.weights, count);
    own = dp_selftest_distance(near, o->one.weights, count);
    way = dp_selftest_distance(start, o->one.weights, count); /* what the steps changed */
    bound = ROUNDINGS * fmax(own / way, least);
    dp_selftest_line(selftest, apart / way <= bound, "ranks",
                     "%.1e of what %d steps change lies between 1 and %d ranks (at most %.1e)",
                     apart / way, STEPS, o->ranks, bound);
    dp_free(start);
}

/* Of a job that was started alone: `several` are threads. */
static dp_status train_threads(struct dp_selftest *selftest, struct outcomes *o)
{
    char problem[DP_LOG_CAPTURE_BYTES];
    dp_status status;

    o->ranks = selftest->job->config->train.lanes == 1 ? 1 : THREAD_RANKS; /* a lane is one's */
    if (!can_run(o->several.config.comm.strategy)) {
        o->several.config.comm.strategy = "auto";
    }
    o->several.threads = 1;
    status = dp_thread_ranks_run(o->ranks, o->several.device, train, &o->several, problem);
    if (status != DP_OK) {
        dp_selftest_broken(selftest, "ranks", status, problem);
    }
    return status;
}

static dp_status train_all(struct dp_selftest *selftest, struct outcomes *o)
{
    const struct dp_run_job *job = selftest->job;
    struct dp_group *all = job->world->all;
    dp_status status = DP_OK;

    o->near.nudge = true;
    if (all->rank == 0) {
        DP_TRY(train_alone(&o->one));
        DP_TRY(train_alone(&o->near));
    }
    DP_TRY(dp_group_agree(all, DP_OK));
    if (all->size == 1) {
        status = train_threads(selftest, o);
    } else {
        o->ranks = all->size;
        DP_TRY(train(all, &o->several));
    }
    if (status == DP_OK) {
        judge(selftest, o);
    }
    return DP_OK;
}

dp_status dp_rank_check(struct dp_selftest *selftest, size_t rows)
{
    struct outcomes o;
    dp_status status;

    make_training(selftest, rows, &o.one);
    make_training(selftest, rows, &o.near);
    make_training(selftest, rows, &o.several);
    status = o.one.weights != NULL && o.near.weights != NULL && o.several.weights != NULL
                 ? DP_OK
                 : DP_FAIL(DP_ERR_NOMEM, "weights");
    status = dp_group_agree(selftest->job->world->all, status);
    status = status == DP_OK ? train_all(selftest, &o) : status;
    dp_free(o.one.weights);
    dp_free(o.near.weights);
    dp_free(o.several.weights);
    return status;
}
