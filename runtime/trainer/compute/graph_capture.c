#include "runtime/trainer/compute/graph_capture.h"

#include <assert.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "kernels/stream_trace.h"

/* A recording, and the tensors that are ready after it: from the end of the previous segment up to
 * its own. */
struct segment {
    struct dp_recording *recording; /* owned */
    int end;
};

struct track {
    struct segment *segments; /* points into capture->segments */
    int most, count;          /* segments; count 0: not recorded yet */
    int turns;                /* steps without recording so far */
};

struct dp_graph_capture {
    struct dp_graph_capture_config config;
    const struct dp_device *device;
    struct track *tracks;     /* owned; [passes] */
    struct segment *segments; /* owned; of all tracks */
    int segment_count;
    int *ready;                         /* owned; [tensors], in the order of backward */
    int ready_count;                    /* set while the last pass is recorded */
    struct track *track;                /* the track that is being recorded */
    const struct dp_model_hooks *hooks; /* of the pass that is being recorded */
    const char *why_not;                /* why the device could not record */
    bool given_up;
    uint64_t replays;
};

/* The last pass is cut where buckets become ready; in the others none does. */
static dp_status capture_open(struct dp_graph_capture *c)
{
    const int passes = c->config.passes;

    c->segment_count = passes - 1 + c->config.buckets;
    c->tracks = dp_zalloc((size_t)passes, sizeof(*c->tracks));
    c->segments = dp_zalloc((size_t)c->segment_count, sizeof(*c->segments));
    c->ready = dp_zalloc((size_t)c->config.tensors, sizeof(*c->ready));
    if (c->tracks == NULL || c->segments == NULL || c->ready == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "recording of %d passes", passes);
    }
    for (int i = 0; i < passes; i++) {
        c->tracks[i].segments = c->segments + i;
        c->tracks[i].most = i + 1 < passes ? 1 : c->config.buckets;
    }
    for (int i = 0; i < c->segment_count; i++) {
        DP_TRY(c->device->recording_create(&c->segments[i].recording));
    }
    return DP_OK;
}

dp_status dp_graph_capture_create(const struct dp_graph_capture_config *config,
                                  struct dp_graph_capture **out)
{
    struct dp_graph_capture *c = dp_zalloc(1, sizeof(*c));
    dp_status status;

    if (c == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "recording");
    }
    c->config = *config;
    c->device = config->stream->device;
    status = capture_open(c);
    if (status != DP_OK) {
        dp_graph_capture_destroy(c);
        return status;
    }
    *out = c;
    return DP_OK;
}

void dp_graph_capture_destroy(struct dp_graph_capture *c)
{
    if (c == NULL) {
        return;
    }
    for (int i = 0; c->segments != NULL && i < c->segment_count; i++) {
        c->device->recording_destroy(c->segments[i].recording);
    }
    dp_free(c->ready);
    dp_free(c->segments);
    dp_free(c->tracks);
    dp_free(c);
}

uint64_t dp_graph_capture_replays(const struct dp_graph_capture *c)
{
    return c == NULL ? 0 : c->replays;
}

/* ---- recording: nothing is computed, so no tensor becomes ready ---- */

static dp_status end_segment(struct dp_graph_capture *c)
{
    struct segment *segment = &c->track->segments[c->track->count];

    assert(c->track->count < c->track->most);
    segment->end = c->ready_count;
    DP_TRY(c->device->record_end(c->config.stream, segment->recording, &c->why_not));
    c->track->count++;
    return DP_OK;
}

static dp_status note_ready(void *context, int tensor)
{
    struct dp_graph_capture *c = context;

    assert(c->ready_count < c->config.tensors);
    c->ready[c->ready_count++] = tensor;
    if (tensor == 0 || !c->config.hands_over(c->config.context, tensor)) {
        return DP_OK;
    }
    DP_TRY(end_segment(c));
    return c->device->record_begin(c->config.stream);
}

static dp_status pass_sum(void *context, float *data, size_t count)
{
    const struct dp_graph_capture *c = context;

    return c->hooks->sum(c->hooks->context, data, count);
}

/* On error track->count stays 0, and the stream is as before. */
static dp_status record(struct dp_graph_capture *c, struct track *track,
                        dp_graph_capture_pass *pass, void *context,
                        const struct dp_model_hooks *hooks)
{
    const struct dp_model_hooks noting = {
        .context = c,
        .ready = hooks->ready != NULL ? note_ready : NULL,
        .sum = hooks->sum != NULL ? pass_sum : NULL,
        .early = hooks->early,
    };
    const char *ignored;
    dp_status status;

    c->track = track;
    c->hooks = hooks;
    c->ready_count = 0;
    c->why_not = NULL;
    status = c->device->record_begin(c->config.stream);
    if (status != DP_OK) { /* its error was logged */
        c->why_not = "recording cannot begin";
        return status;
    }
    status = pass(context, &noting);
    if (status == DP_OK) {
        status = end_segment(c);
    } else if (c->why_not == NULL) { /* an operation failed: the recording is ended */
        c->why_not = "an operation cannot be recorded";
        (void)!c->device->record_end(c->config.stream, track->segments[0].recording, &ignored);
    }
    track->count = status == DP_OK ? track->count : 0;
    return status;
}

static dp_status give_up(struct dp_graph_capture *c)
{
    if (c->config.must) {
        return DP_FAIL(DP_ERR_UNAVAILABLE,
                       "device.graph is 'on', but a step cannot be recorded: %s; set it to 'auto'",
                       c->why_not);
    }
    DP_WARN("steps are queued operation by operation, since one cannot be recorded: %s",
            c->why_not);
    c->given_up = true;
    return DP_OK;
}

/* ---- replaying ---- */

static dp_status replay_segment(struct dp_graph_capture *c, const struct segment *segment, int i)
{
    DP_STREAM_SPAN(c->config.stream, DP_WORK_REPLAY, i);
    return c->device->replay(segment->recording, c->config.stream);
}

static dp_status replay(struct dp_graph_capture *c, const struct track *track,
                        const struct dp_model_hooks *hooks)
{
    DP_SPAN(DP_PHASE_BACKWARD, (int64_t)(track - c->tracks));
    int ready = 0;

    for (int i = 0; i < track->count; i++) {
        const struct segment *segment = &track->segments[i];
        DP_TRY(replay_segment(c, segment, i));
        for (; hooks->ready != NULL && ready < segment->end; ready++) {
            DP_TRY(hooks->ready(hooks->context, c->ready[ready]));
        }
    }
    c->replays++;
    return DP_OK;
}

dp_status dp_graph_capture_run(struct dp_graph_capture *c, int number, size_t rows,
                               dp_graph_capture_pass *pass, void *context,
                               const struct dp_model_hooks *hooks)
{
    struct track *track;

    if (c == NULL || c->given_up || rows != c->config.rows) {
        return pass(context, hooks);
    }
    assert(number < c->config.passes);
    track = &c->tracks[number];
    if (track->count == 0 && track->turns < DP_GRAPH_CAPTURE_PLAIN) {
        track->turns++;
        return pass(context, hooks);
    }
    if (track->count == 0 && record(c, track, pass, context, hooks) != DP_OK) {
        DP_TRY(give_up(c));
        return pass(context, hooks);
    }
    return replay(c, track, hooks);
}
