#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

/* As many bytes as a pipe takes in one piece (PIPE_BUF of Linux), so that lines do not mix. */
enum { LINE_BYTES = 4096 };

static atomic_int log_level = DP_LOG_INFO;
static atomic_int log_errors;
static atomic_int log_muted;
static _Thread_local bool log_softened, log_holding, log_aloud;
static _Thread_local char log_kept[1024]; /* the last error that was muted, or held */
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

const char *dp_log_host(void)
{
    return log_host;
}

int dp_log_errors(void)
{
    return atomic_load(&log_errors);
}

void dp_log_mute(int quiet)
{
    atomic_store(&log_muted, quiet);
    if (quiet > 0) {
        log_kept[0] = '\0';
    }
}

void dp_log_tell(void)
{
    if (log_kept[0] != '\0') {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", log_kept);
    }
    log_kept[0] = '\0';
}

void dp_log_aloud(bool aloud)
{
    log_aloud = aloud;
}

static bool muted(void)
{
    return atomic_load(&log_muted) > 0 && !log_aloud;
}

void dp_log_soften(bool soft)
{
    log_softened = soft;
}

void dp_log_hold(bool hold)
{
    log_holding = hold;
    if (hold) {
        log_kept[0] = '\0';
    }
}

const char *dp_log_held(void)
{
    return log_kept;
}

/* "lockstep: error: " or, with several ranks, "lockstep: error: rank 3 (node7): ". */
static int log_prefix(char *text, size_t size, enum dp_log_level level)
{
    static const char *const names[] = {"error: ", "warning: ", "", "debug: "};

    if (level <= DP_LOG_WARN && log_ranks > 1) {
        return snprintf(text, size, "lockstep: %srank %d (%s): ", names[level], log_rank, log_host);
    }
    return snprintf(text, size, "lockstep: %s", names[level]);
}

void dp_log(enum dp_log_level level, const char *file, int line, const char *format, ...)
{
    char text[LINE_BYTES], printed[LINE_BYTES];
    size_t length;
    va_list args;

    if (level == DP_LOG_ERROR && log_softened) {
        level = DP_LOG_WARN;
    }
    if (level == DP_LOG_ERROR && !log_holding) {
        atomic_fetch_add(&log_errors, 1);
    }
    if (level == DP_LOG_ERROR && (log_holding || muted())) {
        va_start(args, format);
        dp_text_format(log_kept, sizeof(log_kept), format, args);
        va_end(args);
        return;
    }
    if ((int)level > atomic_load(&log_level) || muted() ||
        (level == DP_LOG_INFO && log_rank != 0)) {
        return;
    }
    length = (size_t)log_prefix(text, sizeof(text), level);
    va_start(args, format);
    dp_text_format(text + length, sizeof(text) - length, format, args);
    va_end(args);
    if (dp_log_level() >= DP_LOG_DEBUG) {
        length = strlen(text);
        (void)snprintf(text + length, sizeof(text) - length, " [%s:%d]", file, line);
    }
    length = dp_text_clean(text, printed, sizeof(printed));
    printed[length] = '\n'; /* in place of the NUL */
    if (write(STDERR_FILENO, printed, length + 1) < 0) {
        return; /* nobody is left to be told */
    }
}
