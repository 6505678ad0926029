/*
 * test_average_load.c - the average of the weights is taken from a file of optimizer state, by
 * itself, and only where it is this model's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "kernels/flat.h"
#include "runtime/checkpoint/weights.h"
#include "tests/support/scratch.h"

enum { PARAMS = 2, TOTAL = 6 };

static const struct dp_tensor params[PARAMS] = {
    {.name = "0.weight",
     .dims = 2,
     .shape = {2, 2},
     .count = 4,
     .begin = 0,
     .spatial = 1,
     .channels = 2},
    {.name = "0.bias",
     .dims = 1,
     .shape = {2},
     .count = 2,
     .begin = 4,
     .spatial = 1,
     .channels = 2},
};

static float momentum[TOTAL] = {9, 9, 9, 9, 9, 9}, average[TOTAL] = {1, 2, 3, 4, 5, 6};

/* Loads from a file with these arrays: the average, or nothing. */
static void assert_loaded(const struct dp_slot *slots, int slot_count, dp_status expected)
{
    float values[TOTAL] = {0};
    struct dp_log_capture capture;
    dp_status status;

    assert_int_equal(
        dp_slots_save(scratch_path("o"), params, PARAMS, slots, slot_count, NULL, NULL), DP_OK);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_average_load(scratch_path("o"), params, PARAMS, values);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_int_equal(status, expected);
    if (expected == DP_OK) {
        assert_memory_equal(values, average, sizeof(average));
    } else {
        assert_non_null(strstr(dp_log_captured(&capture), "no average of this model's weights"));
    }
    assert_int_equal(dp_mem_live(), 0);
}

static void an_average_is_found_beside_whatever_else_there_is(void **state)
{
    const struct dp_slot slots[] = {{"momentum", momentum, 0}, {DP_AVERAGE_NAME, average, 0}};
    (void)state;

    assert_loaded(slots, 2, DP_OK);
    assert_loaded(slots + 1, 1, DP_OK);
}

static void a_file_without_one_is_refused(void **state)
{
    const struct dp_slot slots[] = {{"momentum", momentum, 0}};
    (void)state;

    assert_loaded(slots, 1, DP_ERR_CONFIG);
    assert_loaded(slots, 0, DP_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_average_is_found_beside_whatever_else_there_is,
                                        scratch_create_fast, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_file_without_one_is_refused, scratch_create_fast,
                                        scratch_destroy),
    };

    return cmocka_run_group_tests_name("average_load", tests, NULL, NULL);
}
