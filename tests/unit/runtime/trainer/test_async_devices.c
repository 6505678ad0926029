/*
 * test_async_devices.c - stale gradients can only be applied in memory of the host. Runs a second
 * time on device cuda.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/async.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

/* All ranks decide the same, so that they leave together. */
static size_t is_refused(struct dp_group *group, const void *run)
{
    const struct dp_async_hooks hooks = {.context = NULL};
    struct dp_trainer *t = NULL;
    struct dp_async *async = NULL;
    size_t wrong = 0;

    if (small_run_trainer(run, group, 1, &t) != DP_OK) {
        return 1;
    }
    const dp_status expected = t->device->host_memory ? DP_OK : DP_ERR_CONFIG;
    wrong += dp_async_create(t, &hooks, &async) != expected;
    wrong += (async != NULL) != (expected == DP_OK);
    wrong += dp_exchange_barrier(t->exchange) != DP_OK;
    dp_async_destroy(async);
    dp_trainer_destroy(t);
    return wrong;
}

static void stale_gradients_need_memory_that_the_host_can_reach(void **state)
{
    static const char *const sets[] = {"train.mode=async", "comm.strategy=ps", "comm.servers=1",
                                       "train.staleness=2", NULL};
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, sets), 0);
    stderr_begin();
    const size_t wrong = on_local_ranks(3, is_refused, &run);
    stderr_end();
    assert_int_equal(wrong, 0);
    assert_true((strstr(stderr_text, "train.staleness: needs device cpu, not ") != NULL) ==
                !run.device->host_memory);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stale_gradients_need_memory_that_the_host_can_reach),
    };

    return cmocka_run_group_tests_name("async_devices", tests, NULL, NULL);
}
