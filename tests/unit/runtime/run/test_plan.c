/* test_plan.c - a plan is read from config.yaml or from its own file, and other files are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/config/config.h"
#include "runtime/run/plan/plan.h"
#include "tests/support/scratch.h"

#define PLAN(strategy, rest)                                                                 \
    "{\"schema\":\"lockstep.plan/1\",\"strategy\":\"" strategy "\",\"ranks\":4,\"nodes\":2," \
    "\"buckets\":\"0123456789abcdef\",\"reason\":\"measured\"" rest "}"

static dp_status read_text(const char *text, struct dp_plan *plan)
{
    const char *path = scratch_path("plan");

    scratch_write(path, text, strlen(text));
    memset(plan, 0, sizeof(*plan));
    return dp_plan_read(path, plan);
}

static void the_last_plan_of_a_file_counts(void **state)
{
    struct dp_plan plan;

    (void)state;
    assert_int_equal(
        read_text("name: a\n# plan: " PLAN("ring", ",\"overlap\":\"on\"") "\n# plan: " PLAN(
                      "zero1:over=direct", ",\"overlap\":\"off\"") "\n# bucket 0\n",
                  &plan),
        DP_OK);
    assert_string_equal(plan.strategy, "zero1:over=direct");
    assert_int_equal(plan.overlap, DP_OVERLAP_OFF);
    assert_int_equal(plan.ranks, 4);
    assert_int_equal(plan.nodes, 2);
    assert_string_equal(plan.buckets, "0123456789abcdef");
    assert_string_equal(plan.key, "");
}

static void a_file_may_be_a_plan_itself(void **state)
{
    struct dp_plan plan;

    (void)state;
    assert_int_equal(read_text(" \n" PLAN("ring", ",\"overlap\":\"auto\",\"key\":\"7\""), &plan),
                     DP_OK);
    assert_int_equal(plan.overlap, DP_OVERLAP_AUTO);
    assert_string_equal(plan.key, "7");
}

static void a_file_without_a_plan_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "name: a\n",
        " # plan: " PLAN("ring", ",\"overlap\":\"on\""), /* no comment of ours */
        "# plan: {\n",
        "# plan: []\n",
        "{}",
        PLAN("ring", ""),                   /* no overlap */
        PLAN("ring", ",\"overlap\":\"1\""), /* none of its words */
        PLAN("ring", ",\"overlap\":\"on\",\"ranks\":4") /* twice */,
        "{\"schema\":\"lockstep.plan/1\",\"strategy\":7,\"ranks\":4,\"nodes\":2,\"buckets\":\"0\","
        "\"reason\":\"\",\"overlap\":\"on\"}",
        "{\"schema\":\"lockstep.plan/1\",\"strategy\":\"ring\",\"ranks\":2,\"nodes\":4,"
        "\"buckets\":\"0\",\"reason\":\"\",\"overlap\":\"on\"}",
    };
    struct dp_plan plan;

    (void)state;
    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(read_text(texts[i], &plan), DP_ERR_DATA);
    }
    assert_int_equal(dp_plan_read(scratch_path("nothing"), &plan), DP_ERR_NOINPUT);
    dp_log_set_level(DP_LOG_INFO);
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    struct dp_plan plan;

    (void)state;
    scratch_write(scratch_path("plan"), "# plan: " PLAN("ring", ",\"overlap\":\"on\"") "\n",
                  strlen("# plan: " PLAN("ring", ",\"overlap\":\"on\"") "\n"));
    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = dp_plan_read(scratch_path("plan"), &plan);
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), live);
    }
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_plan_of_a_file_counts, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_file_may_be_a_plan_itself, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_file_without_a_plan_is_refused, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_failed_allocation_leaves_nothing, scratch_create,
                                        scratch_destroy),
    };

    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
