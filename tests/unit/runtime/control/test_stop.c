/* test_stop.c - requests to stop or to save: from signal handlers, threads, and a deadline. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/trace.h"
#include "runtime/control/stop.h"

static struct dp_stop heard;

static void hear(int number)
{
    if (number == SIGUSR2) {
        dp_stop_request_save(&heard);
    } else {
        dp_stop_request(&heard, DP_STOP_USR1);
    }
}

static void a_signal_handler_may_request(void **state)
{
    const struct sigaction action = {.sa_handler = hear};
    struct sigaction before[2];
    (void)state;

    assert_int_equal(sigaction(SIGUSR1, &action, &before[0]), 0);
    assert_int_equal(sigaction(SIGUSR2, &action, &before[1]), 0);
    assert_int_equal(dp_stop_asked(&heard), DP_STOP_NONE);
    assert_false(dp_stop_save_asked(&heard));
    assert_int_equal(pthread_kill(pthread_self(), SIGUSR2), 0);
    assert_true(dp_stop_save_asked(&heard));
    assert_int_equal(dp_stop_asked(&heard), DP_STOP_NONE);
    assert_int_equal(pthread_kill(pthread_self(), SIGUSR1), 0);
    assert_int_equal(dp_stop_asked(&heard), DP_STOP_USR1);
    (void)sigaction(SIGUSR1, &before[0], NULL);
    (void)sigaction(SIGUSR2, &before[1], NULL);
}

static void the_first_cause_is_kept(void **state)
{
    struct dp_stop stop = {0};
    (void)state;

    dp_stop_request(&stop, DP_STOP_TERM);
    dp_stop_request(&stop, DP_STOP_USR1);
    dp_stop_set_deadline(&stop, 1.0, 5.0);
    assert_int_equal(dp_stop_asked(&stop), DP_STOP_TERM);
    assert_string_equal(dp_stop_text(DP_STOP_TERM), "SIGTERM");
    assert_string_equal(dp_stop_text(DP_STOP_TIME), "--max-time is over");
}

static void a_save_answers_the_requests_before_it(void **state)
{
    struct dp_stop stop = {0};
    (void)state;

    dp_stop_request_save(&stop);
    dp_stop_request_save(&stop);
    dp_stop_saving(&stop);
    assert_false(dp_stop_save_asked(&stop));
    dp_stop_request_save(&stop);
    assert_true(dp_stop_save_asked(&stop));
}

static void a_passed_deadline_requests_to_stop(void **state)
{
    struct dp_stop stop = {0};
    uint64_t begin_ns;
    (void)state;

    dp_stop_set_deadline(&stop, 3600.0, 3599.98); /* 20 ms are left */
    begin_ns = dp_now_ns();
    while (dp_stop_asked(&stop) == DP_STOP_NONE) {
        assert_true(dp_now_ns() - begin_ns < 60000000000u); /* no hang */
    }
    assert_int_equal(dp_stop_asked(&stop), DP_STOP_TIME);
    assert_true(dp_now_ns() - begin_ns > 10000000u);

    dp_stop_set_deadline(&stop, 3600.0, 1.0);
    assert_int_equal(dp_stop_asked(&stop), DP_STOP_NONE);
    dp_stop_set_deadline(&stop, 10.0, 11.0); /* it was over before it began */
    assert_int_equal(dp_stop_asked(&stop), DP_STOP_TIME);
}

static void without_a_stop_object_there_are_no_requests(void **state)
{
    (void)state;
    assert_int_equal(dp_stop_asked(NULL), DP_STOP_NONE);
    assert_false(dp_stop_save_asked(NULL));
    dp_stop_saving(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_handler_may_request),
        cmocka_unit_test(the_first_cause_is_kept),
        cmocka_unit_test(a_save_answers_the_requests_before_it),
        cmocka_unit_test(a_passed_deadline_requests_to_stop),
        cmocka_unit_test(without_a_stop_object_there_are_no_requests),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
