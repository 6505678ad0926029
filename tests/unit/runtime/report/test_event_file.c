/* test_event_file.c - events for TensorBoard: what metrics.jsonl has, once, and nothing else. How
 * TensorBoard reads them is tested by tests/runs/report/event_files.py. */
#define _GNU_SOURCE /* memmem */

#include "tests/support/arrays.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/report/files/event_file.h"
#include "tests/support/scratch.h"

static const char name[] = "events.out.tfevents.1000000000.lockstep";
static const char first[] = "{\"type\":\"start\",\"time\":1000000000.5,\"name\":\"x\"}\n"
                            "{\"type\":\"step\",\"time\":1000000001,\"step\":1,\"epoch\":1,"
                            "\"loss\":2.5,\"lr\":0.1,\"samples_per_second\":null,"
                            "\"step_ms\":3}\n";
static const char second[] = "{\"type\":\"eval\",\"time\":1000000002,\"step\":1,\"test_loss\":2,"
                             "\"test_accuracy\":0.5}\n";

static char data[1 << 16];

/* Bytes of the file of events, which are in `data`; -1: there is none. */
static long read_events(void)
{
    return access(scratch_path(name), F_OK) != 0
               ? -1
               : (long)scratch_read(scratch_path(name), data, sizeof(data));
}

static bool has(long bytes, const char *text)
{
    return memmem(data, (size_t)bytes, text, strlen(text)) != NULL;
}

static void write_lines(const char *one, const char *two)
{
    char text[2000];
    const int length = snprintf(text, sizeof(text), "%s%s", one, two);

    scratch_write(scratch_path("metrics.jsonl"), text, (size_t)length);
}

static void lines_become_events_once(void **state)
{
    struct dp_event_file *file = NULL;
    (void)state;

    assert_int_equal(dp_event_file_create(scratch_folder, &file), DP_OK);
    write_lines("", "");
    assert_int_equal(dp_event_file_update(file), DP_OK);
    assert_int_equal(read_events(), -1); /* no line, no file */

    write_lines(first, "");
    assert_int_equal(dp_event_file_update(file), DP_OK);
    const long after_first = read_events();
    assert_true(has(after_first, "brain.Event:2"));
    assert_true(has(after_first, "train/loss") && has(after_first, "train/learning_rate"));
    assert_false(has(after_first, "samples_per_second")); /* null has no value */
    assert_int_equal(dp_event_file_update(file), DP_OK);
    assert_int_equal(read_events(), after_first);

    write_lines(first, second);
    assert_int_equal(dp_event_file_update(file), DP_OK);
    const long all = read_events();
    assert_true(all > after_first);
    assert_true(has(all, "test/loss") && has(all, "test/accuracy"));
    dp_event_file_destroy(file);

    /* A run that goes on writes all of it anew. */
    file = NULL;
    assert_int_equal(dp_event_file_create(scratch_folder, &file), DP_OK);
    assert_int_equal(dp_event_file_update(file), DP_OK);
    assert_int_equal(read_events(), all);
    dp_event_file_destroy(file);
    assert_int_equal(dp_mem_live(), 0);
}

/* A link may lead to what belongs to no run. */
static void a_link_is_not_followed(void **state)
{
    struct dp_event_file *file = NULL;
    (void)state;

    write_lines(first, second);
    scratch_write(scratch_path("precious"), "kept", 4);
    assert_int_equal(symlink("precious", scratch_path(name)), 0);
    assert_int_equal(dp_event_file_create(scratch_folder, &file), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_event_file_update(file), DP_ERR_WRITE);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(scratch_read(scratch_path("precious"), data, sizeof(data)), 4);

    /* Once it is gone, all of it is written. */
    assert_int_equal(unlink(scratch_path(name)), 0);
    assert_int_equal(dp_event_file_update(file), DP_OK);
    dp_event_file_destroy(file);
    const long bytes = read_events();
    assert_true(has(bytes, "train/loss") && has(bytes, "test/loss"));
}

/* As when it was killed before its first checkpoint. */
static void a_run_that_began_anew_has_one_file(void **state)
{
    static const char before[] = "events.out.tfevents.0999999999.lockstep";
    static const char other[] = "events.out.tfevents.0999999999.host.1.lockstep";
    struct dp_event_file *file = NULL;
    (void)state;

    scratch_write(scratch_path(before), "old", 3);
    scratch_write(scratch_path(other), "kept", 4);
    write_lines(first, second);
    assert_int_equal(dp_event_file_create(scratch_folder, &file), DP_OK);
    assert_int_equal(dp_event_file_update(file), DP_OK);
    dp_event_file_destroy(file);
    assert_true(read_events() > 0);
    assert_int_not_equal(access(scratch_path(before), F_OK), 0);
    assert_int_equal(access(scratch_path(other), F_OK), 0); /* some other program's */
}

static void creating_survives_every_failed_allocation(void **state)
{
    struct dp_event_file *file = NULL;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    (void)dp_mem_fail_nth(1);
    assert_int_equal(dp_event_file_create(scratch_folder, &file), DP_ERR_NOMEM);
    (void)dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_null(file);
    assert_int_equal(dp_mem_live(), 0);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(lines_become_events_once),
        WITH_FOLDER(a_link_is_not_followed),
        WITH_FOLDER(a_run_that_began_anew_has_one_file),
        WITH_FOLDER(creating_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests_name("event_file", tests, NULL, NULL);
}
