/*
 * test_ps_messages.c - parts of gradients reach their servers, in any order, and parts of weights
 * come back.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "collectives/async/ps_messages.h"
#include "collectives/core/transport.h"
#include "tests/support/local_world.h"

enum {
    ROUNDS = 5,
    EXTRA = 3,
    CUT = 4 * DP_BLOCK,
    TRAINED = 11 * DP_BLOCK,
    TOTAL = TRAINED + DP_BLOCK
};

/* Two buckets, from the end, and the tail. */
static struct dp_bucket buckets[] = {
    {.range = {CUT, TRAINED - CUT}, .tensor_count = 1},
    {.range = {0, CUT}, .tensor_count = 1},
    {.range = {TRAINED, DP_BLOCK}, .exact = true},
};
static const struct dp_bucket_plan plan = {.buckets = buckets, .count = 3};

static dp_status open_messages(struct dp_group *group, int servers, struct dp_ps_messages *messages)
{
    *messages = (struct dp_ps_messages){.group = group,
                                        .plan = &plan,
                                        .servers = servers,
                                        .head_bytes = 12,
                                        .extra = EXTRA,
                                        .width = sizeof(float)};
    return dp_ps_messages_open(messages);
}

/* What a trainer sends in a round at place i of the flat order. */
static float gradient(int trainer, int round, size_t i)
{
    return (float)(trainer * 100000 + round * 10000) + (float)i;
}

static size_t trains(struct dp_ps_messages *messages, float *flat)
{
    const int rank = messages->group->rank;
    size_t wrong = 0;

    for (int round = 0; round < ROUNDS && wrong == 0; round++) {
        const bool last = round + 1 == ROUNDS;
        for (size_t i = 0; i < TOTAL; i++) {
            flat[i] = gradient(rank, round, i);
        }
        for (int k = 0; k < messages->peers; k++) {
            memcpy(dp_ps_messages_head(messages, k), &round, sizeof(round));
            dp_ps_messages_pack(messages, k, flat, sizeof(float));
        }
        memcpy(dp_ps_messages_extra(messages, 0), flat + TRAINED, EXTRA * sizeof(float));
        memset(flat, 0, TOTAL * sizeof(float));
        wrong += dp_ps_messages_swap(messages, !last) != DP_OK;
        for (int k = 0; k < messages->peers && !last; k++) {
            dp_ps_messages_unpack(messages, k, flat, sizeof(float));
        }
        for (size_t i = 0; i < TRAINED && !last; i++) { /* servers send back twice as much */
            wrong += flat[i] != 2.0f * gradient(rank, round, i);
        }
    }
    return wrong;
}

static size_t serves(struct dp_ps_messages *messages, float *flat)
{
    const bool first = messages->group->rank == messages->peers;
    int rounds[8] = {0}, round, from = 0;
    size_t wrong = dp_ps_messages_begin(messages) != DP_OK;

    for (int n = 0; n < messages->peers * ROUNDS && wrong == 0; n++) {
        wrong += dp_ps_messages_next(messages, &from) != DP_OK;
        memcpy(&round, dp_ps_messages_head(messages, from), sizeof(round));
        wrong += round != rounds[from]++;
        memset(flat, 0, TOTAL * sizeof(float));
        dp_ps_messages_unpack(messages, from, flat, sizeof(float));
        for (size_t i = 0; i < TRAINED; i++) { /* 0 where it is another server's */
            wrong += flat[i] != 0.0f && flat[i] != gradient(from, round, i);
            flat[i] *= 2.0f;
        }
        for (size_t i = 0; first && i < EXTRA; i++) {
            wrong += dp_ps_messages_extra(messages, from)[i] != gradient(from, round, TRAINED + i);
        }
        if (round + 1 < ROUNDS) {
            dp_ps_messages_pack(messages, from, flat, sizeof(float));
            wrong += dp_ps_messages_answer(messages, from) != DP_OK;
        }
    }
    return wrong;
}

static size_t goes_round(struct dp_group *group, const void *arg)
{
    const int servers = *(const int *)arg;
    struct dp_ps_messages messages;
    static _Thread_local float flat[TOTAL];
    size_t wrong = open_messages(group, servers, &messages) != DP_OK;

    if (wrong == 0) {
        wrong = group->rank >= group->size - servers ? serves(&messages, flat)
                                                     : trains(&messages, flat);
        wrong += dp_group_barrier(group) != DP_OK; /* nothing is left under way */
        dp_ps_messages_close(&messages);
    }
    return wrong;
}

static void all_parts_arrive_and_are_answered(void **state)
{
    (void)state;
    for (int trainers = 1; trainers <= 4; trainers++) {
        for (int servers = 1; servers <= 3; servers++) {
            assert_int_equal(on_local_ranks(trainers + servers, goes_round, &servers), 0);
        }
    }
}

/* How many messages lie with the server. */
static atomic_int sent;

/* The server looks once all have sent. */
static size_t sends_once(struct dp_group *group, const void *unused)
{
    const int trainers = group->size - 1;
    struct dp_ps_messages messages;
    size_t wrong = open_messages(group, 1, &messages) != DP_OK;
    int from = -1;
    (void)unused;

    if (wrong == 0 && group->rank < trainers) {
        wrong += dp_ps_messages_swap(&messages, false) != DP_OK;
        atomic_fetch_add(&sent, 1);
    } else if (wrong == 0) {
        wrong += dp_ps_messages_begin(&messages) != DP_OK;
        while (atomic_load(&sent) < trainers) {
            (void)sched_yield();
        }
        for (int i = 0; i < trainers; i++) {
            wrong += dp_ps_messages_next(&messages, &from) != DP_OK || from != i;
        }
    }
    wrong += dp_group_barrier(group) != DP_OK;
    dp_ps_messages_close(&messages);
    return wrong;
}

/* Else one that is quick would keep the others waiting. */
static void trainers_that_wait_are_served_in_turn(void **state)
{
    (void)state;
    for (int trainers = 2; trainers <= 5; trainers++) {
        atomic_store(&sent, 0);
        assert_int_equal(on_local_ranks(trainers + 1, sends_once, NULL), 0);
    }
}

/* To two servers, of which the first one gets the extra numbers. */
static size_t counts_bytes(struct dp_group *group, const void *unused)
{
    const uint64_t wanted = 2 * dp_round_up(12, DP_MEM_ALIGN) + (TRAINED + EXTRA) * sizeof(float);
    struct dp_ps_messages messages;
    size_t wrong = open_messages(group, 2, &messages) != DP_OK;
    int from = -1;
    (void)unused;

    if (wrong == 0 && group->rank == 0) {
        const uint64_t before = group->wire_bytes;
        wrong += dp_ps_messages_swap(&messages, false) != DP_OK;
        wrong += group->wire_bytes - before != wanted;
    } else if (wrong == 0) {
        wrong += dp_ps_messages_begin(&messages) != DP_OK;
        wrong += dp_ps_messages_next(&messages, &from) != DP_OK || from != 0;
    }
    wrong += dp_group_barrier(group) != DP_OK;
    dp_ps_messages_close(&messages);
    return wrong;
}

static void no_more_is_sent_than_is_needed(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(3, counts_bytes, NULL), 0);
}

static size_t has_no_memory(struct dp_group *group, const void *nth)
{
    struct dp_ps_messages messages;

    dp_mem_fail_nth(*(const int *)nth);
    const dp_status status = open_messages(group, 1, &messages);
    dp_mem_fail_nth(0);
    return status != DP_ERR_NOMEM;
}

static size_t is_too_long(struct dp_group *group, const void *unused)
{
    static struct dp_bucket huge[] = {{.range = {0, (size_t)1 << 28}, .tensor_count = 1}};
    static const struct dp_bucket_plan long_plan = {.buckets = huge, .count = 1};
    struct dp_ps_messages messages = {
        .group = group, .plan = &long_plan, .servers = 1, .head_bytes = 8, .extra = 0};
    struct dp_log_capture capture;
    dp_status status;
    (void)unused;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_ps_messages_open(&messages);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    return (status != DP_ERR_CONFIG) +
           (strstr(dp_log_captured(&capture), "takes 1024 MB, and a message may have") == NULL);
}

static void failing_to_open_leaves_nothing(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; nth <= 2; nth++) {
        struct dp_local_hub *hub = NULL;
        struct dp_group *group = NULL;
        assert_int_equal(dp_local_hub_create(2, &hub), DP_OK);
        assert_int_equal(dp_local_join(hub, 0, &group), DP_OK);
        assert_int_equal(has_no_memory(group, &nth), 0);
        assert_int_equal(is_too_long(group, NULL), 0);
        dp_group_destroy(group);
        dp_local_hub_destroy(hub);
    }
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_parts_arrive_and_are_answered),
        cmocka_unit_test(trainers_that_wait_are_served_in_turn),
        cmocka_unit_test(no_more_is_sent_than_is_needed),
        cmocka_unit_test(failing_to_open_leaves_nothing),
    };

    return cmocka_run_group_tests_name("ps_messages", tests, NULL, NULL);
}
