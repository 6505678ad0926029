/* test_fault.c - faults on purpose: their syntax, and what is refused. */
#include "tests/support/arrays.h"

#include "base/fault.h"
#include "base/log.h"
#include "tests/support/stderr_text.h"

static void a_fault_is_read_with_its_keys_and_defaults(void **state)
{
    struct dp_fault *fault = NULL;
    (void)state;

    assert_int_equal(
        dp_faults_create("flip:step=20,rank=1,tensor=4.weight,element=7,bit=3", &fault), DP_OK);
    assert_ptr_equal(fault->kind, &dp_fault_flip);
    assert_int_equal(fault->step, 20);
    assert_int_equal(fault->rank, 1);
    assert_string_equal(fault->tensor, "4.weight");
    assert_int_equal(fault->element, 7);
    assert_int_equal(fault->bit, 3);
    assert_null(fault->next);
    dp_faults_destroy(fault);
    assert_int_equal(dp_faults_create("flip", &fault), DP_OK);
    assert_int_equal(fault->step, 1);
    assert_int_equal(fault->rank, 0);
    assert_string_equal(fault->tensor, "");
    assert_int_equal(fault->bit, 22);
    dp_faults_destroy(fault);
}

static void several_faults_keep_their_order(void **state)
{
    struct dp_fault *fault = NULL;
    int step = 0;
    (void)state;

    assert_int_equal(dp_faults_create("flip:step=1;flip:step=2,rank=5;flip:step=3", &fault), DP_OK);
    for (const struct dp_fault *f = fault; f != NULL; f = f->next) {
        assert_int_equal(f->step, ++step);
        assert_int_equal(f->rank, step == 2 ? 5 : 0);
    }
    assert_int_equal(step, 3);
    dp_faults_destroy(fault);
}

static void a_last_semicolon_may_end_the_text(void **state)
{
    struct dp_fault *fault = NULL;
    (void)state;

    assert_int_equal(dp_faults_create("flip:step=1;flip:step=2;", &fault), DP_OK);
    assert_int_equal(fault->next->step, 2);
    assert_null(fault->next->next);
    dp_faults_destroy(fault);
}

static void spaces_may_stand_around_faults(void **state)
{
    struct dp_fault *fault = NULL;
    (void)state;

    assert_int_equal(dp_faults_create(" flip:step=1 ;  flip:step=2,rank=5 ; ", &fault), DP_OK);
    assert_int_equal(fault->step, 1);
    assert_int_equal(fault->next->rank, 5);
    assert_null(fault->next->next);
    dp_faults_destroy(fault);
    assert_int_equal(dp_faults_create("  ", &fault), DP_OK);
    assert_null(fault);
}

static void an_empty_text_is_no_fault(void **state)
{
    struct dp_fault none, *fault = &none;
    (void)state;

    assert_int_equal(dp_faults_create("", &fault), DP_OK);
    assert_null(fault);
    dp_faults_destroy(fault);
}

static void bad_faults_are_reported_in_one_line(void **state)
{
    static const struct {
        const char *text, *line;
    } cases[] = {
        {"flop:step=1", "lockstep: error: DP_FAULT: unknown fault 'flop' (did you mean 'flip'?)\n"},
        {"earthquake", "lockstep: error: DP_FAULT: unknown fault 'earthquake'; known are: flip, "
                       "kill, stop, slow, spin, lock, swap, exit, leak, torn, full, eio, nomem\n"},
        {";", "lockstep: error: DP_FAULT: there is no fault before a ';'\n"},
        {"flip:step=1;;", "lockstep: error: DP_FAULT: there is no fault before a ';'\n"},
        {"flip:step=1;;flip:step=2", "lockstep: error: DP_FAULT: there is no fault before a ';'\n"},
        {"flip:steps=1", "lockstep: error: DP_FAULT: flip: unknown option 'steps'; known are: "
                         "step, rank, what, tensor, bucket, element, bit\n"},
        {"flip:step", "lockstep: error: DP_FAULT: flip: expected key=value, found 'step'\n"},
        {"flip:rank=1;flip:bit=32",
         "lockstep: error: DP_FAULT: flip: bit: expected an integer from 0 to 31, found '32'\n"},
    };
    struct dp_fault none, *fault = &none;
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases); i++) {
        stderr_begin();
        const dp_status status = dp_faults_create(cases[i].text, &fault);
        stderr_end();
        assert_int_equal(status, DP_ERR_CONFIG);
        assert_string_equal(stderr_text, cases[i].line);
        assert_ptr_equal(fault, &none);
        assert_int_equal(dp_mem_live(), live);
    }
}

static void reading_survives_every_failed_allocation(void **state)
{
    const size_t live = dp_mem_live();
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        struct dp_fault *fault = NULL;
        dp_mem_fail_nth(nth);
        status = dp_faults_create("flip:step=1;flip:step=2", &fault);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_true((fault != NULL) == (status == DP_OK));
        dp_faults_destroy(fault);
        assert_int_equal(dp_mem_live(), live);
        assert_in_range(nth, 1, 100);
    }
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_is_read_with_its_keys_and_defaults),
        cmocka_unit_test(several_faults_keep_their_order),
        cmocka_unit_test(a_last_semicolon_may_end_the_text),
        cmocka_unit_test(spaces_may_stand_around_faults),
        cmocka_unit_test(an_empty_text_is_no_fault),
        cmocka_unit_test(bad_faults_are_reported_in_one_line),
        cmocka_unit_test(reading_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
