/* test_status.c - exit codes, messages on stderr, and the macros that pass errors on. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/status.h"

static char captured[8192];

/* Runs `act` and keeps what it writes to stderr in `captured`. */
static void capture(void (*act)(void))
{
    FILE *file = tmpfile();
    const int real_stderr = dup(STDERR_FILENO);
    size_t length;

    assert_non_null(file);
    assert_true(real_stderr >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    act();
    assert_true(dup2(real_stderr, STDERR_FILENO) >= 0);
    (void)close(real_stderr);
    rewind(file);
    length = fread(captured, 1, sizeof(captured) - 1, file);
    captured[length] = '\0';
    (void)fclose(file);
}

static void statuses_end_a_process_with_the_documented_codes(void **state)
{
    static const struct {
        dp_status status;
        int code;
    } rows[] = {
        {DP_OK, 0},
        {DP_ERR_USAGE, 64},
        {DP_ERR_DATA, 65},
        {DP_ERR_NOINPUT, 66},
        {DP_ERR_UNAVAILABLE, 69},
        {DP_ERR_NOMEM, 69},
        {DP_ERR_INTERNAL, 70},
        {DP_ERR_DISAGREE, 70},
        {DP_ERR_WRITE, 74},
        {DP_STOPPED, 75},
        {DP_ERR_HUNG, 76},
        {DP_ERR_DIVERGED, 77},
        {DP_ERR_CONFIG, 78},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(dp_status_exit(rows[i].status), rows[i].code);
        assert_string_not_equal(dp_status_text(rows[i].status), "unknown status");
    }
    assert_int_equal(dp_status_exit((dp_status)1000), 70);
    assert_string_equal(dp_status_text((dp_status)1000), "unknown status");
}

static int reached;

static dp_status decide(dp_status status)
{
    return status == DP_OK ? DP_OK : DP_FAIL(status, "rank %d has no data", 3);
}

static dp_status pass_on(dp_status status)
{
    DP_TRY(decide(status));
    reached++;
    return DP_OK;
}

static dp_status undo_and_pass_on(dp_status wanted, int *undone)
{
    dp_status status;

    DP_TRY_GOTO(pass_on(wanted), status, undo);
    return DP_OK;

undo:
    *undone = 1;
    return status;
}

static void errors_are_passed_on_and_undone_and_counted_once(void **state)
{
    const int errors = dp_log_errors();
    int undone = 0;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    reached = 0;
    assert_int_equal(undo_and_pass_on(DP_OK, &undone), DP_OK);
    assert_int_equal(reached, 1);
    assert_int_equal(undone, 0);
    assert_int_equal(undo_and_pass_on(DP_ERR_NOINPUT, &undone), DP_ERR_NOINPUT);
    assert_int_equal(reached, 1);
    assert_int_equal(undone, 1);
    assert_int_equal(dp_log_errors(), errors + 1);
    dp_log_set_level(DP_LOG_INFO);
}

static void fail_once(void)
{
    (void)pass_on(DP_ERR_NOINPUT);
}

static void an_error_is_one_line_with_its_cause(void **state)
{
    (void)state;

    capture(fail_once);
    assert_string_equal(captured, "lockstep: error: rank 3 has no data\n");
}

static void fail_with_what_was_captured(void)
{
    (void)DP_FAIL(DP_ERR_DATA, "file: is damaged");
    (void)DP_FAIL(DP_ERR_DATA, "%s: copy it again", "file: is damaged: bad data");
    (void)DP_FAIL(DP_ERR_DATA, "%s; and so are those after it", "file: is damaged: bad data");
    (void)DP_FAIL(DP_ERR_DATA, "bad data/file: is damaged"); /* that is its name */
    (void)DP_FAIL(DP_ERR_DATA, "old: bad data/file: is damaged");
    (void)DP_FAIL(DP_ERR_CANCELLED, "memory of a rank"); /* another one has failed, and said why */
}

static void the_status_is_said_once(void **state)
{
    (void)state;

    capture(fail_with_what_was_captured);
    assert_string_equal(captured, "lockstep: error: file: is damaged: bad data\n"
                                  "lockstep: error: file: is damaged: bad data: copy it again\n"
                                  "lockstep: error: file: is damaged: bad data; and so are those "
                                  "after it\n"
                                  "lockstep: error: bad data/file: is damaged: bad data\n"
                                  "lockstep: error: old: bad data/file: is damaged: bad data\n");
}

static void the_debug_level_shows_the_path_of_an_error(void **state)
{
    (void)state;

    dp_log_set_level(DP_LOG_DEBUG);
    capture(fail_once);
    dp_log_set_level(DP_LOG_INFO);
    assert_non_null(strstr(captured, "rank 3 has no data ["));
    assert_non_null(strstr(captured, "test_status.c:"));
    assert_non_null(strstr(captured, "debug: -> input is missing ["));
}

static void say_everything(void)
{
    (void)DP_FAIL(DP_ERR_DATA, "e");
    DP_WARN("w %d", 1);
    DP_INFO("i");
    DP_DEBUG("d");
}

static void with_several_ranks_errors_name_the_rank_and_only_rank_0_informs(void **state)
{
    (void)state;

    capture(say_everything);
    assert_string_equal(captured,
                        "lockstep: error: e: bad data\nlockstep: warning: w 1\nlockstep: i\n");
    dp_log_set_identity(2, 4, "node7");
    capture(say_everything);
    dp_log_set_identity(0, 1, "");
    assert_string_equal(captured, "lockstep: error: rank 2 (node7): e: bad data\n"
                                  "lockstep: warning: rank 2 (node7): w 1\n");
}

static struct dp_log_capture collected;

static struct dp_log_error kept;

static void keep_and_say_it_elsewhere(void)
{
    dp_log_capture_begin(&collected, DP_LOG_ERROR);
    (void)DP_FAIL(DP_ERR_DATA, "first");
    (void)DP_FAIL(DP_ERR_DATA, "last");
    dp_log_capture_end(&collected, DP_LOG_DROP);
    dp_log_keep_error(&collected, &kept);
    dp_log_set_identity(0, 4, "node1");
    dp_log_error_of(&kept);
}

static void an_error_of_another_rank_names_that_one(void **state)
{
    const int errors = dp_log_errors();
    (void)state;

    dp_log_set_identity(2, 4, "node7");
    capture(keep_and_say_it_elsewhere);
    assert_string_equal(captured, "lockstep: error: rank 2 (node7): last: bad data\n");
    assert_int_equal(dp_log_errors(), errors + 1);
    dp_log_set_level(DP_LOG_NONE);
    capture(keep_and_say_it_elsewhere);
    dp_log_set_level(DP_LOG_INFO);
    dp_log_set_identity(0, 1, "");
    assert_string_equal(captured, "");
    assert_int_equal(dp_log_errors(), errors + 2);
}

static void collect_two_and_drop_them(void)
{
    dp_log_capture_begin(&collected, DP_LOG_DEBUG);
    DP_WARN("w");
    (void)DP_FAIL(DP_ERR_DATA, "dropped");
    dp_log_capture_end(&collected, DP_LOG_DROP);
    (void)DP_FAIL(DP_ERR_WRITE, "said");
}

static void captured_and_dropped_lines_go_to_the_caller_only(void **state)
{
    const int errors = dp_log_errors();
    (void)state;

    capture(collect_two_and_drop_them);
    assert_string_equal(captured, "lockstep: error: said\n");
    assert_string_equal(dp_log_captured(&collected), "dropped: bad data");
    assert_int_equal(dp_log_errors(), errors + 1);
    dp_log_capture_begin(&collected, DP_LOG_ERROR);
    assert_string_equal(dp_log_captured(&collected), "");
    dp_log_capture_end(&collected, DP_LOG_DROP);
}

static void collect_errors_and_soften_them(void)
{
    dp_log_capture_begin(&collected, DP_LOG_ERROR);
    (void)DP_FAIL(DP_ERR_DATA, "first");
    DP_WARN("passes");
    (void)DP_FAIL(DP_ERR_DATA, "second");
    dp_log_capture_end(&collected, DP_LOG_SOFTEN);
}

static void softened_errors_are_warnings(void **state)
{
    const int errors = dp_log_errors();
    (void)state;

    capture(collect_errors_and_soften_them);
    assert_string_equal(captured, "lockstep: warning: passes\n"
                                  "lockstep: warning: first: bad data\n"
                                  "lockstep: warning: second: bad data\n");
    assert_int_equal(dp_log_errors(), errors);
}

static void collect_all_and_print_it(void)
{
    dp_log_capture_begin(NULL, DP_LOG_DEBUG); /* collects nothing */
    dp_log_capture_begin(&collected, DP_LOG_DEBUG);
    (void)pass_on(DP_ERR_NOINPUT);
    DP_WARN("w");
    dp_log_capture_end(&collected, DP_LOG_PRINT);
    dp_log_capture_end(NULL, DP_LOG_DROP);
}

static void captured_lines_are_printed_in_order_and_counted(void **state)
{
    const int errors = dp_log_errors();
    (void)state;

    capture(collect_all_and_print_it);
    assert_string_equal(captured, "lockstep: error: rank 3 has no data\n"
                                  "lockstep: warning: w\n");
    assert_int_equal(dp_log_errors(), errors + 1);
}

static void collect_within_a_collection(void)
{
    struct dp_log_capture inner;

    dp_log_capture_begin(&collected, DP_LOG_WARN);
    dp_log_capture_begin(&inner, DP_LOG_ERROR);
    DP_WARN("outer");
    (void)DP_FAIL(DP_ERR_DATA, "inner");
    dp_log_capture_end(&inner, DP_LOG_SOFTEN);
    (void)DP_FAIL(DP_ERR_DATA, "last");
    DP_INFO("i");
    dp_log_capture_end(&collected, DP_LOG_PRINT);
}

static void captures_nest_and_let_more_detailed_lines_pass(void **state)
{
    (void)state;

    capture(collect_within_a_collection);
    assert_string_equal(captured, "lockstep: i\n"
                                  "lockstep: warning: outer\n"
                                  "lockstep: warning: inner: bad data\n"
                                  "lockstep: error: last: bad data\n");
    assert_string_equal(dp_log_captured(&collected), "last: bad data");
}

static void *log_from_a_thread(void *argument)
{
    DP_WARN("another thread");
    return argument;
}

static void collect_while_another_thread_logs(void)
{
    pthread_t thread;

    dp_log_capture_begin(&collected, DP_LOG_DEBUG);
    assert_int_equal(pthread_create(&thread, NULL, log_from_a_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    dp_log_capture_end(&collected, DP_LOG_DROP);
}

static void lines_of_other_threads_are_not_captured(void **state)
{
    (void)state;

    capture(collect_while_another_thread_logs);
    assert_string_equal(captured, "lockstep: warning: another thread\n");
}

static void collect_too_much(void)
{
    static char text[6000];

    memset(text, 'x', sizeof(text) - 1);
    dp_log_capture_begin(&collected, DP_LOG_DEBUG);
    for (int i = 0; i < 5; i++) {
        DP_WARN("%d %s", i, text);
    }
    dp_log_capture_end(&collected, DP_LOG_PRINT);
}

static void a_full_capture_keeps_the_last_lines(void **state)
{
    (void)state;

    capture(collect_too_much);
    assert_null(strstr(captured, "warning: 0 x"));
    assert_non_null(strstr(captured, "warning: 3 xxx"));
    assert_non_null(strstr(captured, "warning: 4 xxx"));
    assert_non_null(strstr(captured, "x...\n"));
}

static void say_too_much(void)
{
    static char text[6000];

    memset(text, 'x', sizeof(text) - 1);
    DP_WARN("%s", text);
    (void)DP_FAIL(DP_ERR_DATA, "%s", text);
}

static void a_message_that_is_too_long_is_cut_and_stays_one_line(void **state)
{
    const char *second;
    (void)state;

    capture(say_too_much);
    second = strchr(captured, '\n');
    assert_non_null(second);
    assert_true(strncmp(second + 1, "lockstep: error: xxx", 20) == 0);
    assert_non_null(strstr(second, "x...: bad data\n"));
    assert_true(strchr(second + 1, '\n')[1] == '\0');
}

static void the_level_hides_what_is_more_detailed(void **state)
{
    (void)state;

    dp_log_set_level(DP_LOG_ERROR);
    assert_int_equal(dp_log_level(), DP_LOG_ERROR);
    capture(say_everything);
    dp_log_set_level(DP_LOG_INFO);
    assert_string_equal(captured, "lockstep: error: e: bad data\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_end_a_process_with_the_documented_codes),
        cmocka_unit_test(errors_are_passed_on_and_undone_and_counted_once),
        cmocka_unit_test(an_error_is_one_line_with_its_cause),
        cmocka_unit_test(the_status_is_said_once),
        cmocka_unit_test(the_debug_level_shows_the_path_of_an_error),
        cmocka_unit_test(with_several_ranks_errors_name_the_rank_and_only_rank_0_informs),
        cmocka_unit_test(captured_and_dropped_lines_go_to_the_caller_only),
        cmocka_unit_test(an_error_of_another_rank_names_that_one),
        cmocka_unit_test(softened_errors_are_warnings),
        cmocka_unit_test(captured_lines_are_printed_in_order_and_counted),
        cmocka_unit_test(captures_nest_and_let_more_detailed_lines_pass),
        cmocka_unit_test(lines_of_other_threads_are_not_captured),
        cmocka_unit_test(a_full_capture_keeps_the_last_lines),
        cmocka_unit_test(a_message_that_is_too_long_is_cut_and_stays_one_line),
        cmocka_unit_test(the_level_hides_what_is_more_detailed),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
