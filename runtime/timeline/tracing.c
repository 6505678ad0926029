#include "runtime/timeline/tracing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "base/trace_ring.h"
#include "collectives/exchange/exchange_calls.h"
#include "kernels/stream_trace.h"
#include "runtime/timeline/collect.h"
#include "runtime/timeline/trace_file.h"

enum {
    STEPS = 10,     /* that are traced unless the user says which */
    SETTLED = 20,   /* after which overlap has been tried, and one rank alone measured */
    OF_A_STEP = 64, /* events of a step on the main thread, a generous guess */
    OF_A_BUCKET = 8,
    OF_A_LAYER = 3, /* on a GPU: forward, backward, and where a layer ends later */
    MOST = 1 << 20,
    MOST_OF_STREAMS = 1 << 16
};

enum state { WAITING, RECORDING, RECORDED, WRITTEN };

struct dp_tracing {
    struct dp_tracing_config config;
    struct dp_exchange *exchange; /* borrowed */
    struct dp_trace_ring *ring;
    struct dp_stream_trace *streams; /* owned; NULL: the device has no times of its own */
    uint64_t first, last, begin_ns, wire_bytes;
    enum state state;
    char path[DP_PATH_BYTES];
};

/* ---- what is asked for ---- */

/* A number above 0 at the begin of *text, which then is after it; 0: there is none. */
static uint64_t number_at(const char **text)
{
    char *end;
    unsigned long long number;

    if (**text < '0' || **text > '9') {
        return 0;
    }
    errno = 0;
    number = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0 && number < INT64_MAX ? number : 0;
}

/* Whether a text ends as ":step=5-9" or ":5-9" do: meant to be steps, not the name of a file. */
static bool ends_in_other_steps(const char *text)
{
    const char *last = strrchr(text, ':');
    const size_t word = last != NULL ? strspn(last + 1, "abcdefghijklmnopqrstuvwxyz") : 0;

    if (last == NULL) {
        return false;
    }
    last += 1 + word;
    if (word > 0 && *last != '=') {
        return false;
    }
    last += *last == '=';
    return *last != '\0' && last[strspn(last, "0123456789-")] == '\0';
}

dp_status dp_trace_request_read(const char *text, struct dp_trace_request *out)
{
    static const char key[] = ":steps=";
    const char *at = strstr(text, key), *next = NULL;
    const size_t length = at != NULL ? (size_t)(at - text) : strlen(text);
    bool right = at != NULL || !ends_in_other_steps(text);

    memset(out, 0, sizeof(*out));
    if (at != NULL) {
        next = at + strlen(key);
        out->first = number_at(&next);
        next += *next == '-';
        out->last = number_at(&next);
        right = out->first > 0 && out->last >= out->first && *next == '\0';
    }
    if (!right) {
        return DP_FAIL(DP_ERR_USAGE,
                       "--trace wants FILE:steps=A-B, with steps from 1 and A no more than B, "
                       "not '%s'",
                       text);
    }
    if (length >= sizeof(out->path)) {
        return DP_FAIL(DP_ERR_USAGE, "--trace: the name of the file is too long");
    }
    memcpy(out->path, text, length);
    out->on = true;
    return DP_OK;
}

bool dp_trace_request_passed(const struct dp_trace_request *request, uint64_t done, uint64_t total)
{
    return done > 0 && (done >= total || (request->first > 0 && request->last <= done));
}

/* The steps that are recorded: those that are asked for, or some that are typical of the run. */
static dp_status choose_steps(struct dp_tracing *t, const struct dp_trace_request *request)
{
    const uint64_t done = t->config.done, total = t->config.total;

    t->first = request->first;
    t->last = request->last;
    if (request->first == 0) {
        t->first = done + SETTLED + 1;
        if (t->first + STEPS > total + 1) {
            t->first = total > done + STEPS ? total - STEPS + 1 : done + 1;
        }
        t->last = t->first + STEPS - 1;
    }
    t->last = t->last < total ? t->last : total;
    if (t->first > total || t->last <= done) {
        return DP_FAIL(DP_ERR_USAGE,
                       "--trace: the run does steps %llu to %llu, and none from %llu to %llu",
                       (unsigned long long)done + 1, (unsigned long long)total,
                       (unsigned long long)request->first, (unsigned long long)request->last);
    }
    return DP_OK;
}

/* How many events fit where each of the steps has so many; at most `most`. */
static size_t room(const struct dp_tracing *t, size_t of_a_step, size_t most)
{
    const uint64_t events = (t->last - t->first + 1) * of_a_step;

    return events < most ? (size_t)events + OF_A_STEP : most;
}

static dp_status make_room(struct dp_tracing *t)
{
    const struct dp_device *device = t->config.stream->device;
    const size_t buckets = (size_t)dp_exchange_plan(t->exchange)->count;
    const size_t others = OF_A_STEP + OF_A_BUCKET * buckets;
    const size_t of_streams = device->timed_event_create != NULL
                                  ? room(t, others + OF_A_LAYER * t->config.layers, MOST_OF_STREAMS)
                                  : 0;

    DP_TRY(dp_trace_ring_create(room(t, others, MOST) + of_streams, &t->ring));
    return of_streams > 0 ? dp_stream_trace_create(device, of_streams, &t->streams) : DP_OK;
}

/* Whether a file can be written there; changes nothing. */
static dp_status try_path(const char *path)
{
    const bool there = access(path, F_OK) == 0;
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);

    if (fd < 0) {
        return dp_file_fail(path, errno);
    }
    (void)close(fd);
    if (!there) {
        (void)dp_disk_unlink(path);
    }
    return DP_OK;
}

/* Rank 0: where the file will be. */
static dp_status choose_path(struct dp_tracing *t, const struct dp_trace_request *request)
{
    const char *folder = t->config.folder;

    if (request->path[0] != '\0') {
        memcpy(t->path, request->path, sizeof(t->path));
    } else if (folder == NULL || folder[0] == '\0') {
        return DP_FAIL(DP_ERR_USAGE, "--trace: the run has no folder: name a file");
    } else {
        DP_TRY(dp_file_join(t->path, folder, "trace.json"));
    }
    return try_path(t->path);
}

static dp_status open_tracing(struct dp_tracing *t, const struct dp_trace_request *request)
{
    const bool leads = dp_exchange_group(t->exchange)->rank == 0;

    DP_TRY(dp_exchange_agree(t->exchange, leads ? choose_steps(t, request) : DP_OK));
    if (!leads) {
        struct dp_log_capture capture;
        dp_status status;

        dp_log_capture_begin(&capture, DP_LOG_DEBUG); /* rank 0 has found the same */
        status = choose_steps(t, request);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        DP_TRY(status);
    }
    DP_TRY(dp_exchange_agree(t->exchange, make_room(t)));
    return dp_exchange_agree(t->exchange, leads ? choose_path(t, request) : DP_OK);
}

dp_status dp_tracing_create(const struct dp_trace_request *request,
                            const struct dp_tracing_config *config, struct dp_exchange *exchange,
                            struct dp_tracing **out)
{
    struct dp_tracing *t = dp_zalloc(1, sizeof(*t));
    dp_status status = t != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "trace");

    status = dp_exchange_agree(exchange, status);
    if (status == DP_OK && t != NULL) {
        t->config = *config;
        t->exchange = exchange;
        status = open_tracing(t, request);
    }
    if (status != DP_OK) {
        dp_tracing_destroy(t);
        return status;
    }
    *out = t;
    return DP_OK;
}

void dp_tracing_destroy(struct dp_tracing *t)
{
    if (t != NULL) {
        if (t->state == RECORDING) {
            dp_trace_record(NULL);
        }
        dp_stream_trace_destroy(t->streams);
        dp_trace_ring_destroy(t->ring);
        dp_free(t);
    }
}

/* ---- steps ---- */

/* Streams that cannot be traced end no training: they have failed at something else, too. */
static void begin_streams(struct dp_tracing *t)
{
    if (t->streams != NULL && dp_stream_trace_begin(t->streams, t->config.stream) != DP_OK) {
        dp_stream_trace_destroy(t->streams);
        t->streams = NULL;
    }
}

static void end_streams(struct dp_tracing *t, uint64_t *lost)
{
    *lost = 0;
    if (t->streams != NULL &&
        dp_stream_trace_end(t->streams, t->config.stream, t->ring, lost) != DP_OK) {
        DP_WARN("--trace: lanes of the GPU's streams are not whole");
    }
}

void dp_tracing_before(struct dp_tracing *t, uint64_t step)
{
    if (t->state == WAITING && step >= t->first && step <= t->last) {
        dp_trace_set_lane(DP_LANE_COMPUTE, 0);
        t->wire_bytes = dp_exchange_wire(t->exchange);
        begin_streams(t);
        t->begin_ns = dp_now_ns();
        t->state = RECORDING;
        dp_trace_record(t->ring);
    }
}

void dp_tracing_after(struct dp_tracing *t, uint64_t step, double samples_per_second)
{
    const uint64_t wire_bytes = dp_exchange_wire(t->exchange);

    if (t->state != RECORDING) {
        return;
    }
    dp_trace_add_count(DP_COUNT_BYTES, (double)(wire_bytes - t->wire_bytes), dp_now_ns());
    dp_trace_add_count(DP_COUNT_SAMPLES, samples_per_second, dp_now_ns());
    t->wire_bytes = wire_bytes;
    if (step >= t->last) {
        dp_trace_record(NULL);
        t->state = RECORDED;
    }
}

void dp_tracing_pause(const struct dp_tracing *t, bool pauses)
{
    if (t->state == RECORDING) {
        dp_trace_record(pauses ? NULL : t->ring);
    }
}

bool dp_tracing_due(const struct dp_tracing *t, bool ends)
{
    return t->state == RECORDED || (ends && t->state == RECORDING);
}

/* ---- the file ---- */

/* What a rank sends, before its events. */
struct head {
    uint64_t lost, unused;
};

struct writing {
    const struct dp_tracing *tracing;
    uint64_t base_ns; /* when the first rank began to record */
    struct dp_trace_file file;
    uint64_t lost;
    bool open;
};

static dp_status open_file(struct writing *w)
{
    const struct dp_tracing *t = w->tracing;
    const struct dp_trace_title title = {t->config.name, t->config.version, t->first, t->last,
                                         w->base_ns};

    DP_TRY(dp_trace_file_create(&w->file, t->path, &title));
    w->open = true;
    return DP_OK;
}

static dp_status take(void *context, int rank, const void *data, size_t bytes)
{
    struct writing *w = context;
    const struct dp_tracing *t = w->tracing;
    const struct head *head = data;

    if (!w->open) {
        DP_TRY(open_file(w));
    }
    w->lost += head->lost;
    dp_trace_file_add(&w->file, rank, t->config.host_of(t->config.context, rank),
                      (const struct dp_trace_event *)(head + 1),
                      (bytes - sizeof(*head)) / sizeof(struct dp_trace_event));
    return DP_OK;
}

/* Whether it is whole, and began after recording did. */
static bool counts(const struct dp_tracing *t, const struct dp_trace_event *event)
{
    return atomic_load_explicit(&event->kind, memory_order_acquire) != DP_TRACE_NOTHING &&
           event->begin_ns >= t->begin_ns;
}

/* This rank's events, by the clock of rank 0; owned by the caller. */
static void *packed(struct dp_tracing *t, const struct dp_clock *clock, size_t *bytes)
{
    struct head *head;
    struct dp_trace_event *out;
    size_t count;
    uint64_t lost, of_streams;

    end_streams(t, &of_streams);
    const struct dp_trace_event *events = dp_trace_ring_events(t->ring, &count, &lost);

    *bytes = sizeof(*head) + count * sizeof(*events);
    head = dp_zalloc(*bytes, 1);
    if (head == NULL) {
        return NULL;
    }
    head->lost = lost + of_streams;
    out = (struct dp_trace_event *)(head + 1);
    for (size_t i = 0; i < count; i++) {
        if (counts(t, &events[i])) {
            memcpy(&out[i], &events[i], sizeof(*out));
            out[i].begin_ns = dp_clock_shared(clock, events[i].begin_ns);
            out[i].end_ns = dp_clock_shared(clock, events[i].end_ns);
        }
    }
    return head;
}

/* When the first rank began to record, by the clock of rank 0. begins [ranks]: scratch. */
static dp_status find_base(const struct dp_tracing *t, const struct dp_clock *clock,
                           uint64_t *begins, uint64_t *base_ns)
{
    const uint64_t mine = dp_clock_shared(clock, t->begin_ns);

    DP_TRY(dp_exchange_gather(t->exchange, &mine, sizeof(mine), begins));
    *base_ns = mine;
    for (int i = 0; i < dp_exchange_group(t->exchange)->size; i++) {
        *base_ns = begins[i] < *base_ns ? begins[i] : *base_ns;
    }
    return DP_OK;
}

dp_status dp_tracing_write(struct dp_tracing *t, const struct dp_clock *clock)
{
    const size_t ranks = (size_t)dp_exchange_group(t->exchange)->size;
    uint64_t *begins = dp_zalloc(ranks, sizeof(*begins));
    struct writing writing = {.tracing = t};
    size_t bytes = 0;
    void *mine;
    dp_status status, written;

    dp_trace_record(NULL);
    t->state = WRITTEN;
    mine = packed(t, clock, &bytes);
    status = mine != NULL && begins != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "trace");
    DP_TRY_GOTO(dp_exchange_agree(t->exchange, status), status, done);
    if (begins != NULL) {
        DP_TRY_GOTO(find_base(t, clock, begins, &writing.base_ns), status, done);
    }
    status = dp_collect(t->exchange, mine, bytes, take, &writing);
    if (writing.open) {
        const dp_status finished = dp_trace_file_finish(&writing.file);
        status = status == DP_OK ? finished : status;
    }
    if (writing.lost > 0) {
        DP_WARN("--trace: %llu events did not fit; trace fewer steps",
                (unsigned long long)writing.lost);
    }
    /* An error that ranks agree on ends what they share; the run goes on without a trace. */
    written = status;
    DP_TRY_GOTO(dp_exchange_broadcast(t->exchange, &written, sizeof(written), 0), status, done);
    status = written;

done:
    dp_free(begins);
    dp_free(mine);
    return status;
}

const char *dp_tracing_path(const struct dp_tracing *t)
{
    return t->path;
}
