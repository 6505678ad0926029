/*
 * test_missing_memory.c - what there is no memory for is named, with its size in MB; a device that
 * has just enough is taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/trainer/evaluator.h"
#include "runtime/trainer/prepare/memory_check.h"
#include "runtime/trainer/prepare/memory_plan.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"

enum { FOUND_MOST = 8, TEXT = 160, ALLOCATIONS_MOST = 200 };

/* Almost a million weights. */
static const char large[] = "[flatten: {}, dense: {units: 4000}, dense: {units: 150}, "
                            "dense: {units: 5}]";

/* What was said to need memory, in the order in which it was said, each once. */
static char found[FOUND_MOST][TEXT];
static size_t found_count;

static void note(const char *text)
{
    if (strstr(text, " MB") == NULL) {
        return;
    }
    for (size_t i = 0; i < found_count; i++) {
        if (strcmp(found[i], text) == 0) {
            return;
        }
    }
    assert_true(found_count < FOUND_MOST);
    (void)snprintf(found[found_count++], TEXT, "%s", text);
}

static size_t train(struct dp_group *group, const void *run)
{
    struct dp_log_capture capture;
    struct dp_trainer *t = NULL;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = small_run_trainer(run, group, 1, &t);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    note(dp_log_captured(&capture));
    dp_trainer_destroy(t);
    return status != DP_OK;
}

static size_t evaluate(struct dp_group *group, const void *arg)
{
    const struct small_run *run = arg;
    const struct dp_evaluator_config config = {.config = run->config,
                                               .model = run->model,
                                               .device = run->device,
                                               .data = &run->data,
                                               .trainers = 1,
                                               .threads = 1};
    struct dp_log_capture capture;
    struct dp_evaluator *e = NULL;
    dp_status status;
    (void)group;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_evaluator_create(&config, &e);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    note(dp_log_captured(&capture));
    dp_evaluator_destroy(e);
    return status != DP_OK;
}

/* Lets one allocation after the other fail, and keeps what is said. */
static void find(struct small_run *run, const char *const *sets, rank_body *body)
{
    bool failed = true;

    found_count = 0;
    assert_int_equal(small_run_create(run, large, sets), 0);
    for (int nth = 1; failed; nth++) {
        assert_true(nth < ALLOCATIONS_MOST);
        dp_mem_fail_nth(nth);
        (void)on_local_ranks(1, body, run);
        failed = dp_mem_fail_nth(0) <= 0;
    }
}

/* What has so many bytes for each weight. */
struct need {
    const char *before, *after;
    size_t bytes;
};

#define ACTIVATIONS(rows)                                                       \
    {                                                                           \
        "activations of " rows " rows need",                                    \
            "; a smaller train.global_batch or train.micro_batch needs less", 0 \
    }

static void check(const struct small_run *run, const struct need *needs, size_t count)
{
    char text[TEXT];

    assert_true(run->model->trained > 800000);
    assert_int_equal(found_count, count);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(text, sizeof(text), "%s %zu MB%s: out of memory", needs[i].before,
                       needs[i].bytes * run->model->trained / 1048576, needs[i].after);
        assert_string_equal(found[i], text);
    }
}

static void a_trainer_says_what_its_state_needs(void **state)
{
    static const char *const sets[] = {"train.precision=bf16", "optimizer.name=adamw",
                                       "train.ema=0.9", NULL};
    static const struct need needs[] = {{"gradients need", "", 4},
                                        {"weights need", "", 2 + 4},
                                        {"optimizer state needs", " more", 4},
                                        {"the average of the weights needs", " more", 4},
                                        ACTIVATIONS("32")};
    struct small_run run;
    (void)state;

    find(&run, sets, train);
    check(&run, needs, 5);
    small_run_destroy(&run);
}

static void lanes_say_what_partial_sums_need(void **state)
{
    static const char *const sets[] = {"train.lanes=4", NULL};
    static const struct need needs[] = {
        {"gradients need", "", 4},
        {"weights need", "", 4},
        {"optimizer state needs", " more", 4},
        ACTIVATIONS("8"),
        {"partial sums of 4 lanes need", "; fewer train.lanes, or more ranks, need less", 8}};
    struct small_run run;
    (void)state;

    find(&run, sets, train);
    check(&run, needs, 5);
    small_run_destroy(&run);
}

static void an_evaluator_says_what_weights_need(void **state)
{
    static const struct need needs[] = {{"weights need", "", 4}, ACTIVATIONS("32")};
    struct small_run run;
    (void)state;

    find(&run, NULL, evaluate);
    check(&run, needs, 2);
    small_run_destroy(&run);
}

/* ---- a device whose ranks do not know each other ---- */

static size_t left; /* free memory of the device */

static void room_of(struct dp_device_room *room)
{
    *room = (struct dp_device_room){.name = "far", .total = (size_t)1 << 40, .left = left};
}

static size_t check_room(struct dp_group *group, const void *arg)
{
    const struct dp_memory_plan *plan = arg;
    size_t bytes[DP_MEM_PURPOSE_COUNT], wrong = 0;

    dp_memory_plan_device(plan, 0, bytes);
    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        left += bytes[i];
    }
    wrong += dp_memory_check_gpus(plan, group, plan->device, true) != DP_OK;
    left--;
    wrong += dp_memory_check_gpus(plan, group, plan->device, true) != DP_ERR_UNAVAILABLE;
    wrong += dp_memory_check_gpus(plan, group, plan->device, false) != DP_OK;
    return wrong;
}

static void a_rank_that_shares_a_device_with_none_may_take_all_of_it(void **state)
{
    struct small_run run;
    struct dp_device far;
    (void)state;

    assert_int_equal(small_run_create(&run, large, NULL), 0);
    far = *run.device;
    far.units = NULL;
    far.room = room_of;
    left = 0;
    const struct dp_memory_plan plan = {.config = run.config,
                                        .model = run.model,
                                        .device = &far,
                                        .trainers = 1,
                                        .threads = 1,
                                        .one_node = true};
    assert_int_equal(on_local_ranks(1, check_room, &plan), 0);
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_says_what_its_state_needs),
        cmocka_unit_test(lanes_say_what_partial_sums_need),
        cmocka_unit_test(an_evaluator_says_what_weights_need),
        cmocka_unit_test(a_rank_that_shares_a_device_with_none_may_take_all_of_it),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("missing_memory", tests, NULL, NULL);
}
