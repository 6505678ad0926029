#include "runtime/report/files/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"

enum { NUMBER_BYTES = 32, LINE_BYTES = 512 };

struct dp_metrics_late {
    double time;
    struct dp_metrics_step step;
};

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A torn line of a killed run must not swallow the next one. */
static dp_status end_torn_line(int fd, const char *path)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    char last = '\n';

    if (size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n') {
        return dp_file_write_all(fd, path, "\n", 1);
    }
    return DP_OK;
}

/* A link is not followed to empty what is there: it may lead to a file that belongs to no run. A
 * pipe is refused: both of its ends would be ours, and once it is full a write would never
 * return. */
static dp_status open_lines(int *fd, const char *path, bool append)
{
    const int flags = O_RDWR | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    struct stat info;

    *fd = dp_disk_create(path, flags | (append ? 0 : O_TRUNC | O_NOFOLLOW));
    if (*fd < 0) {
        return dp_file_fail(path, errno);
    }
    if (fstat(*fd, &info) == 0 && S_ISFIFO(info.st_mode)) {
        (void)close(*fd);
        return DP_FAIL(DP_ERR_WRITE, "cannot write %s: it is a pipe; move it away", path);
    }
    return DP_OK;
}

static void release(struct dp_metrics *metrics)
{
    if (metrics->fd >= 0) {
        (void)close(metrics->fd);
    }
    dp_free(metrics->waiting);
    dp_free(metrics->late);
    metrics->waiting = NULL;
    metrics->late = NULL;
    metrics->fd = -1;
}

dp_status dp_metrics_open(struct dp_metrics *metrics, const char *path, bool append)
{
    struct dp_metrics opened = {.fd = -1};
    dp_status status = DP_OK;

    if (strlen(path) >= sizeof(opened.path)) {
        return DP_FAIL(DP_ERR_WRITE, "cannot write %.80s...: the path is too long", path);
    }
    (void)snprintf(opened.path, sizeof(opened.path), "%s", path);
    DP_TRY(open_lines(&opened.fd, path, append));
    opened.waiting = dp_zalloc(1, DP_METRICS_ROOM);
    opened.late = dp_zalloc(DP_METRICS_STEPS, sizeof(*opened.late));
    if (opened.waiting == NULL || opened.late == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "%s", path);
    } else if (append) {
        status = end_torn_line(opened.fd, path);
    }
    if (status != DP_OK) {
        release(&opened);
        return status;
    }
    *metrics = opened;
    (void)pthread_mutex_init(&metrics->mutex, NULL);
    return DP_OK;
}

void dp_metrics_close(struct dp_metrics *metrics)
{
    (void)!dp_metrics_flush(metrics); /* the file may have been given up */
    (void)pthread_mutex_destroy(&metrics->mutex);
    release(metrics);
}

/* The number after `key` in a line, which ends with a line end; -1: it has none. */
static int64_t number_in(const char *line, const char *key)
{
    const char *found = strstr(line, key);

    return found == NULL || found > strchr(line, '\n') ? -1
                                                       : strtoll(found + strlen(key), NULL, 10);
}

/* The step that a line belongs to; -1: to none. Quotes inside of texts have a backslash before
 * them, so no text can look like a key. */
static int64_t step_of_line(const char *line)
{
    static const char end[] = "{\"type\":\"end\"";

    return number_in(line, strncmp(line, end, sizeof(end) - 1) == 0 ? "\"steps\":" : "\"step\":");
}

/* Moves *line past the NUL bytes in it, up to `end`; whether there were any. */
static bool skip_nuls(const char **line, const char *end)
{
    const char *nul;
    bool any = false;

    while ((nul = memchr(*line, '\0', (size_t)(end - *line))) != NULL) {
        *line = nul + 1;
        any = true;
    }
    return any;
}

/* Closes the gaps of lines that are removed. *damaged: how many had NUL bytes. Returns how many
 * bytes stay. */
static size_t keep_lines(char *text, size_t bytes, int64_t step, int64_t evaluated, size_t *damaged)
{
    static const char eval_begin[] = "{\"type\":\"eval\"";
    const char *line = text, *const all = text + bytes, *end;
    char *to = text;

    while ((end = memchr(line, '\n', (size_t)(all - line))) != NULL) {
        const bool had_nuls = skip_nuls(&line, end);
        const size_t length = (size_t)(end + 1 - line);

        const bool eval = strncmp(line, eval_begin, sizeof(eval_begin) - 1) == 0;

        *damaged += had_nuls;
        if ((!had_nuls || *line == '{') && step_of_line(line) <= (eval ? evaluated : step)) {
            memmove(to, line, length);
            to += length;
        }
        line = end + 1;
    }
    return (size_t)(to - text);
}

dp_status dp_metrics_trim(const char *path, int64_t step, int64_t evaluated)
{
    char *text = NULL;
    size_t bytes = 0, kept, damaged = 0;
    dp_status status;

    if (access(path, F_OK) != 0) {
        return DP_OK;
    }
    DP_TRY(dp_file_read(path, SIZE_MAX / 2, &text, &bytes));
    kept = keep_lines(text, bytes, step, evaluated, &damaged);
    if (damaged > 0) {
        DP_WARN("%s: %zu line%s damaged by NUL bytes: what cannot be read of %s is left out", path,
                damaged, damaged == 1 ? " is" : "s are", damaged == 1 ? "it" : "them");
    }
    status = kept == bytes ? DP_OK : dp_file_replace(path, text, kept);
    dp_free(text);
    return status;
}

/* ---- lines that may have to wait ---- */

/* Writes as much as possible, and returns how much. *reason: why not more. */
static size_t write_some(int fd, const char *data, size_t bytes, int *reason)
{
    size_t done = 0;

    while (done < bytes) {
        const ssize_t now = dp_disk_write(fd, data + done, bytes - done);

        if (now < 0 && errno != EINTR) {
            *reason = errno;
            break;
        }
        done += now > 0 ? (size_t)now : 0;
    }
    return done;
}

/* Writes what waits. What cannot be written waits on, or is an error if it `must` be. */
static dp_status write_waiting(struct dp_metrics *m, bool must)
{
    const uint64_t now_ns = dp_now_ns();
    int reason = 0;
    const size_t done = write_some(m->fd, m->waiting, m->waiting_bytes, &reason);

    m->waiting_bytes -= done;
    memmove(m->waiting, m->waiting + done, m->waiting_bytes);
    m->tried_ns = now_ns;
    if (m->waiting_bytes == 0) {
        m->failing_ns = 0;
        return DP_OK;
    }
    if (must) {
        return dp_file_fail(m->path, reason);
    }
    if (m->failing_ns == 0) {
        m->failing_ns = now_ns;
    }
    if (m->warned_ns == 0 || now_ns - m->warned_ns >= DP_METRICS_WARN_NS) {
        m->warned_ns = now_ns;
        DP_WARN("cannot write %s: %s; make room there: lines wait in memory, and soon the run is "
                "saved and stops",
                m->path, strerror(reason));
    }
    return DP_OK;
}

enum urgency {
    LATER, /* another line follows */
    NOW,   /* if it can be; else it waits */
    MUST   /* or it is an error */
};

/* Adds a line to those that wait, which mostly are none, and writes them. */
static dp_status write_line(struct dp_metrics *m, const char *line, size_t length,
                            enum urgency urgency)
{
    const uint64_t now_ns = m->failing_ns == 0 ? 0 : dp_now_ns();
    const bool must = urgency == MUST;
    bool fits;

    if (length > DP_METRICS_ROOM - m->waiting_bytes) {
        DP_TRY(write_waiting(m, must));
    }
    fits = length <= DP_METRICS_ROOM - m->waiting_bytes;
    if (fits) {
        memcpy(m->waiting + m->waiting_bytes, line, length);
        m->waiting_bytes += length;
    }
    if (must ||
        (urgency == NOW && (m->failing_ns == 0 || now_ns - m->tried_ns >= DP_METRICS_RETRY_NS))) {
        DP_TRY(write_waiting(m, must));
    }
    m->given_up = m->given_up || !fits ||
                  (m->failing_ns != 0 && now_ns >= m->failing_ns + DP_METRICS_PATIENCE_NS);
    return fits && (must || !m->given_up) ? DP_OK : DP_ERR_WRITE;
}

/* A number with `digits` significant digits, or null. */
static const char *number(char text[NUMBER_BYTES], double value, int digits)
{
    if (isfinite(value)) {
        (void)snprintf(text, NUMBER_BYTES, "%.*g", digits, value);
    } else {
        (void)snprintf(text, NUMBER_BYTES, "null");
    }
    return text;
}

static int step_line(char line[LINE_BYTES], const struct dp_metrics_late *late)
{
    const struct dp_metrics_step *step = &late->step;
    char loss[NUMBER_BYTES], lr[NUMBER_BYTES], rate[NUMBER_BYTES], time_ms[NUMBER_BYTES];
    char scaling[64] = "";

    if (step->loss_scale > 0.0) {
        (void)snprintf(scaling, sizeof(scaling), ",\"loss_scale\":%.0f,\"skipped\":%s",
                       step->loss_scale, step->skipped ? "true" : "false");
    }
    return snprintf(
        line, LINE_BYTES,
        "{\"type\":\"step\",\"time\":%.3f,\"step\":%" PRId64 ",\"epoch\":%d,\"loss\":%s,"
        "\"lr\":%s,\"samples_per_second\":%s,\"step_ms\":%s%s}\n",
        late->time, step->step, step->epoch, number(loss, step->loss, 9), number(lr, step->lr, 9),
        number(rate, step->samples_per_second, 7), number(time_ms, step->step_ms, 6), scaling);
}

/* Writes the lines of steps that wait, in one go. */
static dp_status write_late(struct dp_metrics *m)
{
    dp_status status = DP_OK;
    char line[LINE_BYTES];

    for (int i = 0; i < m->late_count; i++) {
        const int length = step_line(line, &m->late[i]);
        status = write_line(m, line, (size_t)length, i == m->late_count - 1 ? NOW : LATER);
    }
    m->late_count = 0;
    return status;
}

dp_status dp_metrics_flush(struct dp_metrics *metrics)
{
    dp_status status;

    if (pthread_mutex_trylock(&metrics->mutex) != 0) {
        return DP_OK;
    }
    status = write_late(metrics);
    (void)pthread_mutex_unlock(&metrics->mutex);
    return status;
}

/* While lines cannot be written each step tries to, and finds out when the file is given up. */
dp_status dp_metrics_step(struct dp_metrics *metrics, const struct dp_metrics_step *step)
{
    const uint64_t now_ns = dp_now_ns();
    dp_status status = DP_OK;

    (void)pthread_mutex_lock(&metrics->mutex);
    metrics->late[metrics->late_count++] = (struct dp_metrics_late){now_s(), *step};
    if (now_ns >= metrics->late_ns + DP_METRICS_LATE_NS ||
        metrics->late_count == DP_METRICS_STEPS || metrics->failing_ns != 0 || metrics->at_once) {
        metrics->late_ns = now_ns;
        status = write_late(metrics);
    }
    (void)pthread_mutex_unlock(&metrics->mutex);
    return status;
}

/* The step of the last line about one, as far as the end of the file reaches; -1: there is none. */
static int64_t last_step(const struct dp_metrics *m)
{
    static const char begin[] = "{\"type\":\"step\"";
    char end[8 * LINE_BYTES];
    const off_t size = lseek(m->fd, 0, SEEK_END), room = (off_t)sizeof(end) - 1;
    const off_t from = size > room ? size - room : 0;
    const ssize_t got = size > 0 ? pread(m->fd, end, (size_t)(size - from), from) : 0;
    int64_t step = -1;

    end[got > 0 ? got : 0] = '\0';
    for (const char *line = strstr(end, begin); line != NULL; line = strstr(line + 1, begin)) {
        if (strchr(line, '\n') != NULL) {
            step = step_of_line(line);
        }
    }
    return step;
}

dp_status dp_metrics_step_once(struct dp_metrics *metrics, const struct dp_metrics_step *step)
{
    DP_TRY(dp_metrics_flush(metrics));
    return last_step(metrics) < step->step ? dp_metrics_step(metrics, step) : DP_OK;
}

/* Writes an object as a line. */
static dp_status write_object(struct dp_metrics *metrics, const struct dp_json *object, bool must)
{
    char *line = NULL;
    dp_status status;
    size_t length;

    DP_TRY(dp_json_dump(object, 0, DP_JSON_READABLE + 3, &line)); /* time to the millisecond */
    length = strlen(line);
    line[length] = '\n'; /* in place of the NUL */
    (void)pthread_mutex_lock(&metrics->mutex);
    status = write_late(metrics);
    if (status == DP_OK || must) {
        status = write_line(metrics, line, length + 1, must ? MUST : NOW);
    }
    (void)pthread_mutex_unlock(&metrics->mutex);
    dp_free(line);
    return status;
}

static dp_status fill_start(struct dp_json *object, const struct dp_metrics_start *start)
{
    DP_TRY(dp_json_set_text(object, "name", start->name));
    DP_TRY(dp_json_set_int(object, "world_size", start->world_size));
    DP_TRY(dp_json_set_int(object, "global_batch", start->global_batch));
    DP_TRY(dp_json_set_text(object, "device", start->device));
    DP_TRY(dp_json_set_text(object, "precision", start->precision));
    DP_TRY(dp_json_set_text(object, "strategy", start->strategy));
    DP_TRY(dp_json_set_text(object, "compressor", start->compressor));
    DP_TRY(dp_json_set_int(object, "first_step", start->first_step));
    return dp_json_set_int(object, "steps", start->steps);
}

static dp_status fill_eval(struct dp_json *object, const struct dp_metrics_eval *eval)
{
    DP_TRY(dp_json_set_int(object, "step", eval->step));
    DP_TRY(dp_json_set_int(object, "epoch", eval->epoch));
    DP_TRY(dp_json_set_real(object, "train_loss", eval->train_loss));
    DP_TRY(dp_json_set_real(object, "test_loss", eval->test_loss));
    DP_TRY(dp_json_set_real(object, "test_accuracy", eval->test_accuracy));
    DP_TRY(dp_json_set_real(object, "test_top5_accuracy", eval->test_top5));
    DP_TRY(dp_json_set_real(object, "test_mean_absolute_error", eval->test_error));
    return dp_json_set_real(object, "seconds", eval->seconds);
}

/* An object with the members that every line has, or NULL. */
static struct dp_json *create_line(const char *type)
{
    struct dp_json *object = dp_json_create();

    if (dp_json_set_text(object, "type", type) != DP_OK ||
        dp_json_set_real(object, "time", now_s()) != DP_OK) {
        dp_json_destroy(object);
        return NULL;
    }
    return object;
}

dp_status dp_metrics_start(struct dp_metrics *metrics, const struct dp_metrics_start *start)
{
    struct dp_json *object = create_line("start");
    dp_status status = fill_start(object, start);

    if (status == DP_OK) {
        status = write_object(metrics, object, true);
    }
    dp_json_destroy(object);
    return status;
}

dp_status dp_metrics_resume(struct dp_metrics *metrics, const struct dp_metrics_start *start,
                            const char *checkpoint)
{
    struct dp_json *object = create_line("resume");
    dp_status status = dp_json_set_int(object, "step", start->first_step);

    if (status == DP_OK) {
        status = dp_json_set_text(object, "checkpoint", checkpoint);
    }
    if (status == DP_OK && start->lost_count > 0) {
        struct dp_json *lost = dp_json_set_array(object, "lost_ranks");
        for (int i = 0; i < start->lost_count && status == DP_OK; i++) {
            status = dp_json_push_int(lost, start->lost[i].rank);
        }
    }
    if (status == DP_OK) {
        status = fill_start(object, start);
    }
    if (status == DP_OK) {
        status = write_object(metrics, object, true);
    }
    dp_json_destroy(object);
    return status;
}

dp_status dp_metrics_eval(struct dp_metrics *metrics, const struct dp_metrics_eval *eval)
{
    struct dp_json *object = create_line("eval");
    dp_status status = fill_eval(object, eval);

    if (status == DP_OK) {
        status = write_object(metrics, object, false);
    }
    dp_json_destroy(object);
    return status;
}

dp_status dp_metrics_end(struct dp_metrics *metrics, const struct dp_run_summary *summary)
{
    struct dp_json *object = create_line("end");
    dp_status status = dp_run_summary_put_end(summary, object);

    if (status == DP_OK) {
        status = write_object(metrics, object, true);
    }
    dp_json_destroy(object);
    return status;
}
