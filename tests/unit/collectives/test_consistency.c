/* test_consistency.c - what must be equal on all ranks: which difference is reported, and how. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/consistency.h"
#include "collectives/core/transport.h"
#include "tests/support/local_world.h"
#include "tests/support/stderr_text.h"

static size_t compares_long_texts(struct dp_group *group, const void *unused)
{
    char text[600] = "";
    (void)unused;

    /* The printed part is equal; the difference comes after it. */
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 2] = (char)(group->rank == 2 ? 'y' : 'x');
    const struct dp_consistency_item items[] = {dp_consistency_text("--set", "a=1 b=2"),
                                                dp_consistency_text("name", text)};
    return dp_consistency_check(group, items, 2) != DP_ERR_DISAGREE ||
           dp_consistency_check(group, items, 1) != DP_OK;
}

static size_t compares_many_words(struct dp_group *group, const void *unused)
{
    const struct dp_consistency_item item =
        dp_consistency_text("--set", group->rank == 1 ? "a=1 bc=3 d=4" : "a=1 bc=2 d=4");
    (void)unused;

    return dp_consistency_check(group, &item, 1) != DP_ERR_DISAGREE;
}

static size_t compares_with_a_remedy(struct dp_group *group, const void *unused)
{
    const struct dp_consistency_item item = {
        .field = "map", .hash = (uint64_t)group->rank, .remedy = "take the same one"};
    (void)unused;

    return dp_consistency_check(group, &item, 1) != DP_ERR_DISAGREE;
}

static size_t compares_in_memory(struct dp_group *group, const void *unused)
{
    const struct dp_consistency_item items[] = {dp_consistency_text("a", "b"),
                                                dp_consistency_text("c", "d")};
    (void)unused;

    return dp_consistency_check(group, items, 2) != DP_OK;
}

static void a_rank_without_memory_compares_nothing(void **state)
{
    (void)state;
    check_failing_allocations(1, NULL, compares_in_memory, NULL);
    check_failing_allocations(3, NULL, compares_in_memory, NULL);
}

static atomic_int given_up; /* ranks */

/* Rank 0 has no memory, and lives on until the others have given up. */
static size_t waits_for_others(struct dp_group *group, const void *unused)
{
    const struct dp_consistency_item item = dp_consistency_text("a", "b");
    const bool first = group->rank == 0;
    dp_status status;
    (void)unused;

    while (!first && atomic_load(&given_up) == 0) {
        (void)sched_yield();
    }
    dp_mem_fail_nth(first ? 1 : 0);
    status = dp_consistency_check(group, &item, 1);
    atomic_fetch_add(&given_up, 1);
    while (first && atomic_load(&given_up) < group->size) {
        (void)sched_yield();
    }
    return first ? status != DP_ERR_NOMEM : status == DP_OK;
}

static void nobody_waits_for_a_rank_without_memory(void **state)
{
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(on_local_ranks(3, waits_for_others, NULL), 0);
    dp_log_set_level(DP_LOG_INFO);
}

static _Thread_local const struct dp_transport *beneath;
static _Thread_local int messages; /* that a rank sends */

static dp_status start_and_count(struct dp_group *group, struct dp_slice out, struct dp_slice in,
                                 struct dp_transfer *transfer)
{
    messages += transfer->to >= 0;
    return beneath->start(group, out, in, transfer);
}

static int messages_of_agreement(struct dp_group *group, dp_status mine)
{
    struct dp_log_capture capture;

    messages = 0;
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    return dp_consistency_agree(group, mine, &capture) == DP_ERR_CONFIG ? messages : -1;
}

/* After ranks have agreed that one failed, and heard of all up to that one, they meet. */
static size_t meets_after_an_error(struct dp_group *group, const void *unused)
{
    struct dp_transport counting = *group->transport;
    int word = 0, heard = 0;
    size_t wrong = 0;
    (void)unused;

    beneath = group->transport;
    counting.start = start_and_count;
    group->transport = &counting;
    messages = 0;
    wrong += dp_group_agree(group, DP_OK) != DP_OK || dp_group_barrier(group) != DP_OK;
    for (int first = 0; first < group->size; first++) {
        const int around = messages;
        messages = 0;
        wrong += dp_group_broadcast(group, &word, sizeof(word), first) != DP_OK;
        heard += messages;
        const dp_status mine = group->rank == first ? DP_ERR_CONFIG : DP_OK;
        wrong += messages_of_agreement(group, mine) != around + heard;
        messages = around;
    }
    group->transport = beneath;
    return wrong;
}

static void whoever_fails_reports_it_before_any_rank_goes_on(void **state)
{
    (void)state;
    assert_int_equal(on_local_ranks(3, meets_after_an_error, NULL), 0);
}

static void long_items_are_printed_from_where_they_differ(void **state)
{
    (void)state;

    stderr_begin();
    const size_t wrong = on_local_ranks(3, compares_long_texts, NULL);
    stderr_end();
    assert_int_equal(wrong, 0);
    assert_non_null(strstr(stderr_text, "rank 2 ("));
    assert_non_null(strstr(stderr_text, "has another name than rank 0"));
    stderr_begin();
    assert_int_equal(on_local_ranks(2, compares_many_words, NULL), 0);
    stderr_end();
    assert_non_null(strstr(stderr_text, "has --set 'bc=3 d=4', rank 0 ("));
    assert_non_null(strstr(stderr_text, "has 'bc=2 d=4'"));
    stderr_begin();
    assert_int_equal(on_local_ranks(2, compares_with_a_remedy, NULL), 0);
    stderr_end();
    assert_non_null(strstr(stderr_text, "has another map than rank 0 ("));
    assert_non_null(strstr(stderr_text, "); take the same one: ranks disagree"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_memory_compares_nothing),
        cmocka_unit_test(nobody_waits_for_a_rank_without_memory),
        cmocka_unit_test(whoever_fails_reports_it_before_any_rank_goes_on),
        cmocka_unit_test(long_items_are_printed_from_where_they_differ),
    };
    return cmocka_run_group_tests_name("consistency", tests, NULL, NULL);
}
