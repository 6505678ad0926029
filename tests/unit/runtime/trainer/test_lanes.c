/*
 * test_lanes.c - with lanes the bits do not depend on the number of ranks, threads or buckets, nor
 * on the strategy, as long as it keeps the order of sums.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/exchange/strategy_select.h"
#include "collectives/strategies/strategy.h"
#include "runtime/trainer/compute/lane_sync.h"
#include "runtime/trainer/compute/lanes.h"
#include "tests/support/held_mutexes.h"
#include "tests/support/local_world.h"
#include "tests/support/share_of_cases.h"
#include "tests/support/small_run.h"

enum { STEPS = 7 }; /* more than an epoch: a batch of 3 rows, so that some lanes have none */

enum { SETS = 12 };

/* The training, which is the same in all variants. */
struct subject {
    const char *layers;
    const char *sets[SETS];
};

static const struct subject subjects[] = {
    {small_dense, {"optimizer.clip_norm=0.05"}},
    {small_dropout, {"optimizer.name=adamw", "optimizer.lr=0.01", "train.micro_batch=3"}},
    {small_conv, {"optimizer.clip_norm=0.05", "optimizer.weight_decay=0.01"}},
    {small_own_norm, {"train.micro_batch=2", "optimizer.nesterov=true"}},
    {small_conv, {"device.name=cpu", "optimizer.name=adamw"}},
    {small_own_norm, {"device.name=cpu"}},
    {small_conv, {"device.name=cpu", "train.precision=bf16", "optimizer.name=adamw"}},
    {small_dropout,
     {"device.name=cpu", "train.precision=fp16", "optimizer.name=adamw", "optimizer.lr=0.01"}},
    {small_own_norm, {"train.precision=bf16", "train.micro_batch=2"}},
    {small_conv, {"optimizer.name=lars", "optimizer.lr=1", "optimizer.trust_coefficient=0.02"}},
    {small_dropout,
     {"device.name=cpu", "train.precision=fp16", "optimizer.name=lamb", "optimizer.lr=0.01",
      "optimizer.clip_norm=1"}},
};

/* Ways that must not matter. */
struct way {
    int ranks, threads;
    bool parts; /* each rank has a part of the optimizer's state: hashes do without it */
    const char *sets[4];
};

static const struct way ways[] = {
    {1, 2, false, {NULL}},
    {1, 8, false, {"comm.bucket_mb=25", "comm.first_bucket_mb=1"}},
    {2, 1, false, {"comm.overlap=on"}},
    {2, 2, true, {"comm.strategy=auto"}},
    {4, 1, true, {"comm.strategy=zero1:over=shm", "comm.overlap=on"}},
    {4, 2, false, {"comm.strategy=direct", "comm.bucket_mb=25", "comm.first_bucket_mb=1"}},
    {8, 1, false, {"comm.strategy=rhd"}},
    {2, 1, true, {"comm.strategy=zero1:over=doubling"}},
    {8, 3, true, {"comm.strategy=zero1", "comm.overlap=on"}},
};

static void train(const struct subject *subject, const struct way *way, struct outcome *out)
{
    const char *sets[SETS + 8] = {"train.lanes=8"};
    struct small_run run;
    int count = 1;

    for (int i = 0; subject->sets[i] != NULL; i++) {
        sets[count++] = subject->sets[i];
    }
    for (int i = 0; i < 4 && way->sets[i] != NULL; i++) {
        sets[count++] = way->sets[i];
    }
    assert_int_equal(small_run_create(&run, subject->layers, sets), 0);
    run.threads = way->threads;
    assert_int_equal(small_train(&run, way->ranks, STEPS, NULL, out), 0);
    assert_int_equal(outcome_split(out, way->ranks, STEPS), 0);
    small_run_destroy(&run);
}

/* The number of steps after which the two differ in loss, weights, statistics or optimizer
 * state. */
static int differing(const struct outcome *a, const struct outcome *b, bool hashes)
{
    int count = 0;

    for (int step = 0; step < STEPS; step++) {
        count += a->loss[step][0] != b->loss[step][0] ||
                 (hashes && a->hash[step][0] != b->hash[step][0]);
    }
    return count;
}

static void check_way(size_t subject, size_t way, const struct outcome *one)
{
    const struct way *w = &ways[way];
    struct outcome other;

    train(&subjects[subject], w, &other);
    if (differing(one, &other, !w->parts) != 0 ||
        memcmp(one->weights, other.weights, one->trained * sizeof(float)) != 0) {
        fail_msg("subject %zu: %d ranks with %d threads (way %zu) give other bits", subject,
                 w->ranks, w->threads, way);
    }
    assert_true(other.evaluation[0].loss == one->evaluation[0].loss);
    assert_true(other.evaluation[0].accuracy == one->evaluation[0].accuracy);
    outcome_fini(&other);
}

static void any_ranks_threads_buckets_and_ordered_strategies_give_the_same_bits(void **state)
{
    static const struct way alone = {1, 1, false, {NULL}};
    struct outcome one;
    (void)state;

    for (size_t s = 0; s < sizeof(subjects) / sizeof(subjects[0]); s++) {
        train(&subjects[s], &alone, &one);
        assert_true(one.loss[STEPS - 1][0] < one.loss[0][0]);
        for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
            if (in_share(s + w)) {
                check_way(s, w, &one);
            }
        }
        outcome_fini(&one);
    }
}

static void without_lanes_ranks_change_the_bits(void **state)
{
    static const struct way alone = {1, 1, false, {"train.lanes=0"}},
                            four = {4, 1, false, {"train.lanes=0"}};
    struct outcome one, other;
    (void)state;

    train(&subjects[0], &alone, &one);
    train(&subjects[0], &four, &other);
    assert_int_not_equal(memcmp(one.weights, other.weights, one.trained * sizeof(float)), 0);
    outcome_fini(&one);
    outcome_fini(&other);
}

/* ---- a strategy that claims an order, and adds rank by rank ---- */

struct in_rank_order {
    struct dp_group *group;
    float *all;
};

static bool supports_all(const struct dp_group *group, const char **why_not)
{
    (void)group;
    (void)why_not;
    return true;
}

static dp_status rank_order_open(void *state, struct dp_group *group, size_t max_count)
{
    struct in_rank_order *s = state;

    s->group = group;
    s->all = dp_mem_arena(DP_MEM_COMM, (size_t)group->size * max_count * sizeof(float));
    return s->all != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "rank order");
}

static dp_status rank_order_sum(void *state, struct dp_slice data, enum dp_keep keep)
{
    const struct in_rank_order *s = state;
    float *sum = data.data;

    (void)keep;
    DP_TRY(dp_group_allgather(s->group, data.data, dp_slice_bytes(data), s->all));
    for (size_t i = 0; i < data.count; i++) {
        sum[i] = s->all[i];
        for (size_t rank = 1; rank < (size_t)s->group->size; rank++) {
            sum[i] += s->all[rank * data.count + i];
        }
    }
    return DP_OK;
}

static void rank_order_close(void *state)
{
    dp_free(((struct in_rank_order *)state)->all);
}

static const struct dp_strategy rank_order = {
    .plugin = {.name = "rank-order",
               .help = "adds rank by rank",
               .state_bytes = sizeof(struct in_rank_order)},
    .ordered = true,
    .supports = supports_all,
    .open = rank_order_open,
    .sum = rank_order_sum,
    .close = rank_order_close,
};

/* Two numbers can be added in one order only, which is the tree's: two ranks show no difference. */
static void summing_in_rank_order_is_detected(void **state)
{
    static const struct way alone = {1, 1, false, {NULL}},
                            two = {2, 1, false, {"comm.strategy=rank-order"}},
                            four = {4, 1, false, {"comm.strategy=rank-order"}};
    struct outcome one, other;
    (void)state;

    train(&subjects[0], &alone, &one);
    train(&subjects[0], &two, &other);
    assert_int_equal(differing(&one, &other, true), 0);
    outcome_fini(&other);
    train(&subjects[0], &four, &other);
    assert_int_equal(differing(&one, &other, true), STEPS);
    outcome_fini(&other);
    outcome_fini(&one);
}

/* ---- refusals ---- */

static size_t is_refused(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    struct dp_trainer *t = NULL;
    const dp_status status = small_run_trainer(run, group, STEPS, &t);
    const char *why_not = NULL; /* that MPI is missing, say, comes first */

    dp_trainer_destroy(t);
    return dp_strategy_select_supports(group, run->config->comm.strategy, &why_not) != DP_OK ||
           status != (why_not == NULL ? DP_ERR_CONFIG : DP_ERR_UNAVAILABLE);
}

static void ranks_that_do_not_divide_the_lanes_are_refused(void **state)
{
    const char *const sets[] = {"train.lanes=8", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(on_local_ranks(3, is_refused, &run), 0);
    assert_int_equal(on_local_ranks(6, is_refused, &run), 0);
    dp_log_set_level(DP_LOG_INFO);
    small_run_destroy(&run);
}

static void strategies_of_another_order_are_refused_by_name(void **state)
{
    const struct dp_plugin *plugin;
    (void)state;

    for (int i = 0; (plugin = dp_plugin_at(&dp_strategies, i)) != NULL; i++) {
        const struct dp_strategy *strategy = (const struct dp_strategy *)plugin;
        const bool ordered = strategy->ordered && strategy->sum != NULL;
        char text[64], sets_strategy[64], problem[256] = "";
        const char *sets[] = {NULL, sets_strategy, NULL};
        struct small_run run;

        assert_int_equal(dp_strategy_select_check(plugin->name, true, problem, sizeof(problem)),
                         ordered ? DP_OK : DP_ERR_CONFIG);
        (void)snprintf(text, sizeof(text), "%s adds", plugin->name);
        assert_true(ordered || strstr(problem, text) == problem);
        assert_true(ordered || strstr(problem, "shm") != NULL);
        if (ordered || strategy->gpus) {
            continue;
        }
        (void)snprintf(sets_strategy, sizeof(sets_strategy), "comm.strategy=%s", plugin->name);
        dp_log_set_level(DP_LOG_NONE);
        for (int ranks = 1; ranks <= 2; ranks++) {
            sets[0] = ranks == 1 ? "train.lanes=1" : "train.lanes=4";
            assert_int_equal(small_run_create(&run, small_dense, sets), 0);
            assert_int_equal(on_local_ranks(ranks, is_refused, &run), 0);
            small_run_destroy(&run);
        }
        dp_log_set_level(DP_LOG_INFO);
    }
}

/* ---- what lanes need ---- */

static void partial_sums_cost_the_logarithm_of_a_ranks_lanes(void **state)
{
    struct small_run plain, synchronised;
    (void)state;

    assert_int_equal(small_run_create(&plain, small_own_norm, NULL), 0);
    assert_int_equal(small_run_create(&synchronised, small_conv, NULL), 0);
    for (int lanes = 1, log2 = 0; lanes <= 1024; lanes *= 2, log2++) {
        assert_int_equal(dp_lanes_workers(plain.model, lanes, 1), 1);
        assert_int_equal(dp_lanes_extra_gradients(lanes, 1), log2);
        assert_int_equal(dp_lanes_workers(synchronised.model, lanes, 1), lanes);
    }
    assert_int_equal(dp_lanes_workers(plain.model, 8, 3), 2);
    assert_int_equal(dp_lanes_extra_gradients(8, 2), 5);
    assert_int_equal(dp_lanes_workers(plain.model, 2, 16), 2);
    assert_int_equal(dp_lanes_extra_gradients(2, 2), 1);
    small_run_destroy(&synchronised);
    small_run_destroy(&plain);
}

static void creating_lanes_survives_every_failed_allocation(void **state)
{
    static const struct dp_numbers none = {0};
    struct dp_stream like = {0};
    struct dp_normalize normalize;
    struct small_run run;
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    assert_int_equal(small_run_create(&run, small_conv, NULL), 0);
    assert_int_equal(dp_normalize_init(&normalize, 2, 255.0, &none, &none), DP_OK);
    const struct dp_lanes_config config = {.model = run.model,
                                           .device = run.device,
                                           .stream = &like,
                                           .normalize = &normalize,
                                           .total = 8,
                                           .count = 4,
                                           .threads = 2,
                                           .global_batch = 32};
    const size_t live = dp_mem_live();
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_lanes *lanes = NULL;
        dp_mem_fail_nth(nth);
        status = dp_lanes_create(&config, &lanes);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((lanes != NULL) == (status == DP_OK));
        dp_lanes_destroy(lanes);
        assert_int_equal(dp_mem_live(), live);
        assert_in_range(nth, 1, 200);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_normalize_fini(&normalize);
    small_run_destroy(&run);
}

/* ---- synchronised layers ---- */

enum { MEMBERS = 5, ROUNDS = 200, PERMITS = 2 };

struct lab {
    struct dp_lane_sync *lane_sync;
    atomic_int computing, most, wrong, next;
    int fails_in; /* round in which member 3 fails; -1: never */
};

static dp_status lab_sum(void *context, float *const *parts, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        for (int m = 1; m < MEMBERS; m++) {
            parts[0][i] += parts[m][i];
        }
        for (int m = 1; m < MEMBERS; m++) {
            parts[m][i] = parts[0][i];
        }
    }
    return DP_OK;
}

static void note_computing(struct lab *lab)
{
    const int now = atomic_fetch_add(&lab->computing, 1) + 1;
    int most = atomic_load(&lab->most);

    while (now > most && !atomic_compare_exchange_weak(&lab->most, &most, now)) {
    }
}

/* Waits, so that more members than allowed would compute at the same time. */
static void await_too_many(struct lab *lab)
{
    const struct timespec nap = {0, 1000000};

    for (int i = 0; i < 20 && atomic_load(&lab->computing) <= PERMITS; i++) {
        (void)nanosleep(&nap, NULL);
    }
}

static void *member(void *arg)
{
    struct lab *lab = arg;
    const int self = atomic_fetch_add(&lab->next, 1);
    dp_status status = DP_OK;

    dp_lane_sync_enter(lab->lane_sync);
    for (int round = 0; round < ROUNDS && status == DP_OK; round++) {
        float part[2] = {(float)(self * round), 1.0f};
        note_computing(lab);
        if (round == 0) {
            await_too_many(lab);
        }
        atomic_fetch_sub(&lab->computing, 1);
        if (round == lab->fails_in && self == 3) {
            status = DP_ERR_INTERNAL;
            break;
        }
        status = dp_lane_sync_reduce(lab->lane_sync, self, part, 2);
        if (status == DP_OK && (part[0] != (float)(10 * round) || part[1] != (float)MEMBERS)) {
            atomic_fetch_add(&lab->wrong, 1);
        }
        if (status != DP_OK && (status != DP_ERR_CANCELLED || round != lab->fails_in)) {
            atomic_fetch_add(&lab->wrong, 1);
        }
    }
    dp_lane_sync_leave(lab->lane_sync, status != DP_OK);
    return NULL;
}

static void meet(int fails_in)
{
    struct lab lab = {.fails_in = fails_in};
    pthread_t threads[MEMBERS];

    assert_int_equal(dp_lane_sync_create(MEMBERS, PERMITS, (struct dp_lane_sync_sum){lab_sum, NULL},
                                         &lab.lane_sync),
                     DP_OK);
    for (int i = 0; i < MEMBERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, member, &lab), 0);
    }
    for (int i = 0; i < MEMBERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    dp_lane_sync_destroy(lab.lane_sync);
    assert_int_equal(lab.wrong, 0);
    assert_in_range(lab.most, 1, PERMITS);
}

static void members_get_the_sum_and_compute_only_with_a_permit(void **state)
{
    (void)state;
    meet(-1);
}

static void nobody_waits_for_a_member_that_failed(void **state)
{
    (void)state;
    meet(0);
    meet(ROUNDS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_ranks_threads_buckets_and_ordered_strategies_give_the_same_bits),
        cmocka_unit_test(without_lanes_ranks_change_the_bits),
        cmocka_unit_test(strategies_of_another_order_are_refused_by_name),
        cmocka_unit_test(ranks_that_do_not_divide_the_lanes_are_refused),
        cmocka_unit_test(summing_in_rank_order_is_detected),
        cmocka_unit_test(partial_sums_cost_the_logarithm_of_a_ranks_lanes),
        cmocka_unit_test(creating_lanes_survives_every_failed_allocation),
        cmocka_unit_test(members_get_the_sum_and_compute_only_with_a_permit),
        cmocka_unit_test(nobody_waits_for_a_member_that_failed),
    };

    if (dp_plugin_add(&dp_strategies, &rank_order.plugin) != DP_OK) {
        return 1;
    }
    return cmocka_run_group_tests_name("lanes", tests, NULL, NULL);
}
