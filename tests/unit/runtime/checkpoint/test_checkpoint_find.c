/* test_checkpoint_find.c - in which order checkpoints are tried, and for which paths. */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/checkpoint/checkpoint_dir.h"
#include "tests/support/files/small_checkpoint.h"
#include "tests/support/scratch.h"

enum { STEPS = 6 };

/* Saves the steps 1 to 6, of which 3 is the latest. 4 and 5 are from before training went back to
 * it, 6 was finished after it, by a nanosecond, but not linked yet. */
static void save_all(void)
{
    /* In the order of saving, so that folders do not list them sorted. */
    static const struct {
        int step;
        struct timespec made;
    } steps[STEPS] = {{6, {500, 8}}, {2, {100, 7}}, {4, {499, 7}},
                      {1, {900, 7}}, {3, {500, 7}}, {5, {500, 7}}};
    char path[64];

    for (int i = 0; i < STEPS; i++) {
        const struct timespec times[2] = {steps[i].made, steps[i].made};
        assert_int_equal(save((uint64_t)steps[i].step, 0), DP_OK);
        (void)snprintf(path, sizeof(path), "checkpoints/step-%08d/MANIFEST", steps[i].step);
        assert_int_equal(utimensat(AT_FDCWD, scratch_path(path), times, 0), 0);
    }
    assert_int_equal(unlink(scratch_path("checkpoints/latest")), 0);
    assert_int_equal(symlink("step-00000003", scratch_path("checkpoints/latest")), 0);
}

/* The step that is found; 0: none is whole. */
static int found_step(const char *path)
{
    char found[DP_PATH_BYTES];
    const dp_status status = dp_checkpoint_dir_find(path, found, NULL);
    const char *slash = status == DP_OK ? strrchr(found, '/') : NULL;

    assert_true(status == DP_OK || status == DP_ERR_DATA);
    return status == DP_OK
               ? (int)strtol((slash == NULL ? found : slash + 1) + strlen("step-"), NULL, 10)
               : 0;
}

/* Finds one after another, each time without a file of the one that was found. */
static void assert_order(const int order[STEPS])
{
    char path[64];

    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(found_step(scratch_path("checkpoints")), order[i]);
        (void)snprintf(path, sizeof(path), "checkpoints/step-%08d/state.json", order[i]);
        assert_int_equal(unlink(scratch_path(path)), 0);
    }
    assert_int_equal(found_step(scratch_path("checkpoints")), 0);
}

static void what_was_finished_last_is_tried_first(void **state)
{
    static const int order[STEPS] = {6, 3, 2, 1, 5, 4};
    (void)state;

    save_all();
    assert_order(order);
}

static void without_a_link_the_highest_step_is_tried_first(void **state)
{
    static const int order[STEPS] = {6, 5, 4, 3, 2, 1};
    (void)state;

    save_all();
    assert_int_equal(unlink(scratch_path("checkpoints/latest")), 0);
    assert_order(order);
}

static void a_run_its_checkpoints_and_the_link_lead_to_the_same(void **state)
{
    static const char *const paths[] = {".",
                                        "checkpoints",
                                        "checkpoints/",
                                        "checkpoints//",
                                        "checkpoints/latest",
                                        "checkpoints/latest/"};
    const int before = open(".", O_RDONLY | O_DIRECTORY);
    (void)state;

    assert_true(before >= 0);
    save_all();
    assert_int_equal(chdir(scratch_folder), 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        assert_int_equal(found_step(paths[i]), STEPS);
        assert_int_equal(found_step(scratch_path(paths[i])), STEPS);
    }
    assert_int_equal(chdir("checkpoints"), 0);
    assert_int_equal(found_step("latest"), STEPS);
    assert_int_equal(found_step("step-00000002"), 2);
    assert_int_equal(fchdir(before), 0);
    assert_int_equal(close(before), 0);
}

/* It is taken, whatever there is beside, or it is torn. */
static void a_checkpoint_is_known_by_its_name_or_by_a_file(void **state)
{
    char from[512], mine[512], found[DP_PATH_BYTES];
    (void)state;

    save_all();
    assert_int_equal(found_step(scratch_path("checkpoints/step-00000004")), 4);
    (void)snprintf(from, sizeof(from), "%s", scratch_path("checkpoints/step-00000002"));
    (void)snprintf(mine, sizeof(mine), "%s", scratch_path("mine"));
    assert_int_equal(symlink(from, mine), 0);
    assert_int_equal(dp_checkpoint_dir_find(mine, found, NULL), DP_OK);
    assert_string_equal(found, mine);
    assert_int_equal(unlink(mine), 0);
    assert_int_equal(rename(from, mine), 0);
    assert_int_equal(dp_checkpoint_dir_find(mine, found, NULL), DP_OK);
    assert_string_equal(found, mine);
    assert_int_equal(unlink(scratch_path("mine/MANIFEST")), 0);
    assert_int_equal(dp_checkpoint_dir_find(mine, found, NULL), DP_ERR_DATA);
    assert_int_equal(unlink(scratch_path("mine/state.json")), 0);
    assert_int_equal(dp_checkpoint_dir_find(mine, found, NULL), DP_ERR_NOINPUT);
    assert_int_equal(rename(mine, from), 0); /* nothing but a name is left */
    assert_int_equal(dp_checkpoint_dir_find(from, found, NULL), DP_ERR_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_finished_last_is_tried_first, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(without_a_link_the_highest_step_is_tried_first,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_run_its_checkpoints_and_the_link_lead_to_the_same,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_checkpoint_is_known_by_its_name_or_by_a_file,
                                        scratch_create, scratch_destroy),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
