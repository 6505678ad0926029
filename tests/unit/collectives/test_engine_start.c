/* test_engine_start.c - where a wire waits for it, the engine's thread gets the core for a job. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "collectives/core/engine.h"
#include "collectives/core/transport.h"

/* How often this thread has given its core away. The linker takes this one, and not libc's. */
static _Thread_local int yields;

int sched_yield(void)
{
    yields++;
    return 0;
}

static dp_status do_nothing(void *arg, int index)
{
    (void)arg;
    (void)index;
    return DP_OK;
}

/* How often submitting a job gives the core away, on so many nodes. */
static int yields_for(int nodes, enum dp_run run)
{
    struct dp_job job = {.run = do_nothing};
    struct dp_engine *engine = NULL;
    struct dp_group *group = NULL;
    int before, after;

    assert_int_equal(dp_local_alone(&group), DP_OK);
    assert_int_equal(dp_engine_create(group, run, &engine), DP_OK);
    group->nodes = nodes; /* of which this rank asks nothing */
    before = yields;
    assert_int_equal(dp_engine_submit(engine, &job), DP_OK);
    after = yields;
    assert_int_equal(dp_engine_wait(engine, &job), DP_OK);
    dp_engine_destroy(engine);
    dp_group_destroy(group);
    return after - before;
}

static void on_several_nodes_the_thread_can_begin_at_once(void **state)
{
    (void)state;
    assert_int_equal(yields_for(2, DP_RUN_ON_THREAD), 1);
    assert_int_equal(yields_for(3, DP_RUN_ON_THREAD), 1);
}

static void without_a_wire_or_a_thread_computing_goes_on(void **state)
{
    (void)state;
    assert_int_equal(yields_for(1, DP_RUN_ON_THREAD), 0);
    assert_int_equal(yields_for(2, DP_RUN_AT_WAIT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_several_nodes_the_thread_can_begin_at_once),
        cmocka_unit_test(without_a_wire_or_a_thread_computing_goes_on),
    };

    return cmocka_run_group_tests_name("engine_start", tests, NULL, NULL);
}
