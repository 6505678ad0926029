/* test_world.c - a process without a launcher is a world of one, without MPI. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/world/world.h"

/* The longest name that is kept whole, and one that is cut to it. */
#define LONGEST "a-host-whose-name-has-sixty-three-letters-of-which-none-is-lost"
static const char longest[] = LONGEST, longer[] = LONGEST "-but-these";

/* The linker takes this one, and not libc's; neither ends a name that is too long. */
int gethostname(char *name, size_t len)
{
    memcpy(name, longer, len < sizeof(longer) ? len : sizeof(longer));
    return 0;
}

static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

static int forget_launcher(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unsetenv(names[i]);
    }
    return 0;
}

static void a_single_process_is_a_world_of_one(void **state)
{
    const size_t live = dp_mem_live();
    (void)state;

    for (int round = 0; round < 2; round++) {
        struct dp_world *world = NULL;
        assert_int_equal(dp_world_create(&world), DP_OK);
        assert_false(world->mpi);
        assert_string_equal(world->library, "no MPI");
        assert_int_equal(world->all->rank, 0);
        assert_int_equal(world->all->size, 1);
        assert_ptr_equal(world->train, world->all);
        assert_string_equal(world->host, longest);
        assert_int_equal(dp_group_barrier(world->all), DP_OK);
        dp_world_abort(world, 3); /* nobody to end */
        dp_world_destroy(world);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_world_destroy(NULL);
}

static void as_many_ranks_go_on_as_divide_the_lanes(void **state)
{
    (void)state;

    for (int lanes = 1; lanes <= 64; lanes *= 2) {
        for (int ranks = 1; ranks <= 70; ranks++) {
            const int most = dp_world_fitting(ranks, lanes);
            assert_in_range(most, 1, ranks);
            assert_int_equal(lanes % most, 0);
            for (int more = most + 1; more <= ranks; more++) {
                assert_int_not_equal(lanes % more, 0);
            }
        }
    }
    assert_int_equal(dp_world_fitting(5, 0), 5);
}

static void a_single_process_of_several_is_refused(void **state)
{
    static const struct {
        const char *name, *value, *procid, *mark; /* mark: also set */
        bool refused;
    } cases[] = {
        {"SLURM_NTASKS", "2", "0", NULL, true},
        {"SLURM_NTASKS", "2", NULL, NULL, false},
        {"SLURM_NTASKS", "1", "0", NULL, false},
        {"SLURM_STEP_NUM_TASKS", "8", "3", NULL, true},
        {"PMI_SIZE", "4", NULL, NULL, true},
        {"PMI_SIZE", "1", NULL, NULL, false},
        {"MV2_COMM_WORLD_SIZE", "2", NULL, NULL, true},
        {"JSM_NAMESPACE_SIZE", "2", NULL, NULL, true},
        {"FLUX_JOB_SIZE", "2", NULL, NULL, true},
        {"WORLD_SIZE", "2", NULL, "TORCHELASTIC_RUN_ID", true},
        {"WORLD_SIZE", "2", NULL, NULL, false},
        {"OMPI_COMM_WORLD_SIZE", "2", NULL, NULL, true},
    };
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_world *world = NULL;
        struct dp_log_capture capture;
        assert_int_equal(setenv(cases[i].name, cases[i].value, 1), 0);
        if (cases[i].procid != NULL) {
            assert_int_equal(setenv("SLURM_PROCID", cases[i].procid, 1), 0);
        }
        if (cases[i].mark != NULL) {
            assert_int_equal(setenv(cases[i].mark, "1", 1), 0);
        }
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        assert_int_equal(dp_world_create(&world), cases[i].refused ? DP_ERR_USAGE : DP_OK);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        assert_int_equal(strstr(dp_log_captured(&capture), cases[i].name) != NULL,
                         cases[i].refused);
        dp_world_destroy(world);
        assert_int_equal(unsetenv(cases[i].name), 0);
        (void)unsetenv("SLURM_PROCID");
        if (cases[i].mark != NULL) {
            (void)unsetenv(cases[i].mark);
        }
    }
    assert_int_equal(dp_mem_live(), live);
}

static void a_second_group_is_independent(void **state)
{
    const size_t live = dp_mem_live();
    struct dp_world *world = NULL;
    struct dp_group *group = NULL;
    (void)state;

    assert_int_equal(dp_world_create(&world), DP_OK);
    assert_int_equal(dp_world_group(world, &group), DP_OK);
    assert_ptr_not_equal(group, world->all);
    assert_int_equal(group->size, world->all->size);
    world->all->guarded = true; /* an engine owns that one */
    assert_int_equal(dp_group_barrier(group), DP_OK);
    dp_group_destroy(group);
    dp_world_destroy(world);
    assert_int_equal(dp_mem_live(), live);
}

static void a_single_process_agrees_with_itself(void **state)
{
    struct dp_world *world = NULL;
    bool must_report = true;
    (void)state;

    assert_int_equal(dp_world_create(&world), DP_OK);
    assert_int_equal(dp_world_meet(world, "ddp_train", DP_OK, &must_report), DP_OK);
    assert_false(must_report);
    assert_int_equal(dp_world_meet(world, "ddp_train", DP_ERR_USAGE, &must_report), DP_ERR_USAGE);
    assert_false(must_report);
    dp_world_destroy(world);
}

static void the_launchers_of_mpi_and_slurm_are_recognised(void **state)
{
    (void)state;
    assert_int_equal(dp_world_launch_rank(), -1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(setenv(names[i], "12", 1), 0);
        assert_int_equal(dp_world_launch_rank(), 12);
        assert_int_equal(unsetenv(names[i]), 0);
    }
}

static void joining_survives_every_failed_allocation(void **state)
{
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_world *world = NULL;
        dp_mem_fail_nth(nth);
        status = dp_world_create(&world);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((world != NULL) == (status == DP_OK));
        dp_world_destroy(world);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_process_is_a_world_of_one),
        cmocka_unit_test(as_many_ranks_go_on_as_divide_the_lanes),
        cmocka_unit_test(a_single_process_of_several_is_refused),
        cmocka_unit_test(a_second_group_is_independent),
        cmocka_unit_test(a_single_process_agrees_with_itself),
        cmocka_unit_test(the_launchers_of_mpi_and_slurm_are_recognised),
        cmocka_unit_test(joining_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("world", tests, forget_launcher, NULL);
}
