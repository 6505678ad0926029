/* test_world.c - a process that nobody launched is a world of one, without MPI. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/world/world.h"

static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

static int forget_launcher(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unsetenv(names[i]);
    }
    return 0;
}

static void a_process_on_its_own_is_a_world_of_one(void **state)
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
        assert_true(strlen(world->host) > 0);
        assert_int_equal(dp_group_barrier(world->all), DP_OK);
        dp_world_abort(world, 3); /* nobody to end */
        dp_world_destroy(world);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_world_destroy(NULL);
}

static void a_second_group_is_one_of_its_own(void **state)
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

static void a_process_on_its_own_meets_nobody_who_does_something_else(void **state)
{
    struct dp_world *world = NULL;
    bool tell = true;
    (void)state;

    assert_int_equal(dp_world_create(&world), DP_OK);
    assert_int_equal(dp_world_meet(world, "ddp_train", DP_OK, &tell), DP_OK);
    assert_false(tell);
    assert_int_equal(dp_world_meet(world, "ddp_train", DP_ERR_USAGE, &tell), DP_ERR_USAGE);
    assert_false(tell);
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

    dp_log_mute(1);
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
    dp_log_mute(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_on_its_own_is_a_world_of_one),
        cmocka_unit_test(a_second_group_is_one_of_its_own),
        cmocka_unit_test(a_process_on_its_own_meets_nobody_who_does_something_else),
        cmocka_unit_test(the_launchers_of_mpi_and_slurm_are_recognised),
        cmocka_unit_test(joining_survives_every_failed_allocation),
    };
    return cmocka_run_group_tests_name("world", tests, forget_launcher, NULL);
}
