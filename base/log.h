/*
 * log.h - messages for people, on stderr.
 *
 * error: this run ends. warn: it goes on, worse. info: a few lines a run, rank 0 only. debug: one
 * per object, and call trails. Lower case, no full stop. One message is one line and one write, so
 * that lines of several ranks do not mix. Whatever texts from outside stand in it, it holds no
 * control characters (base/text.h) and at most 4096 bytes; what is longer ends with "...".
 */
#ifndef DP_BASE_LOG_H
#define DP_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum dp_log_level { DP_LOG_ERROR, DP_LOG_WARN, DP_LOG_INFO, DP_LOG_DEBUG };

/* The most detailed level that is printed; at start DP_LOG_INFO. */
void dp_log_set_level(enum dp_log_level level);
enum dp_log_level dp_log_level(void);

/* Who speaks: rank and host are added to errors and warnings when there are several ranks. The
 * host name is copied. Applies to the whole process. */
void dp_log_set_identity(int rank, int ranks, const char *host);

/* The host name that was set; empty before. */
const char *dp_log_host(void);

/* Counts the errors logged so far by this process, so that main() can tell whether the cause of a
 * failing status was already told. */
int dp_log_errors(void);

/* While `quiet` is above 0 errors are counted and not printed: tests provoke many. Of
 * the calling thread the last one since then is kept; dp_log_tell prints it, when all can be heard
 * again. */
void dp_log_mute(int quiet);
void dp_log_tell(void);

/* While true, what the calling thread logs is printed though others are muted: for a thread that
 * tells what no other rank finds alike. */
void dp_log_aloud(bool aloud);

/* While true, errors of the calling thread are logged as warnings and not counted: what fails on it
 * does not end the run. */
void dp_log_soften(bool soft);

/* While true, errors of the calling thread are neither printed nor counted; dp_log_held() is the
 * last one since then, or empty. For a thread beside the one that runs: whoever waits for it knows
 * what its failure means, and when that may be said. */
void dp_log_hold(bool hold);
const char *dp_log_held(void);

void dp_log(enum dp_log_level level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* What a noun ends with behind a number: "%d rank%s". */
static inline const char *dp_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#define DP_WARN(...) dp_log(DP_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define DP_INFO(...) dp_log(DP_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define DP_DEBUG(...) dp_log(DP_LOG_DEBUG, __FILE__, __LINE__, __VA_ARGS__)

#endif
