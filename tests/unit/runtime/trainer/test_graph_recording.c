/*
 * test_graph_recording.c - what graph_capture.h asks of a device, in which order, and what becomes
 * of it: on a device that only writes that down, so that no GPU is needed.
 */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "runtime/trainer/compute/graph_capture.h"
#include "tests/support/stderr_text.h"

/* What was asked, in order: "[" recording begins, "]" ends, "p" the pass is called, "r0" the first
 * recording that was made is replayed, "t2" tensor 2 is ready. */
static char events[256];

struct dp_recording {
    int number;
};

static struct {
    struct dp_recording all[4];
    int made, live, fails; /* fails: this one cannot be made, from 1 */
    dp_status begin, end;  /* what these return */
} fake;

static void note(const char *what, int number)
{
    const size_t used = strlen(events);

    if (number < 0) {
        (void)snprintf(events + used, sizeof(events) - used, "%s", what);
    } else {
        (void)snprintf(events + used, sizeof(events) - used, "%s%d", what, number);
    }
}

static dp_status fake_create(struct dp_recording **out)
{
    if (fake.made + 1 == fake.fails) {
        return DP_ERR_NOMEM;
    }
    fake.all[fake.made].number = fake.made;
    *out = &fake.all[fake.made++];
    fake.live++;
    return DP_OK;
}

static void fake_destroy(struct dp_recording *recording)
{
    fake.live -= recording != NULL;
}

static dp_status fake_begin(struct dp_stream *stream)
{
    (void)stream;
    note("[", -1);
    return fake.begin;
}

static dp_status fake_end(struct dp_stream *stream, struct dp_recording *recording,
                          const char **why_not)
{
    (void)stream;
    (void)recording;
    note("]", -1);
    *why_not = "the fake does not want to";
    return fake.end;
}

static dp_status fake_replay(const struct dp_recording *recording, struct dp_stream *stream)
{
    (void)stream;
    note("r", recording->number);
    return DP_OK;
}

static const struct dp_device fake_device = {.recording_create = fake_create,
                                             .recording_destroy = fake_destroy,
                                             .record_begin = fake_begin,
                                             .record_end = fake_end,
                                             .replay = fake_replay};

static dp_status fake_pass(void *context, const struct dp_model_hooks *hooks)
{
    (void)context;
    note("p", -1);
    for (int tensor = 2; tensor >= 0 && hooks->ready != NULL; tensor--) {
        DP_TRY(hooks->ready(hooks->context, tensor));
    }
    return DP_OK;
}

static dp_status note_tensor(void *context, int tensor)
{
    (void)context;
    note("t", tensor);
    return DP_OK;
}

static const struct dp_model_hooks none_ready = {.ready = NULL}, all_ready = {.ready = note_tensor};

static bool after_two(const void *context, int tensor)
{
    (void)context;
    return tensor == 2;
}

/* Two passes, and two buckets, of which tensor 2 ends the first. */
static dp_status capture_on_fake(bool must, struct dp_graph_capture **out)
{
    static struct dp_stream stream = {.device = &fake_device};
    const struct dp_graph_capture_config config = {.stream = &stream,
                                                   .rows = 32,
                                                   .passes = 2,
                                                   .tensors = 3,
                                                   .buckets = 2,
                                                   .must = must,
                                                   .hands_over = after_two};

    memset(events, 0, sizeof(events));
    return dp_graph_capture_create(&config, out);
}

/* What a pass of a batch of so many rows asks for. */
static const char *asked(struct dp_graph_capture *capture, int pass, size_t rows,
                         dp_status expected)
{
    events[0] = '\0';
    assert_int_equal(dp_graph_capture_run(capture, pass, rows, fake_pass, NULL,
                                          pass == 0 ? &none_ready : &all_ready),
                     expected);
    return events;
}

static void each_pass_is_recorded_once_in_pieces_that_end_with_buckets(void **state)
{
    struct dp_graph_capture *capture = NULL;
    (void)state;

    memset(&fake, 0, sizeof(fake));
    OK(capture_on_fake(false, &capture));
    assert_int_equal(fake.live, 3); /* one of the first pass, one for each bucket */
    for (int turn = 0; turn < DP_GRAPH_CAPTURE_PLAIN; turn++) {
        assert_string_equal(asked(capture, 0, 32, DP_OK), "p");
        assert_string_equal(asked(capture, 1, 32, DP_OK), "pt2t1t0");
    }
    assert_int_equal(dp_graph_capture_replays(capture), 0);
    assert_string_equal(asked(capture, 0, 32, DP_OK), "[p]r0");
    assert_string_equal(asked(capture, 1, 32, DP_OK), "[p][]r1t2r2t1t0");
    for (int turn = 0; turn < 3; turn++) {
        assert_string_equal(asked(capture, 0, 32, DP_OK), "r0");
        assert_string_equal(asked(capture, 1, 32, DP_OK), "r1t2r2t1t0");
        assert_string_equal(asked(capture, 1, 31, DP_OK), "pt2t1t0"); /* a short batch */
    }
    assert_int_equal(dp_graph_capture_replays(capture), 8);
    dp_graph_capture_destroy(capture);
    assert_int_equal(fake.live, 0);
    assert_string_equal(asked(NULL, 1, 32, DP_OK), "pt2t1t0");
    assert_int_equal(dp_graph_capture_replays(NULL), 0);
    dp_graph_capture_destroy(NULL);
}

/* It is tried once; where it must be recorded, that is an error. */
static void a_device_that_cannot_record_is_asked_once(void **state)
{
    static const struct {
        dp_status begin, end;
        const char *events, *why;
    } cases[] = {
        {DP_ERR_INTERNAL, DP_OK, "[pt2t1t0", "recorded: recording cannot begin"},
        {DP_OK, DP_ERR_UNAVAILABLE, "[p]pt2t1t0", "recorded: the fake does not want to"},
    };
    (void)state;

    for (int i = 0; i < 4; i++) {
        struct dp_graph_capture *capture = NULL;
        const bool must = i >= 2;
        const char *found;
        memset(&fake, 0, sizeof(fake));
        fake.begin = cases[i % 2].begin;
        fake.end = cases[i % 2].end;
        OK(capture_on_fake(must, &capture));
        for (int turn = 0; turn < DP_GRAPH_CAPTURE_PLAIN; turn++) {
            assert_string_equal(asked(capture, 1, 32, DP_OK), "pt2t1t0");
        }
        stderr_begin();
        found = asked(capture, 1, 32, must ? DP_ERR_UNAVAILABLE : DP_OK);
        stderr_end();
        assert_memory_equal(found, cases[i % 2].events, strlen(found));
        assert_non_null(strstr(stderr_text, cases[i % 2].why));
        if (!must) {
            assert_string_equal(found, cases[i % 2].events);
            assert_string_equal(asked(capture, 1, 32, DP_OK), "pt2t1t0");
        }
        dp_graph_capture_destroy(capture);
        assert_int_equal(fake.live, 0);
    }
}

static void recordings_that_cannot_be_made_leave_nothing(void **state)
{
    (void)state;
    for (int i = 1; i <= 3; i++) {
        struct dp_graph_capture *capture = NULL;
        const size_t live = dp_mem_live();
        memset(&fake, 0, sizeof(fake));
        fake.fails = i;
        assert_int_equal(capture_on_fake(false, &capture), DP_ERR_NOMEM);
        assert_null(capture);
        assert_int_equal(fake.live, 0);
        assert_int_equal(dp_mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pass_is_recorded_once_in_pieces_that_end_with_buckets),
        cmocka_unit_test(a_device_that_cannot_record_is_asked_once),
        cmocka_unit_test(recordings_that_cannot_be_made_leave_nothing),
    };

    return cmocka_run_group_tests_name("graph_recording", tests, NULL, NULL);
}
