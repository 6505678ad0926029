/* test_shm_barrier.c - a barrier that lacks memory says so, whichever rank lacks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "collectives/core/shm_barrier.h"
#include "tests/support/local_world.h"
#include "tests/support/stderr_text.h"

enum { RANKS = 4, TIMES = 10, MOST = 100 };

/* One allocation fails of those of all ranks, which reach it in any order. */
static size_t opens(struct dp_group *group, const void *arg)
{
    const int *nth = arg;
    struct dp_shm_barrier barrier;
    dp_status status = dp_group_barrier(group); /* all are there */

    if (group->rank == 0) {
        (void)dp_mem_fail_nth(*nth);
    }
    status = status == DP_OK ? dp_group_barrier(group) : status;
    if (status == DP_OK) {
        status = dp_shm_barrier_open(&barrier, group, "shm");
        if (status == DP_OK) {
            dp_shm_barrier_close(&barrier);
        }
    }
    return status != DP_OK;
}

static int times_said(const char *words)
{
    int times = 0;

    for (const char *at = stderr_text; (at = strstr(at, words)) != NULL; at++) {
        times++;
    }
    return times;
}

/* All ranks lack shared memory, of which rank 0 tells; a list is lacked by one rank, which tells of
 * it, and of which rank 0 may hear while it waits. */
static void missing_memory_is_reported_and_not_by_all(void **state)
{
    const size_t live = dp_mem_live();
    bool failed = true;
    int nth;
    (void)state;

    for (nth = 1; failed; nth++) {
        failed = false;
        for (int i = 0; i < TIMES; i++) {
            stderr_begin();
            const size_t wrong = on_local_ranks(RANKS, opens, &nth);
            (void)dp_mem_fail_nth(0);
            stderr_end();
            const int said = times_said("shm: flags of 4 ranks");
            failed = failed || wrong > 0;
            assert_in_range(said, wrong > 0, wrong > 0 ? 2 : 0);
            assert_int_equal(dp_mem_live(), live);
        }
        assert_in_range(nth, 1, MOST);
    }
    assert_in_range(nth, RANKS, MOST); /* each rank has a list */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_memory_is_reported_and_not_by_all),
    };

    return cmocka_run_group_tests_name("shm_barrier", tests, NULL, NULL);
}
