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
#include <stddef.h>
#include <stdint.h>

enum dp_log_level { DP_LOG_NONE = -1, DP_LOG_ERROR, DP_LOG_WARN, DP_LOG_INFO, DP_LOG_DEBUG };

/* The most detailed level that is printed; at start DP_LOG_INFO. With DP_LOG_NONE errors are only
 * counted: for tests, which provoke many. */
void dp_log_set_level(enum dp_log_level level);
enum dp_log_level dp_log_level(void);

/* Who speaks: rank and host are added to errors and warnings when there are several ranks. The
 * host name is copied. Applies to the whole process. */
void dp_log_set_identity(int rank, int ranks, const char *host);

/* The host name that was set; empty before. */
const char *dp_log_host(void);

/* Counts the errors that this process has logged so far, but for those in a capture. */
int dp_log_errors(void);

/*
 * A capture: what the calling thread logs between its begin and its end is collected, until its
 * caller knows what it means: nothing, since another way is taken; a warning, since the run goes
 * on; or the cause of its end, which one of the ranks reports for all. Captures nest.
 */
enum { DP_LOG_CAPTURE_BYTES = 4096 };

struct dp_log_capture {
    struct dp_log_capture *outer;
    enum dp_log_level level;
    size_t used;
    char lines[DP_LOG_CAPTURE_BYTES]; /* each as its level, its text, a NUL; the oldest give way */
};

/* What becomes of it: nothing, the same lines, or the same with warnings for errors. */
enum dp_log_fate { DP_LOG_DROP, DP_LOG_PRINT, DP_LOG_SOFTEN };

/* Collects lines of `level` and of more serious ones; others are printed as ever. The memory is
 * the caller's, and need not be set; NULL: nothing is collected. On one thread, begins and ends
 * make pairs. */
void dp_log_capture_begin(struct dp_log_capture *capture, enum dp_log_level level);
void dp_log_capture_end(struct dp_log_capture *capture, enum dp_log_fate fate);

/* The last error in it, or empty; also after its end. */
const char *dp_log_captured(const struct dp_log_capture *capture);

/* An error of one rank, for another one to report. */
enum { DP_LOG_ERROR_BYTES = 1024 };

struct dp_log_error {
    int rank;
    char host[64];
    char text[DP_LOG_ERROR_BYTES];
};

/* Sets all of it: the last error in a capture, of this rank. */
void dp_log_keep_error(const struct dp_log_capture *capture, struct dp_log_error *out);

/* Logs it as that rank would. Not in a capture of errors. */
void dp_log_error_of(const struct dp_log_error *error);

void dp_log(enum dp_log_level level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * A terminal to which stderr leads, and on which something stands that has no line end and is drawn
 * again and again: a line of the log takes its place, and it is drawn below.
 *
 *   lock  whether something stands there; then nobody changes it before `draw`
 *   draw  draws it again
 *
 * Both are called by whatever thread logs. The screen is borrowed for ever; NULL: none.
 */
struct dp_log_screen {
    bool (*lock)(void);
    void (*draw)(void);
};

void dp_log_set_screen(const struct dp_log_screen *screen);

/* A line that is no complaint, and is printed at every level: how a run that was asked to has
 * ended. */
void dp_log_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What a noun ends with after a number: "%d rank%s". */
static inline const char *dp_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

#define DP_WARN(...) dp_log(DP_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define DP_INFO(...) dp_log(DP_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define DP_DEBUG(...) dp_log(DP_LOG_DEBUG, __FILE__, __LINE__, __VA_ARGS__)

#endif
