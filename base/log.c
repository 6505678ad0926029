#include "base/log.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* As many bytes as a pipe takes in one piece (PIPE_BUF of Linux), so that lines do not mix. */
enum { LINE_BYTES = 4096, COLLECTED_BYTES = DP_LOG_ERROR_BYTES };

static atomic_int log_level = DP_LOG_INFO;
static atomic_int log_errors;
static _Thread_local struct dp_log_capture *log_capture; /* the innermost, or NULL */
static const struct dp_log_screen *_Atomic log_screen;
static int log_rank = 0, log_ranks = 1;
static char log_host[64] = "";

void dp_log_set_level(enum dp_log_level level)
{
    atomic_store(&log_level, (int)level);
}

enum dp_log_level dp_log_level(void)
{
    return (enum dp_log_level)atomic_load(&log_level);
}

void dp_log_set_identity(int rank, int ranks, const char *host)
{
    log_rank = rank;
    log_ranks = ranks;
    (void)snprintf(log_host, sizeof(log_host), "%s", host);
}

void dp_log_set_screen(const struct dp_log_screen *screen)
{
    atomic_store(&log_screen, screen);
}

const char *dp_log_host(void)
{
    return log_host;
}

int dp_log_errors(void)
{
    return atomic_load(&log_errors);
}

/* ---- captures ---- */

/* The innermost that collects lines of that level, or NULL. */
static struct dp_log_capture *capture_of(enum dp_log_level level)
{
    struct dp_log_capture *capture = log_capture;

    while (capture != NULL && level > capture->level) {
        capture = capture->outer;
    }
    return capture;
}

static void collect(struct dp_log_capture *capture, enum dp_log_level level, const char *format,
                    va_list args) __attribute__((format(printf, 3, 0)));

static void collect(struct dp_log_capture *capture, enum dp_log_level level, const char *format,
                    va_list args)
{
    char line[COLLECTED_BYTES];
    size_t size;

    line[0] = (char)('0' + (int)level);
    dp_text_format(line + 1, sizeof(line) - 1, format, args);
    size = strlen(line) + 1;
    while (capture->used + size > sizeof(capture->lines)) {
        const size_t oldest = strlen(capture->lines) + 1;
        capture->used -= oldest;
        memmove(capture->lines, capture->lines + oldest, capture->used);
    }
    memcpy(capture->lines + capture->used, line, size);
    capture->used += size;
}

void dp_log_capture_begin(struct dp_log_capture *capture, enum dp_log_level level)
{
    if (capture != NULL) {
        capture->outer = log_capture;
        capture->level = level;
        capture->used = 0;
        log_capture = capture;
    }
}

static enum dp_log_level level_of(const char *line)
{
    return (enum dp_log_level)(line[0] - '0');
}

void dp_log_capture_end(struct dp_log_capture *capture, enum dp_log_fate fate)
{
    if (capture == NULL) {
        return;
    }
    assert(log_capture == capture);
    log_capture = capture->outer;
    for (size_t at = 0; fate != DP_LOG_DROP && at < capture->used;) {
        const char *line = capture->lines + at;
        const bool softer = fate == DP_LOG_SOFTEN && level_of(line) == DP_LOG_ERROR;
        dp_log(softer ? DP_LOG_WARN : level_of(line), __FILE__, __LINE__, "%s", line + 1);
        at += strlen(line) + 1;
    }
}

const char *dp_log_captured(const struct dp_log_capture *capture)
{
    const char *found = "";

    for (size_t at = 0; at < capture->used; at += strlen(capture->lines + at) + 1) {
        found = level_of(capture->lines + at) == DP_LOG_ERROR ? capture->lines + at + 1 : found;
    }
    return found;
}

/* ---- printing ---- */

/* "lockstep: error: " or, with several ranks, "lockstep: error: rank 3 (node7): ". */
static size_t log_prefix(char *text, size_t size, enum dp_log_level level, int rank,
                         const char *host)
{
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};
    const bool names_rank = (level == DP_LOG_ERROR || level == DP_LOG_WARN) && log_ranks > 1;
    const int length =
        names_rank ? snprintf(text, size, "lockstep: %srank %d (%s): ", names[level], rank, host)
                   : snprintf(text, size, "lockstep: %s", names[level]);

    return (size_t)length;
}

/* One line, in one write: also what clears the terminal's line first (ECMA-48: EL), since a
 * launcher may bring what is on stdout earlier or later. */
static void write_line(const char *text)
{
    static const char clear[] = "\r\033[K";
    const struct dp_log_screen *screen = atomic_load(&log_screen);
    const bool clears = screen != NULL && screen->lock();
    char printed[LINE_BYTES];
    size_t length = clears ? sizeof(clear) - 1 : 0;

    memcpy(printed, clear, length);
    length += dp_text_clean(text, printed + length, sizeof(printed) - length);
    printed[length] = '\n';                           /* in place of the NUL */
    (void)!write(STDERR_FILENO, printed, length + 1); /* nobody may be left to read it */
    if (clears) {
        screen->draw();
    }
}

static void print(enum dp_log_level level, const char *file, int line, const char *format,
                  va_list args) __attribute__((format(printf, 4, 0)));

static void print(enum dp_log_level level, const char *file, int line, const char *format,
                  va_list args)
{
    char text[LINE_BYTES];
    size_t length = log_prefix(text, sizeof(text), level, log_rank, log_host);

    dp_text_format(text + length, sizeof(text) - length, format, args);
    if (dp_log_level() >= DP_LOG_DEBUG) {
        length = strlen(text);
        (void)snprintf(text + length, sizeof(text) - length, " [%s:%d]", file, line);
    }
    write_line(text);
}

void dp_log_notice(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    print(DP_LOG_INFO, __FILE__, __LINE__, format, args);
    va_end(args);
}

void dp_log(enum dp_log_level level, const char *file, int line, const char *format, ...)
{
    const bool shown = level <= dp_log_level() && (level != DP_LOG_INFO || log_rank == 0);
    struct dp_log_capture *capture = capture_of(level);
    va_list args;

    if (level == DP_LOG_ERROR && capture == NULL) {
        atomic_fetch_add(&log_errors, 1);
    }
    va_start(args, format);
    if (capture != NULL && (shown || level == DP_LOG_ERROR)) {
        collect(capture, level, format, args);
    } else if (capture == NULL && shown) {
        print(level, file, line, format, args);
    }
    va_end(args);
}

void dp_log_keep_error(const struct dp_log_capture *capture, struct dp_log_error *out)
{
    memset(out, 0, sizeof(*out)); /* it may be sent whole */
    out->rank = log_rank;
    (void)snprintf(out->host, sizeof(out->host), "%s", log_host);
    (void)snprintf(out->text, sizeof(out->text), "%s", dp_log_captured(capture));
}

void dp_log_error_of(const struct dp_log_error *error)
{
    char text[LINE_BYTES];
    const size_t length = log_prefix(text, sizeof(text), DP_LOG_ERROR, error->rank, error->host);

    (void)snprintf(text + length, sizeof(text) - length, "%s", error->text);
    atomic_fetch_add(&log_errors, 1);
    if (DP_LOG_ERROR <= dp_log_level()) {
        write_line(text);
    }
}
