/* test_trace_file.c - what --trace asks for is read, and a trace is JSON whatever it holds. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "runtime/timeline/trace_file.h"
#include "runtime/timeline/tracing.h"
#include "tests/support/scratch.h"

static void requests_are_read(void **state)
{
    static const struct {
        const char *text, *path;
        uint64_t first, last;
    } good[] = {
        {"a.json", "a.json", 0, 0},
        {"a.json:steps=10-15", "a.json", 10, 15},
        {"/tmp/a:b.json:steps=7-7", "/tmp/a:b.json", 7, 7},
        {"a:b=5/7-9", "a:b=5/7-9", 0, 0},
        {"run:7.json", "run:7.json", 0, 0},
        {":steps=1-9223372036854775806", "", 1, 9223372036854775806u},
    };
    static const char *const bad[] = {
        "a:steps=",
        "a:steps=5",
        "a:steps=5-",
        "a:steps=-5",
        "a:steps=0-5",
        "a:steps=6-5",
        "a:steps=5-6x",
        "a:steps=5--6",
        "a:steps=+5-6",
        "a:steps=5-99999999999999999999",
        "a:steps=5-6:steps=7-8",
        "a.json:step=5-9", /* no file of such a name is meant */
        "a.json:5-9",
        ":steps=:7",
    };
    struct dp_trace_request request;
    (void)state;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(dp_trace_request_read(good[i].text, &request), DP_OK);
        assert_true(request.on);
        assert_string_equal(request.path, good[i].path);
        assert_int_equal(request.first, good[i].first);
        assert_int_equal(request.last, good[i].last);
    }
    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(dp_trace_request_read(bad[i], &request), DP_ERR_USAGE);
    }
    dp_log_set_level(DP_LOG_INFO);
}

#define EVIL "</script>\"\\\n\t\x1b[31m\xff\xf0\x9f\x98\x80"

static const struct dp_trace_event events[] = {
    {.begin_ns = 2000,
     .end_ns = 5500,
     .arg = 9,
     .lane = DP_LANE_COMPUTE,
     .what = DP_PHASE_STEP,
     .kind = DP_TRACE_SPAN},
    {.begin_ns = 2500, .number = 4, .lane = DP_LANE_COMPUTE, .kind = DP_TRACE_ARROW},
    {.begin_ns = 3000,
     .end_ns = 4001,
     .arg = 2,
     .number = 4,
     .lane = DP_LANE_COMMUNICATION,
     .what = DP_TRACE_BUCKET,
     .kind = DP_TRACE_JOB},
    {.begin_ns = 3000, .end_ns = 4001, .lane = DP_LANE_INPUT, .kind = DP_TRACE_NOTHING},
    {.begin_ns = 3000,
     .end_ns = 4001,
     .lane = DP_LANE_INPUT,
     .index = 1,
     .what = DP_PHASE_LOAD,
     .kind = DP_TRACE_SPAN},
    {.begin_ns = 3200,
     .end_ns = 3700,
     .arg = 5,
     .lane = DP_LANE_GPU_COPY,
     .index = 2,
     .what = DP_WORK_TO_HOST,
     .kind = DP_TRACE_WORK},
    {.begin_ns = 5500,
     .value = 1e300,
     .lane = DP_LANE_COMPUTE,
     .what = DP_COUNT_BYTES,
     .kind = DP_TRACE_COUNTER},
};

static struct dp_json *written(int ranks)
{
    const struct dp_trace_title title = {EVIL, "0.1.0", 10, 10, 1000};
    static char text[1 << 20];
    struct dp_trace_file file;
    struct dp_json *json = NULL;

    assert_int_equal(dp_trace_file_create(&file, scratch_path("trace.json"), &title), DP_OK);
    for (int rank = 0; rank < ranks; rank++) {
        dp_trace_file_add(&file, rank, EVIL, events, sizeof(events) / sizeof(events[0]));
    }
    assert_int_equal(dp_trace_file_finish(&file), DP_OK);
    assert_true(scratch_read(scratch_path("trace.json"), text, sizeof(text)) > 0);
    assert_int_equal(dp_json_parse(text, strlen(text), "trace.json", &json), DP_OK);
    return json;
}

/* Event number `nth` of a kind; fails if there is none. */
static const struct dp_json *event_of(const struct dp_json *json, const char *ph, size_t nth)
{
    const struct dp_json *list = dp_json_get(json, "traceEvents");

    for (size_t i = 0; i < dp_json_length(list); i++) {
        const struct dp_json *event = dp_json_at(list, i);
        if (strcmp(dp_json_text(dp_json_get(event, "ph")), ph) == 0 && nth-- == 0) {
            return event;
        }
    }
    fail_msg("no event %s", ph);
    return NULL;
}

static double number(const struct dp_json *event, const char *key)
{
    double value = -1;

    assert_true(dp_json_real(dp_json_get(event, key), &value));
    return value;
}

static void events_become_the_chrome_format(void **state)
{
    struct dp_json *json = written(2);
    const struct dp_json *span = event_of(json, "X", 0), *job = event_of(json, "X", 1);
    const struct dp_json *begin = event_of(json, "s", 1), *end = event_of(json, "f", 1);
    const struct dp_json *work = event_of(json, "X", 3);
    (void)state;

    assert_true(number(span, "ts") == 1.0 && number(span, "dur") == 3.5);
    assert_true(number(span, "pid") == 0);
    assert_string_equal(dp_json_text(dp_json_get(span, "name")), "step");
    assert_true(number(dp_json_get(span, "args"), "step") == 10); /* as people count */
    assert_string_equal(dp_json_text(dp_json_get(job, "name")), "bucket 2");
    assert_true(number(job, "dur") == 1.001);
    assert_string_equal(dp_json_text(dp_json_get(work, "name")), "to host 5");
    assert_true(number(work, "ts") == 2.2 && number(work, "dur") == 0.5);
    assert_true(number(dp_json_get(work, "args"), "bucket") == 5);
    assert_true(number(begin, "pid") == 1 && number(begin, "id") == number(end, "id"));
    assert_true(number(begin, "id") != number(event_of(json, "s", 0), "id")); /* of rank 0 */
    assert_true(number(end, "ts") == number(job, "ts"));
    assert_string_equal(dp_json_text(dp_json_get(end, "bp")), "e");
    assert_true(number(dp_json_get(event_of(json, "C", 0), "args"), "value") == 1e300);
    dp_json_destroy(json);
    assert_int_equal(dp_mem_live(), 0);
}

static void every_lane_has_a_name_and_no_host_breaks_the_file(void **state)
{
    static const char *const names[] = {"compute",    "communication", "input",      "input 2",
                                        "checkpoint", "GPU copy",      "GPU copy 2", "GPU copy 3"};
    struct dp_json *json = written(1);
    const struct dp_json *list = dp_json_get(json, "traceEvents");
    size_t named = 0;
    (void)state;

    for (size_t i = 0; i < dp_json_length(list); i++) {
        const struct dp_json *event = dp_json_at(list, i);
        if (strcmp(dp_json_text(dp_json_get(event, "name")), "thread_name") == 0) {
            assert_string_equal(dp_json_text(dp_json_get(dp_json_get(event, "args"), "name")),
                                names[named++]);
        }
    }
    assert_int_equal(named, sizeof(names) / sizeof(names[0]));
    assert_non_null(strstr(
        dp_json_text(dp_json_get(dp_json_get(event_of(json, "M", 0), "args"), "name")), "rank 0"));
    dp_json_destroy(json);
}

static void a_full_disk_is_an_error_of_the_end(void **state)
{
    const struct dp_trace_title title = {"small", "0.1.0", 1, 2, 0};
    struct dp_trace_file file;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_trace_file_create(&file, scratch_path("none/trace.json"), &title),
                     DP_ERR_WRITE);
    scratch_limit(100);
    assert_int_equal(dp_trace_file_create(&file, scratch_path("trace.json"), &title), DP_OK);
    dp_trace_file_add(&file, 0, "host", events, sizeof(events) / sizeof(events[0]));
    assert_int_equal(dp_trace_file_finish(&file), DP_ERR_WRITE);
    scratch_limit(-1);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_create, scratch_destroy)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_read),
        WITH_FOLDER(events_become_the_chrome_format),
        WITH_FOLDER(every_lane_has_a_name_and_no_host_breaks_the_file),
        WITH_FOLDER(a_full_disk_is_an_error_of_the_end),
    };

    (void)signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
