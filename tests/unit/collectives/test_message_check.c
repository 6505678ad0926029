/*
 * test_message_check.c - checksums of messages: nothing else changes, and a bit that changes on the
 * way is found by the receiver, also where groups are made of the group.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/message_check.h"
#include "collectives/strategies/comm.h"
#include "tests/support/checks.h"
#include "tests/support/local_world.h"
#include "tests/support/stderr_text.h"

enum { COUNT = 5000 };

static size_t all_checks(struct dp_group *group, const void *unused)
{
    size_t wrong = 0;
    (void)unused;

    if (dp_message_checks_begin(group) != DP_OK) {
        return 1;
    }
    wrong += check_group(group, NULL);
    dp_message_checks_end(group);
    return wrong;
}

static void messages_arrive_as_they_do_without(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int ranks = 1; ranks <= 5; ranks++) {
        assert_int_equal(on_local_ranks(ranks, all_checks, NULL), 0);
    }
    assert_int_equal(dp_mem_live(), live);
}

/* One sum of a strategy, with a bit that changes on its way to rank 1. */
struct trial {
    const char *strategy;
    bool checked;
    dp_status expected; /* on rank 1 */
};

static size_t sums(struct dp_group *group, const void *arg)
{
    const struct trial *trial = arg;
    float *x = dp_group_memory(group, DP_MEM_GRADIENTS, COUNT * sizeof(float));
    struct dp_comm *comm = NULL;
    /* another rank may have failed before this one has its memory */
    dp_status status = x == NULL ? DP_ERR_CANCELLED : DP_OK;
    bool damaged = false;
    size_t wrong;

    status = status == DP_OK && trial->checked ? dp_message_checks_begin(group) : status;
    status =
        status == DP_OK ? dp_comm_create(group, trial->strategy, COUNT, DP_BLOCK, &comm) : status;
    for (int i = 0; status == DP_OK && i < COUNT; i++) {
        x[i] = 1.0f;
    }
    if (status == DP_OK && group->rank == 1) {
        status = dp_message_damage_next(group, 30, &damaged);
    }
    status = status == DP_OK
                 ? dp_comm_sum(comm, (struct dp_slice){x, COUNT, sizeof(float)}, DP_KEEP_ALL)
                 : status;
    wrong = status != (group->rank == 1 ? trial->expected : DP_OK) && status != DP_ERR_CANCELLED;
    wrong += damaged != (group->rank == 1) && status == trial->expected;
    if (status != DP_OK) {
        dp_group_leave(group, status);
    }
    dp_comm_destroy(comm);
    dp_message_checks_end(group);
    dp_group_release(group, x);
    return wrong;
}

static void a_changed_bit_is_found_by_the_receiver(void **state)
{
    static const int nodes[] = {0, 0, 1, 1};
    const struct trial trials[] = {{"ring", true, DP_ERR_DAMAGED},
                                   {"rhd", true, DP_ERR_DAMAGED},
                                   {"hier:inner=ring,outer=ring", true, DP_ERR_DAMAGED}};
    (void)state;

    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        stderr_begin();
        const size_t wrong = on_local_nodes(4, nodes, sums, &trials[i]);
        stderr_end();
        if (wrong != 0 || strstr(stderr_text, "is not what was sent") == NULL) {
            fail_msg("%s: %zu wrong: %s", trials[i].strategy, wrong, stderr_text);
        }
    }
}

/* What the checksums are for: nobody else notices. */
static void without_checksums_nobody_notices(void **state)
{
    const struct trial trial = {"ring", false, DP_OK};
    (void)state;

    assert_int_equal(on_local_ranks(2, sums, &trial), 0);
}

enum { WORDS = 100, FLYING = 2 * DP_TRANSFERS_MAX /* messages of two ranks */ };

/* A message of equal words, from rank 0 to rank 1. */
static dp_status start(struct dp_group *group, int word, int *words, struct dp_transfer *transfer)
{
    const struct dp_slice all = {words, WORDS, sizeof(*words)};
    const bool sends = group->rank == 0;

    for (int i = 0; i < WORDS; i++) {
        words[i] = sends ? word : 0;
    }
    return dp_group_start(group, sends ? 1 : -1, all, sends ? -1 : 0, all, transfer);
}

static size_t pass(struct dp_group *group, int times)
{
    struct dp_transfer transfer;
    int words[WORDS];
    size_t wrong = 0;

    for (int i = 1; i <= times && wrong == 0; i++) {
        wrong += start(group, i, words, &transfer) != DP_OK;
        wrong += dp_group_finish(group, &transfer) != DP_OK || words[WORDS - 1] != i;
    }
    return wrong;
}

/* What was kept of the first message is used again by the one that is in flight. */
static size_t finishes_again(struct dp_group *group, const void *unused)
{
    struct dp_transfer first, held;
    int words[WORDS], more[WORDS];
    size_t wrong;
    (void)unused;

    if (dp_message_checks_begin(group) != DP_OK) {
        return 1;
    }
    wrong = start(group, 7, words, &first) != DP_OK || dp_group_finish(group, &first) != DP_OK;
    wrong += pass(group, FLYING - 1);
    wrong += start(group, 8, more, &held) != DP_OK;
    wrong += dp_group_finish(group, &first) != DP_OK;
    wrong += pass(group, FLYING);
    wrong += dp_group_finish(group, &held) != DP_OK || more[0] != 8;
    dp_message_checks_end(group);
    return wrong;
}

static void to_finish_a_message_again_does_nothing_to_another_one(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(2, finishes_again, NULL), 0);
}

static size_t begins_and_ends(struct dp_group *group, const void *unused)
{
    const dp_status status = dp_message_checks_begin(group);
    (void)unused;

    dp_message_checks_end(group);
    return status != DP_OK;
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    check_failing_allocations(2, NULL, begins_and_ends, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_as_they_do_without),
        cmocka_unit_test(a_changed_bit_is_found_by_the_receiver),
        cmocka_unit_test(without_checksums_nobody_notices),
        cmocka_unit_test(to_finish_a_message_again_does_nothing_to_another_one),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };

    return cmocka_run_group_tests_name("message_check", tests, NULL, NULL);
}
