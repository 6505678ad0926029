/*
 * test_group.c - messages, memory and agreement between ranks, here threads of this process.
 * mpi_collectives.c runs the same checks over MPI.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/transport.h"
#include "tests/support/checks.h"
#include "tests/support/local_world.h"

/* ThreadSanitizer takes ten times as long, and threads meet alike on other numbers of ranks. */
#ifdef DP_TSAN
static const int sizes[] = {2, 3, 5};
#else
static const int sizes[] = {1, 2, 3, 4, 5, 8};
#endif

static void on_all_sizes(rank_body *body)
{
    for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
        const size_t live = dp_mem_live();
        assert_int_equal(on_local_ranks(sizes[n], body, NULL), 0);
        assert_int_equal(dp_mem_live(), live);
    }
}

static void messages_arrive_whole_whatever_their_lengths(void **state)
{
    (void)state;
    on_all_sizes(check_exchange);
}

static void many_messages_may_be_in_flight(void **state)
{
    (void)state;
    on_all_sizes(check_transfers);
}

static void finished_transfers_are_found_without_waiting(void **state)
{
    (void)state;
    on_all_sizes(check_tests);
}

/* Rank 0 sends and returns much later; meanwhile the others receive all messages. */
static size_t comes_back_late(struct dp_group *group, const void *unused)
{
    const struct dp_slice nothing = {NULL, 0, 1};
    struct dp_transfer transfer;
    char byte = 0, first = 7;
    const struct dp_slice slice = {&byte, 1, 1}, sent = {&first, 1, 1};
    size_t wrong = 0;
    (void)unused;

    if (group->rank == 0) {
        wrong += dp_group_start(group, 1, sent, -1, nothing, &transfer) != DP_OK;
        wrong += dp_group_exchange(group, -1, nothing, 2, slice) != DP_OK;
        wrong += byte != 9;
        return wrong + (dp_group_finish(group, &transfer) != DP_OK);
    }
    /* Rank 2 sends to rank 0 only after rank 1 has its message. */
    wrong += dp_group_exchange(group, -1, nothing, group->rank - 1, slice) != DP_OK;
    wrong += byte != (group->rank == 1 ? 7 : 8);
    byte = (char)(group->rank + 7);
    return wrong + (dp_group_exchange(group, (group->rank + 1) % 3, slice, -1, nothing) != DP_OK);
}

static void a_message_arrives_while_its_sender_does_something_else(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(3, comes_back_late, NULL), 0);
}

static size_t starts_too_many(struct dp_group *group, const void *unused)
{
    const struct dp_slice empty = {NULL, 0, 1};
    struct dp_transfer transfer;
    dp_status status = DP_OK;
    (void)unused;

    for (int i = 0; i < DP_TRANSFERS_MAX && status == DP_OK; i++) {
        status = dp_group_start(group, 1, empty, -1, empty, &transfer);
    }
    return status != DP_OK ||
           dp_group_start(group, 1, empty, -1, empty, &transfer) != DP_ERR_INTERNAL;
}

static void too_many_messages_in_flight_are_an_error(void **state)
{
    struct dp_local_hub *hub = NULL;
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_local_hub_create(2, &hub), DP_OK);
    assert_int_equal(dp_local_join(hub, 0, &group), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(starts_too_many(group, NULL), 0);
    dp_log_set_level(DP_LOG_INFO);
    dp_group_destroy(group);
    dp_local_hub_destroy(hub);
}

static void a_barrier_ends_when_all_ranks_have_arrived(void **state)
{
    (void)state;
    on_all_sizes(check_barrier);
}

static void a_broadcast_reaches_all_from_every_root(void **state)
{
    (void)state;
    on_all_sizes(check_broadcast);
}

static void an_allgather_gives_all_parts_in_rank_order(void **state)
{
    (void)state;
    on_all_sizes(check_allgather);
}

static void all_ranks_get_the_worst_status(void **state)
{
    (void)state;
    on_all_sizes(check_agree);
}

static void memory_is_zeroed_and_seen_by_peers_at_the_same_place(void **state)
{
    (void)state;
    on_all_sizes(check_memory);
}

static void a_node_has_one_copy_and_one_writer(void **state)
{
    (void)state;
    on_all_sizes(check_node_memory);
}

/* There is room for 64 pieces at a time. */
static size_t takes_all_pieces(struct dp_group *group, const void *unused)
{
    enum { ROOM = 64, HELD = 3 };
    void *pieces[ROOM];
    size_t wrong = 0;
    (void)unused;

    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < ROOM; i++) {
            pieces[i] = dp_group_memory(group, DP_MEM_COMM, 8);
            wrong += pieces[i] == NULL;
        }
        wrong += dp_group_memory(group, DP_MEM_COMM, 8) != NULL;
        wrong += dp_group_peer(group, pieces[ROOM - 1], group->size - 1) == NULL;
        dp_group_release(group, pieces[HELD]);
        pieces[HELD] = dp_group_memory(group, DP_MEM_COMM, 8);
        wrong += pieces[HELD] == NULL;
        wrong += dp_group_memory(group, DP_MEM_COMM, 8) != NULL;
        for (int i = 0; i < ROOM; i++) {
            dp_group_release(group, pieces[i]);
        }
    }
    return wrong;
}

static void memory_ends_with_the_room_for_its_pieces(void **state)
{
    (void)state;
    on_all_sizes(takes_all_pieces);
}

/* Ranks on nodes: equal blocks, unequal ones, and scattered. */
static const struct {
    int size, nodes, node_of[8];
} places[] = {
    {4, 2, {0, 0, 1, 1}},
    {5, 2, {0, 0, 0, 1, 1}},
    {6, 3, {0, 1, 2, 0, 1, 2}},
    {8, 4, {0, 0, 1, 1, 2, 2, 3, 3}},
};

static size_t lives_on_nodes(struct dp_group *group, const void *arg)
{
    const size_t place = *(const size_t *)arg;
    char *memory = dp_group_memory(group, DP_MEM_COMM, 100);
    size_t wrong = memory == NULL || group->nodes != places[place].nodes;
    int local = 0;

    for (int i = 0; i < group->size && memory != NULL; i++) {
        const bool here = group->node_of[i] == group->node_of[group->rank];
        wrong += (dp_group_peer(group, memory, i) != NULL) != here;
        local += here;
    }
    dp_group_release(group, memory);
    return wrong + (local != group->local_size) + check_group(group, NULL);
}

static void ranks_share_memory_with_those_of_their_node(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const size_t live = dp_mem_live();
        assert_int_equal(on_local_nodes(places[i].size, places[i].node_of, lives_on_nodes, &i), 0);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* The checks of groups run in the groups of all nodes in parallel, and then in the group of each
 * node's first rank. */
static size_t makes_smaller_groups(struct dp_group *group, const void *unused)
{
    struct dp_group *local = NULL, *leaders = NULL;
    int here[8] = {0}, firsts[8], count = 0, nodes = 0, rank = -1;
    size_t wrong = 0;
    (void)unused;

    for (int i = 0; i < group->size; i++) {
        if (group->node_of[i] == group->node_of[group->rank]) {
            here[count++] = i;
        }
        if (group->node_of[i] == nodes) {
            firsts[nodes++] = i;
        }
    }
    if (dp_group_sub_create(group, here, count, &local) != DP_OK) {
        return 1;
    }
    wrong += local->size != group->local_size || local->nodes != 1;
    wrong += dp_group_parent(local, local->rank, &rank) != group || rank != group->rank;
    wrong += dp_group_parent(group, 0, &rank) != NULL;
    wrong += check_group(local, NULL);
    if (group->rank == here[0]) {
        if (dp_group_sub_create(group, firsts, nodes, &leaders) != DP_OK) {
            dp_group_destroy(local);
            return wrong + 1;
        }
        wrong += leaders->nodes != nodes || leaders->rank != group->node_of[group->rank];
        wrong += check_group(leaders, NULL);
        const uint64_t sent = leaders->wire_bytes, before = group->wire_bytes;
        wrong += nodes > 1 && sent == 0;
        dp_group_sub_sync(leaders);
        wrong += leaders->wire_bytes != 0 || group->wire_bytes != before + sent;
    }
    dp_group_destroy(leaders);
    dp_group_destroy(local);
    return wrong;
}

static void groups_of_some_ranks_behave_like_any_group(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const size_t live = dp_mem_live();
        assert_int_equal(
            on_local_nodes(places[i].size, places[i].node_of, makes_smaller_groups, NULL), 0);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* Rank 0 never arrives: the others give up when it fails, instead of waiting for ever. */
static size_t waits_for_nobody(struct dp_group *group, const void *kind)
{
    char all[3] = {0}, mine = 1;

    if (group->rank == 0) {
        return 1;
    }
    switch (*(const int *)kind) {
    case 0:
        return dp_group_barrier(group) != DP_ERR_CANCELLED;
    case 1:
        return dp_group_broadcast(group, &mine, 1, 0) != DP_ERR_CANCELLED;
    case 2:
        return dp_group_allgather(group, &mine, 1, all) != DP_ERR_CANCELLED;
    case 3:
        return dp_group_agree(group, DP_OK) != DP_ERR_CANCELLED;
    default:
        return dp_group_memory(group, DP_MEM_COMM, 100) != NULL;
    }
}

static void a_failing_rank_wakes_all_that_wait(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int kind = 0; kind < 5; kind++) {
        assert_int_equal(on_local_ranks(3, waits_for_nobody, &kind), 1);
        assert_int_equal(dp_mem_live(), live);
    }
}

/* A message whose sender has given up is gone: the receiver must not look into its memory. */
static void messages_of_a_rank_that_gave_up_are_not_received(void **state)
{
    struct dp_local_hub *hub = NULL;
    struct dp_group *group = NULL;
    char byte = 1;
    (void)state;

    assert_int_equal(dp_local_hub_create(2, &hub), DP_OK);
    assert_int_equal(dp_local_join(hub, 0, &group), DP_OK);
    dp_local_cancel(hub);
    const struct dp_slice slice = {&byte, 1, 1};
    assert_int_equal(dp_group_exchange(group, 1, slice, 1, slice), DP_ERR_CANCELLED);
    dp_group_destroy(group);
    assert_int_equal(dp_local_join(hub, 1, &group), DP_OK);
    assert_int_equal(dp_group_exchange(group, -1, slice, 0, slice), DP_ERR_CANCELLED);
    dp_group_destroy(group);
    dp_local_hub_destroy(hub);
}

static size_t sends_too_much(struct dp_group *group, const void *unused)
{
    char data[8] = {0};
    const struct dp_slice slice = {data, (size_t)(group->rank == 0 ? 8 : 4), 1};
    (void)unused;

    return dp_group_exchange(group, 1 - group->rank, slice, 1 - group->rank, slice) != DP_OK;
}

static void lengths_that_do_not_match_are_an_error(void **state)
{
    (void)state;
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(on_local_ranks(2, sends_too_much, NULL), 2);
    dp_log_set_level(DP_LOG_INFO);
}

static void making_a_group_survives_every_failed_allocation(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    const size_t live = dp_mem_live();
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_group *group = NULL;
        dp_mem_fail_nth(nth);
        status = dp_local_alone(&group);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((group != NULL) == (status == DP_OK));
        dp_group_destroy(group);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void making_a_smaller_group_survives_every_failed_allocation(void **state)
{
    const int ranks[] = {0};
    dp_status status = DP_ERR_NOMEM;
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    const size_t live = dp_mem_live();
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_group *sub = NULL;
        dp_mem_fail_nth(nth);
        status = dp_group_sub_create(group, ranks, 1, &sub);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((sub != NULL) == (status == DP_OK));
        dp_group_destroy(sub);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
    dp_group_destroy(group);
}

struct failing {
    int nth; /* allocation of memory, from the moment when all ranks have come */
};

/* Rank 0 arms the failure while the others wait, so that it hits one of the three ranks' memory. */
static size_t takes_memory(struct dp_group *group, const void *arg)
{
    const struct failing *f = arg;
    struct dp_node_memory node = {NULL, NULL, false};
    size_t wrong = dp_group_barrier(group) != DP_OK;

    if (group->rank == 0) {
        dp_mem_fail_nth(f->nth);
    }
    wrong += dp_group_barrier(group) != DP_OK;
    void *memory = dp_group_memory(group, DP_MEM_COMM, 1000);
    const dp_status status = dp_group_node_memory(group, DP_MEM_DATA, 1000, &node);
    /* All three failed, or none. */
    wrong += dp_group_agree(group, memory == NULL ? DP_ERR_NOMEM : DP_OK) !=
             (memory == NULL ? DP_ERR_NOMEM : DP_OK);
    wrong += dp_group_agree(group, status) != status;
    wrong += f->nth <= 3 && memory != NULL;
    wrong += f->nth > 3 && (memory == NULL || status != DP_ERR_NOMEM);
    dp_group_release_node(group, &node);
    dp_group_release(group, memory);
    return wrong;
}

static void memory_that_one_rank_lacks_fails_on_all(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; nth <= 6; nth++) {
        const struct failing f = {nth};
        const size_t wrong = on_local_ranks(3, takes_memory, &f);
        dp_mem_fail_nth(0);
        assert_int_equal(wrong, 0);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole_whatever_their_lengths),
        cmocka_unit_test(many_messages_may_be_in_flight),
        cmocka_unit_test(finished_transfers_are_found_without_waiting),
        cmocka_unit_test(a_message_arrives_while_its_sender_does_something_else),
        cmocka_unit_test(too_many_messages_in_flight_are_an_error),
        cmocka_unit_test(a_barrier_ends_when_all_ranks_have_arrived),
        cmocka_unit_test(a_broadcast_reaches_all_from_every_root),
        cmocka_unit_test(an_allgather_gives_all_parts_in_rank_order),
        cmocka_unit_test(all_ranks_get_the_worst_status),
        cmocka_unit_test(memory_is_zeroed_and_seen_by_peers_at_the_same_place),
        cmocka_unit_test(a_node_has_one_copy_and_one_writer),
        cmocka_unit_test(memory_ends_with_the_room_for_its_pieces),
        cmocka_unit_test(ranks_share_memory_with_those_of_their_node),
        cmocka_unit_test(groups_of_some_ranks_behave_like_any_group),
        cmocka_unit_test(making_a_smaller_group_survives_every_failed_allocation),
        cmocka_unit_test(a_failing_rank_wakes_all_that_wait),
        cmocka_unit_test(messages_of_a_rank_that_gave_up_are_not_received),
        cmocka_unit_test(lengths_that_do_not_match_are_an_error),
        cmocka_unit_test(making_a_group_survives_every_failed_allocation),
        cmocka_unit_test(memory_that_one_rank_lacks_fails_on_all),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
