/*
 * small_checkpoint.h - for tests: checkpoints of one small tensor, in the folder of the test.
 *
 * Header only; after <cmocka.h> and what it wants.
 */
#ifndef DP_TESTS_SUPPORT_FILES_SMALL_CHECKPOINT_H
#define DP_TESTS_SUPPORT_FILES_SMALL_CHECKPOINT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "runtime/checkpoint/checkpoint_save.h"
#include "tests/support/scratch.h"

enum { COUNT = 5000 };

static const struct dp_tensor param = {.name = "0.weight",
                                       .dims = 2,
                                       .shape = {50, 100},
                                       .count = COUNT,
                                       .spatial = 1,
                                       .channels = 100};
static float values[COUNT], momentum[COUNT];
static struct dp_weights weights = {.params = &param, .param_count = 1, .values = values};
static const struct dp_slot slot = {"momentum", momentum, 0};

static inline dp_status save_every(uint64_t step, int keep, uint64_t keep_every)
{
    struct dp_json *fields = dp_json_create();
    const struct dp_checkpoint checkpoint = {
        .step = step, .weights = &weights, .slots = &slot, .slot_count = 1, .state = fields};
    dp_status status;

    values[7] = (float)step;
    assert_int_equal(dp_json_set_real(fields, "loss_scale", 65536), DP_OK);
    status = dp_checkpoint_save(scratch_path("checkpoints"), &checkpoint, keep, keep_every);
    dp_json_destroy(fields);
    assert_int_equal(dp_mem_live(), 0);
    return status;
}

static inline dp_status save(uint64_t step, int keep)
{
    return save_every(step, keep, 0);
}

static inline int exists(uint64_t step)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "checkpoints/step-%08" PRIu64, step);
    return access(scratch_path(name), F_OK) == 0;
}

static inline void assert_latest(const char *expected)
{
    char target[64] = "";

    assert_true(readlink(scratch_path("checkpoints/latest"), target, sizeof(target) - 1) > 0);
    assert_string_equal(target, expected);
}

#endif
