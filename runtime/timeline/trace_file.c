#include "runtime/timeline/trace_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/trace.h"

enum { LINE_BYTES = 512, THREADS_OF_A_LANE = 1024 };

static void append(struct dp_trace_file *f, const char *text)
{
    if (f->status == DP_OK) {
        f->status = dp_file_append(&f->file, text, strlen(text));
    }
}

/* An object of traceEvents, without a comma. */
static void append_event(struct dp_trace_file *f, const char *line)
{
    append(f, f->any ? ",\n" : "\n");
    append(f, line);
    f->any = true;
}

/* A status of 0 stands for no memory for the text: then the file is of no use. */
static void append_json(struct dp_trace_file *f, struct dp_json *object, dp_status status,
                        void (*how)(struct dp_trace_file *file, const char *text))
{
    char *text = NULL;

    if (status == DP_OK) {
        status = dp_json_dump(object, 0, DP_JSON_READABLE, &text);
    }
    if (status == DP_OK) {
        how(f, text);
    } else if (f->status == DP_OK) {
        f->status = status;
    }
    dp_free(text);
    dp_json_destroy(object);
}

static dp_status put_title(struct dp_json *object, const struct dp_trace_title *title)
{
    char steps[64];

    (void)snprintf(steps, sizeof(steps), "%" PRIu64 "-%" PRIu64, title->first, title->last);
    DP_TRY(dp_json_set_text(object, "name", title->name));
    DP_TRY(dp_json_set_text(object, "lockstep", title->version));
    return dp_json_set_text(object, "steps", steps);
}

dp_status dp_trace_file_create(struct dp_trace_file *f, const char *path,
                               const struct dp_trace_title *title)
{
    struct dp_json *object;

    memset(f, 0, sizeof(*f));
    (void)snprintf(f->path, sizeof(f->path), "%s", path);
    f->base_ns = title->base_ns;
    DP_TRY(dp_file_create(&f->file, f->path));
    object = dp_json_create();
    append(f, "{\"displayTimeUnit\":\"ms\",\"otherData\":");
    append_json(f, object, put_title(object, title), append);
    append(f, ",\"traceEvents\":[");
    return DP_OK;
}

/* ---- who is who ---- */

static int thread_id(unsigned lane, unsigned index)
{
    return (int)(lane * THREADS_OF_A_LANE + index);
}

static dp_status put_meta(struct dp_json *object, int pid, int tid, const char *what,
                          const char *name)
{
    DP_TRY(dp_json_set_text(object, "ph", "M"));
    DP_TRY(dp_json_set_int(object, "pid", pid));
    DP_TRY(dp_json_set_int(object, "tid", tid));
    DP_TRY(dp_json_set_text(object, "name", what));
    return dp_json_set_text(dp_json_set_object(object, "args"), "name", name);
}

static void add_meta(struct dp_trace_file *f, int pid, int tid, const char *what, const char *name)
{
    struct dp_json *object = dp_json_create();

    append_json(f, object, put_meta(object, pid, tid, what, name), append_event);
}

static void add_order(struct dp_trace_file *f, int pid, int tid, const char *what, int index)
{
    char line[LINE_BYTES];

    (void)snprintf(line, sizeof(line),
                   "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"sort_index\":"
                   "%d}}",
                   pid, tid, what, index);
    append_event(f, line);
}

static void add_thread(struct dp_trace_file *f, int pid, unsigned lane, unsigned index)
{
    const int tid = thread_id(lane, index);
    char name[64];

    (void)snprintf(name, sizeof(name), index > 0 ? "%s %u" : "%s",
                   dp_trace_lane_text((enum dp_trace_lane)lane), index + 1);
    add_meta(f, pid, tid, "thread_name", name);
    add_order(f, pid, tid, "thread_sort_index", tid);
}

/* The four lanes that every rank has, and those of more threads, and of streams of a GPU, that have
 * events. */
static void add_threads(struct dp_trace_file *f, int pid, const struct dp_trace_event *events,
                        size_t count)
{
    unsigned lanes[DP_TRACE_LANE_KINDS] = {0}; /* how many of each */

    for (unsigned lane = DP_LANE_COMPUTE; lane <= DP_LANE_CHECKPOINT; lane++) {
        lanes[lane] = 1;
    }
    for (size_t i = 0; i < count; i++) {
        const unsigned lane = events[i].lane, index = events[i].index;
        if (lane < DP_TRACE_LANE_KINDS && index < THREADS_OF_A_LANE && index >= lanes[lane]) {
            lanes[lane] = index + 1;
        }
    }
    for (unsigned lane = DP_LANE_COMPUTE; lane < DP_TRACE_LANE_KINDS; lane++) {
        for (unsigned index = 0; index < lanes[lane]; index++) {
            add_thread(f, pid, lane, index);
        }
    }
}

/* ---- events ---- */

/* Microseconds since time 0, to the nanosecond. */
static double at_us(const struct dp_trace_file *f, uint64_t ns)
{
    return (double)(int64_t)(ns - f->base_ns) / 1e3;
}

/* Ids of arrows are common to all ranks. */
static uint64_t arrow_id(int pid, uint64_t number)
{
    return ((uint64_t)pid << 40) + number;
}

/* What the number of a phase is called. */
static const char *arg_of(enum dp_phase phase)
{
    switch (phase) {
    case DP_PHASE_STEP:
    case DP_PHASE_INPUT:
    case DP_PHASE_CHECKPOINT:
    case DP_PHASE_LOAD:
        return "step";
    case DP_PHASE_WAIT:
    case DP_PHASE_OPTIMIZER:
        return "bucket";
    default:
        return "of";
    }
}

static void add_span(struct dp_trace_file *f, int pid, const struct dp_trace_event *e)
{
    const enum dp_phase phase = (enum dp_phase)e->what;
    const bool counts_from_1 = phase == DP_PHASE_STEP || phase == DP_PHASE_INPUT ||
                               phase == DP_PHASE_LOAD; /* as people count steps */
    char line[LINE_BYTES];

    (void)snprintf(line, sizeof(line),
                   "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\","
                   "\"cat\":\"phase\",\"args\":{\"%s\":%" PRId64 "}}",
                   pid, thread_id(e->lane, e->index), at_us(f, e->begin_ns),
                   (double)(e->end_ns - e->begin_ns) / 1e3, dp_phase_text(phase), arg_of(phase),
                   e->arg + counts_from_1);
    append_event(f, line);
}

static void add_job(struct dp_trace_file *f, int pid, const struct dp_trace_event *e)
{
    static const char *const names[] = {"call", "bucket", "publish"};
    const char *name = e->what < sizeof(names) / sizeof(names[0]) ? names[e->what] : "job";
    const int tid = thread_id(e->lane, e->index);
    char line[LINE_BYTES], number[32] = "";

    if (e->what != DP_TRACE_CALL) {
        (void)snprintf(number, sizeof(number), " %" PRId64, e->arg);
    }
    (void)snprintf(line, sizeof(line),
                   "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s%s\","
                   "\"cat\":\"job\",\"args\":{\"bucket\":%" PRId64 "}}",
                   pid, tid, at_us(f, e->begin_ns), (double)(e->end_ns - e->begin_ns) / 1e3, name,
                   number, e->arg);
    append_event(f, line);
    if (e->what != DP_TRACE_CALL) {
        (void)snprintf(
            line, sizeof(line),
            "{\"ph\":\"f\",\"bp\":\"e\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"id\":%" PRIu64
            ",\"name\":\"ready\",\"cat\":\"bucket\"}",
            pid, tid, at_us(f, e->begin_ns), arrow_id(pid, e->number));
        append_event(f, line);
    }
}

/* "forward 3" of layer 3. */
static void add_work(struct dp_trace_file *f, int pid, const struct dp_trace_event *e)
{
    static const struct {
        const char *name, *arg;
    } works[] = {
#define X(id, text, number) {text, number},
        DP_TRACE_WORKS(X)
#undef X
    };
    char line[LINE_BYTES];

    if (e->what >= DP_TRACE_WORK_KINDS) {
        return;
    }
    (void)snprintf(line, sizeof(line),
                   "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s "
                   "%" PRId64 "\",\"cat\":\"gpu\",\"args\":{\"%s\":%" PRId64 "}}",
                   pid, thread_id(e->lane, e->index), at_us(f, e->begin_ns),
                   (double)(int64_t)(e->end_ns - e->begin_ns) / 1e3, works[e->what].name, e->arg,
                   works[e->what].arg, e->arg);
    append_event(f, line);
}

static void add_arrow(struct dp_trace_file *f, int pid, const struct dp_trace_event *e)
{
    char line[LINE_BYTES];

    (void)snprintf(line, sizeof(line),
                   "{\"ph\":\"s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"id\":%" PRIu64
                   ",\"name\":\"ready\",\"cat\":\"bucket\"}",
                   pid, thread_id(e->lane, e->index), at_us(f, e->begin_ns),
                   arrow_id(pid, e->number));
    append_event(f, line);
}

static void add_count(struct dp_trace_file *f, int pid, const struct dp_trace_event *e)
{
    static const char *const names[] = {"bytes sent", "samples/s"};
    const char *name = e->what < sizeof(names) / sizeof(names[0]) ? names[e->what] : "counter";
    char line[LINE_BYTES];

    (void)snprintf(line, sizeof(line),
                   "{\"ph\":\"C\",\"pid\":%d,\"ts\":%.3f,\"name\":\"%s\",\"args\":{\"value\":"
                   "%.17g}}",
                   pid, at_us(f, e->begin_ns), name, e->value);
    append_event(f, line);
}

static void add_event(struct dp_trace_file *f, int pid, const struct dp_trace_event *e)
{
    switch ((enum dp_trace_kind)atomic_load_explicit(&e->kind, memory_order_acquire)) {
    case DP_TRACE_SPAN:
        add_span(f, pid, e);
        break;
    case DP_TRACE_JOB:
        add_job(f, pid, e);
        break;
    case DP_TRACE_ARROW:
        add_arrow(f, pid, e);
        break;
    case DP_TRACE_COUNTER:
        add_count(f, pid, e);
        break;
    case DP_TRACE_WORK:
        add_work(f, pid, e);
        break;
    default:
        break;
    }
}

void dp_trace_file_add(struct dp_trace_file *f, int rank, const char *host,
                       const struct dp_trace_event *events, size_t count)
{
    char name[128];

    (void)snprintf(name, sizeof(name), "rank %d (%s)", rank, host);
    add_meta(f, rank, 0, "process_name", name);
    add_order(f, rank, 0, "process_sort_index", rank);
    add_threads(f, rank, events, count);
    for (size_t i = 0; i < count; i++) {
        add_event(f, rank, &events[i]);
    }
}

dp_status dp_trace_file_finish(struct dp_trace_file *f)
{
    append(f, "\n]}\n");
    if (f->status != DP_OK) {
        dp_file_discard(&f->file);
        return f->status;
    }
    return dp_file_finish(&f->file, NULL);
}
