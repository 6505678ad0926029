/*
 * test_ps.c - a synchronous parameter server gives the bits of training without one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/trainer/prepare/memory_plan.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { STEPS = 7, SETS = 8 }; /* more than an epoch: a batch of 3 rows */

static void train(const char *layers, const char *const *more, const char *strategy, int trainers,
                  int servers, struct outcome *out)
{
    char strategy_set[64], servers_set[64];
    const char *sets[SETS + 2] = {strategy_set, servers_set};
    struct small_run run;

    for (int i = 0; more[i] != NULL; i++) {
        sets[2 + i] = more[i];
    }
    (void)snprintf(strategy_set, sizeof(strategy_set), "comm.strategy=%s", strategy);
    (void)snprintf(servers_set, sizeof(servers_set), "comm.servers=%d", servers);
    assert_int_equal(small_run_create(&run, layers, sets), 0);
    assert_int_equal(small_train(&run, trainers + servers, STEPS, NULL, out), 0);
    assert_int_equal(outcome_split(out, trainers + servers, STEPS), 0);
    small_run_destroy(&run);
}

static void check(const char *layers, const char *const *more)
{
    static const struct {
        int trainers, servers;
        const char *strategy;
    } ways[] = {{1, 1, "ps"},           {2, 1, "ps:over=direct"}, {2, 3, "auto"},
                {4, 2, "ps:over=ring"}, {3, 2, "ps:over=shm"},    {5, 1, "ps:over=direct"},
                {4, 0, "ps"},           {3, 0, "ps:over=direct"}};
    struct outcome plain, served;

    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        train(layers, more, "shm", ways[w].trainers, 0, &plain);
        train(layers, more, ways[w].strategy, ways[w].trainers, ways[w].servers, &served);
        if (memcmp(plain.weights, served.weights, plain.trained * sizeof(float)) != 0) {
            fail_msg("%s, %s: %d trainers and %d servers give other bits", more[0],
                     ways[w].strategy, ways[w].trainers, ways[w].servers);
        }
        for (int step = 0; step < STEPS; step++) {
            assert_float_equal(plain.loss[step][0], served.loss[step][0], 1e-6);
        }
        for (int rank = 0; rank < ways[w].trainers + ways[w].servers; rank++) {
            assert_true(served.evaluation[rank].loss == plain.evaluation[0].loss);
            assert_true(served.evaluation[rank].accuracy == plain.evaluation[0].accuracy);
        }
        outcome_fini(&served);
        outcome_fini(&plain);
    }
}

static void servers_give_the_bits_of_training_without_servers(void **state)
{
    static const char *const plain[] = {"comm.overlap=on", NULL};
    static const char *const clipped[] = {"optimizer.clip_norm=0.05", "optimizer.weight_decay=0.01",
                                          NULL};
    static const char *const adamw[] = {"optimizer.name=adamw", "optimizer.lr=0.01",
                                        "train.micro_batch=3", NULL};
    static const char *const buckets[] = {"comm.bucket_mb=25", "comm.first_bucket_mb=1", NULL};
    (void)state;

    check(small_dense, plain);
    check(small_dropout, clipped);
    check(small_own_norm, adamw);
    check(small_dense, buckets);
}

/* Lanes are those of the trainers. */
static void lanes_give_the_same_bits_with_servers(void **state)
{
    static const char *const lanes[] = {"train.lanes=4", NULL};
    struct outcome alone, served;
    (void)state;

    train(small_dropout, lanes, "shm", 1, 0, &alone);
    for (int trainers = 1; trainers <= 4; trainers *= 2) {
        train(small_dropout, lanes, "ps:over=direct", trainers, 3, &served);
        assert_int_equal(memcmp(alone.weights, served.weights, alone.trained * sizeof(float)), 0);
        assert_true(served.evaluation[0].loss == alone.evaluation[0].loss);
        outcome_fini(&served);
    }
    outcome_fini(&alone);
}

static size_t is_refused(struct dp_group *group, const void *arg)
{
    struct dp_trainer *t = NULL;
    const dp_status status = small_run_trainer(arg, group, STEPS, &t);

    dp_trainer_destroy(t);
    return status != DP_ERR_CONFIG;
}

static void servers_must_leave_a_rank_to_train(void **state)
{
    const char *const sets[] = {"comm.servers=2", "comm.strategy=ps", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(on_local_ranks(1, is_refused, &run), 0);
    assert_int_equal(on_local_ranks(2, is_refused, &run), 0);
    dp_log_set_level(DP_LOG_INFO);
    small_run_destroy(&run);
}

/* The optimizer's state lies with the servers, which a prediction knows. */
static void a_trainer_of_servers_needs_no_memory_of_an_optimizer(void **state)
{
    static const char *const sets[] = {"comm.strategy=ps", "comm.servers=1", NULL};
    size_t bytes[DP_MEM_PURPOSE_COUNT];
    struct dp_memory_plan plan;
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    plan = (struct dp_memory_plan){.config = run.config,
                                   .model = run.model,
                                   .device = run.device,
                                   .trainers = 2,
                                   .threads = 1,
                                   .ranks_per_device = 1,
                                   .one_node = true};
    dp_memory_plan_device(&plan, 0, bytes);
    assert_int_equal(bytes[DP_MEM_OPTIMIZER], 0);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_give_the_bits_of_training_without_servers),
        cmocka_unit_test(lanes_give_the_same_bits_with_servers),
        cmocka_unit_test(servers_must_leave_a_rank_to_train),
        cmocka_unit_test(a_trainer_of_servers_needs_no_memory_of_an_optimizer),
    };

    return cmocka_run_group_tests_name("ps", tests, NULL, NULL);
}
