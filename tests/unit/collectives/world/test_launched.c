/* test_launched.c - what launchers say in the environment is believed, the nearest one first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/world/launched.h"
#include "tests/support/stderr_text.h"

static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",    "PMI_RANK",
                                    "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",     "FLUX_JOB_SIZE",
                                    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_PROCID"};

static int forget(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unsetenv(names[i]);
    }
    return 0;
}

static void say(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

static void the_rank_is_the_nearest_launchers(void **state)
{
    (void)state;
    assert_int_equal(dp_world_launch_rank(), -1);
    say("PMI_RANK", "5");
    assert_int_equal(dp_world_launch_rank(), 5);
    say("PMIX_RANK", "4");
    assert_int_equal(dp_world_launch_rank(), 4);
    say("OMPI_COMM_WORLD_RANK", "0");
    assert_int_equal(dp_world_launch_rank(), 0);
}

/* Refused, with the launcher's words and the variable without which it is not. */
static void assert_refused(const char *said, const char *without)
{
    char end[64];

    stderr_begin();
    const dp_status status = dp_launched_alone();
    stderr_end();
    assert_int_equal(status, DP_ERR_USAGE);
    assert_non_null(strstr(stderr_text, said));
    (void)snprintf(end, sizeof(end), ": env -u %s\n", without);
    assert_string_equal(stderr_text + strlen(stderr_text) - strlen(end), end);
}

static void one_of_several_that_found_no_other_is_refused(void **state)
{
    (void)state;
    assert_int_equal(dp_launched_alone(), DP_OK);
    say("FLUX_JOB_SIZE", "9");
    assert_refused(" FLUX_JOB_SIZE=9: ", "FLUX_JOB_SIZE");
    say("PMI_SIZE", "2");
    assert_refused(" PMI_SIZE=2: ", "PMI_SIZE");
    say("OMPI_COMM_WORLD_SIZE", "4");
    assert_refused(" OMPI_COMM_WORLD_SIZE=4: ", "OMPI_COMM_WORLD_SIZE");
    say("OMPI_COMM_WORLD_SIZE", "1"); /* which decides */
    assert_int_equal(dp_launched_alone(), DP_OK);
}

/* In a shell of an allocation there are tasks, but this process is none of them. */
static void of_slurm_only_a_task_counts(void **state)
{
    (void)state;
    say("SLURM_NTASKS", "8");
    assert_int_equal(dp_launched_alone(), DP_OK);
    say("SLURM_PROCID", "0");
    assert_refused(" SLURM_NTASKS=8: ", "SLURM_PROCID");
    say("SLURM_STEP_NUM_TASKS", "6");
    assert_refused(" SLURM_STEP_NUM_TASKS=6: ", "SLURM_PROCID");
    say("SLURM_STEP_NUM_TASKS", "1");
    assert_int_equal(dp_launched_alone(), DP_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_rank_is_the_nearest_launchers, forget),
        cmocka_unit_test_setup(one_of_several_that_found_no_other_is_refused, forget),
        cmocka_unit_test_setup(of_slurm_only_a_task_counts, forget),
    };

    return cmocka_run_group_tests_name("launched", tests, NULL, NULL);
}
