/*
 * test_gpu_peers_start.c - a GPU, or NCCL, that fails one rank while it starts: the others do not
 * wait.
 *
 * Skipped without device cuda; in a build of DP_CUDA=host it is simulated.
 */
#include "tests/support/arrays.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/tested_device.h"

enum { SIMULATED = DP_CUDA_ON_HOST }; /* tests/cuda_on_host/nccl.cpp */

enum { STEPS = 6 };

static int gpus_here; /* that one process sees */

static void needs_gpus(int count)
{
    if (gpus_here < count) {
        skip();
    }
}

/* Number of events that this rank can still create; -1: no limit. */
static _Thread_local int events_left = -1;
static const struct dp_device *real_device;

static dp_status make_event(struct dp_event **out)
{
    if (events_left == 0) {
        return DP_FAIL(DP_ERR_CUDA, "an event that fails for this test");
    }
    events_left -= events_left > 0;
    return real_device->event_create(out);
}

struct failing {
    struct small_run run;
    int events, rank;
};

/* A failure on one rank while a trainer is created must end all; else returns 1. */
static size_t fails_to_start(struct dp_group *group, const void *arg)
{
    const struct failing *f = arg;
    struct dp_trainer *t = NULL;
    size_t wrong;

    events_left = group->rank == f->rank ? f->events : -1;
    wrong = small_run_trainer(&f->run, group, STEPS, &t) == DP_OK;
    dp_trainer_destroy(t);
    return wrong;
}

static void a_gpu_that_fails_at_the_start_ends_all_ranks(void **state)
{
    static const char *const sets[][3] = {{"comm.strategy=ipc"},
                                          {"comm.strategy=staged"},
                                          {"comm.strategy=staged", "comm.compressor=int8"}};
    struct dp_device device;
    (void)state;

    needs_gpus(1);
    dp_log_set_level(DP_LOG_NONE);
    for (int i = 0; i < 4 * (int)DP_COUNT(sets); i++) {
        struct failing f = {.events = i % 4, .rank = i % 2};
        assert_int_equal(small_run_create(&f.run, small_dense, sets[i / 4]), 0);
        real_device = f.run.device;
        device = *real_device;
        device.event_create = make_event;
        f.run.device = &device;
        assert_int_equal(on_local_ranks(2, fails_to_start, &f), 0);
        small_run_destroy(&f.run);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void a_rank_that_cannot_join_nccl_ends_all(void **state)
{
    static const char *const sets[] = {"comm.strategy=nccl", NULL};
    struct failing f = {.events = -1};
    (void)state;

    needs_gpus(2);
    if (!SIMULATED) {
        skip();
    }
    assert_int_equal(small_run_create(&f.run, small_dense, sets), 0);
    assert_int_equal(setenv("DP_CUDA_NCCL", "init:1", 1), 0);
    dp_log_set_level(DP_LOG_NONE);
    const size_t wrong = on_local_ranks(2, fails_to_start, &f);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(unsetenv("DP_CUDA_NCCL"), 0);
    assert_int_equal(wrong, 0);
    small_run_destroy(&f.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_fails_at_the_start_ends_all_ranks),
        cmocka_unit_test(a_rank_that_cannot_join_nccl_ends_all),
    };
    const struct dp_device *cuda;

    if (strcmp(tested_device(), "cuda") == 0 && dp_device_find("cuda", &cuda) == DP_OK) {
        gpus_here = cuda->units->count();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
