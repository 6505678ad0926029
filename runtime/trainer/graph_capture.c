#include "runtime/trainer/graph_capture.h"

#include <assert.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"

/* A recording, and the tensors that are ready after it: [begin of the one before, end). */
struct segment {
    struct dp_recording *recording; /* owned */
    int end;
};

struct track {
    struct segment *segments; /* within graph capture->segments */
    int most, count;          /* segments; count 0: not recorded yet */
    int turns;                /* plain ones so far */
};

struct dp_graph_capture {
    struct dp_graph_capture_config config;
    const struct dp_device *device;
    struct track *tracks;     /* owned; [passes] */
    struct segment *segments; /* owned; of all tracks */
    int segment_count;
    int *ready;                         /* owned; [tensors]: in the order announced */
    int ready_count;                    /* while the last pass is recorded */
    struct track *track;                /* that is recorded now */
    const struct dp_model_hooks *hooks; /* of the pass that is recorded now */
    const char *why_not;                /* what the device said when it could not record */
    bool given_up;
    uint64_t replays;
};

/* The last pass is cut where buckets are handed over; the others announce nothing. */
static dp_status capture_open(struct dp_graph_capture *t)
{
    const int passes = t->config.passes;

    t->segment_count = passes - 1 + t->config.buckets;
    t->tracks = dp_zalloc((size_t)passes, sizeof(*t->tracks));
    t->segments = dp_zalloc((size_t)t->segment_count, sizeof(*t->segments));
    t->ready = dp_zalloc((size_t)t->config.tensors, sizeof(*t->ready));
    if (t->tracks == NULL || t->segments == NULL || t->ready == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "recording of %d passes", passes);
    }
    for (int i = 0; i < passes; i++) {
        t->tracks[i].segments = t->segments + i;
        t->tracks[i].most = i + 1 < passes ? 1 : t->config.buckets;
    }
    for (int i = 0; i < t->segment_count; i++) {
        DP_TRY(t->device->recording_create(&t->segments[i].recording));
    }
    return DP_OK;
}

dp_status dp_graph_capture_create(const struct dp_graph_capture_config *config,
                                  struct dp_graph_capture **out)
{
    struct dp_graph_capture *t = dp_zalloc(1, sizeof(*t));
    dp_status status;

    if (t == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "recording");
    }
    t->config = *config;
    t->device = config->stream->device;
    status = capture_open(t);
    if (status != DP_OK) {
        dp_graph_capture_destroy(t);
        return status;
    }
    *out = t;
    return DP_OK;
}

void dp_graph_capture_destroy(struct dp_graph_capture *t)
{
    if (t == NULL) {
        return;
    }
    for (int i = 0; t->segments != NULL && i < t->segment_count; i++) {
        t->device->recording_destroy(t->segments[i].recording);
    }
    dp_free(t->ready);
    dp_free(t->segments);
    dp_free(t->tracks);
    dp_free(t);
}

uint64_t dp_graph_capture_replays(const struct dp_graph_capture *t)
{
    return t == NULL ? 0 : t->replays;
}

/* ---- recording: nothing is computed, so nothing is announced ---- */

static dp_status end_segment(struct dp_graph_capture *t)
{
    struct segment *segment = &t->track->segments[t->track->count];

    assert(t->track->count < t->track->most);
    segment->end = t->ready_count;
    DP_TRY(t->device->record_end(t->config.stream, segment->recording, &t->why_not));
    t->track->count++;
    return DP_OK;
}

static dp_status note_ready(void *context, int tensor)
{
    struct dp_graph_capture *t = context;

    assert(t->ready_count < t->config.tensors);
    t->ready[t->ready_count++] = tensor;
    if (tensor == 0 || !t->config.hands_over(t->config.context, tensor)) {
        return DP_OK;
    }
    DP_TRY(end_segment(t));
    return t->device->record_begin(t->config.stream);
}

static dp_status pass_sum(void *context, float *data, size_t count)
{
    const struct dp_graph_capture *t = context;

    return t->hooks->sum(t->hooks->context, data, count);
}

/* Leaves track->count 0 on error, and the stream as it was. */
static dp_status record(struct dp_graph_capture *t, struct track *track,
                        dp_graph_capture_pass *pass, void *context,
                        const struct dp_model_hooks *hooks)
{
    const struct dp_model_hooks noting = {
        .context = t,
        .ready = hooks->ready != NULL ? note_ready : NULL,
        .sum = hooks->sum != NULL ? pass_sum : NULL,
        .early = hooks->early,
    };
    const char *ignored;
    dp_status status;

    t->track = track;
    t->hooks = hooks;
    t->ready_count = 0;
    t->why_not = NULL;
    status = t->device->record_begin(t->config.stream);
    if (status != DP_OK) { /* it has said why */
        t->why_not = "recording cannot begin";
        return status;
    }
    status = pass(context, &noting);
    if (status == DP_OK) {
        status = end_segment(t);
    } else if (t->why_not == NULL) { /* an operation failed: what was begun is ended */
        t->why_not = "an operation cannot be recorded";
        (void)!t->device->record_end(t->config.stream, track->segments[0].recording, &ignored);
    }
    track->count = status == DP_OK ? track->count : 0;
    return status;
}

static dp_status give_up(struct dp_graph_capture *t)
{
    if (t->config.must) {
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "device.graph is 'on', but a step cannot be recorded: %s; set it to 'auto'",
                       t->why_not);
    }
    DP_WARN("steps are queued operation by operation, since one cannot be recorded: %s",
            t->why_not);
    t->given_up = true;
    return DP_OK;
}

/* ---- replaying ---- */

static dp_status replay(struct dp_graph_capture *t, const struct track *track,
                        const struct dp_model_hooks *hooks)
{
    DP_SPAN(DP_PHASE_BACKWARD, (int64_t)(track - t->tracks));
    int ready = 0;

    for (int i = 0; i < track->count; i++) {
        const struct segment *segment = &track->segments[i];
        DP_TRY(t->device->replay(segment->recording, t->config.stream));
        for (; hooks->ready != NULL && ready < segment->end; ready++) {
            DP_TRY(hooks->ready(hooks->context, t->ready[ready]));
        }
    }
    t->replays++;
    return DP_OK;
}

dp_status dp_graph_capture_run(struct dp_graph_capture *t, int number, size_t rows,
                               dp_graph_capture_pass *pass, void *context,
                               const struct dp_model_hooks *hooks)
{
    struct track *track;

    if (t == NULL || t->given_up || rows != t->config.rows) {
        return pass(context, hooks);
    }
    assert(number < t->config.passes);
    track = &t->tracks[number];
    if (track->count == 0 && track->turns < DP_GRAPH_CAPTURE_PLAIN) {
        track->turns++;
        return pass(context, hooks);
    }
    if (track->count == 0 && record(t, track, pass, context, hooks) != DP_OK) {
        DP_TRY(give_up(t));
        return pass(context, hooks);
    }
    return replay(t, track, hooks);
}
