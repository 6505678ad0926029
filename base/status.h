/*
 * status.h - the result of every function that can fail.
 *
 * A failure is reported once, by the function that decides which error it is (DP_FAIL); callers
 * pass it on with DP_TRY. main() turns the status into the exit code of the process.
 */
#ifndef DP_BASE_STATUS_H
#define DP_BASE_STATUS_H

#include <stdbool.h>

#define DP_CHECKED __attribute__((warn_unused_result)) /* on every prototype that can fail */

/* Every status with its exit code and text, once: the enum, dp_status_text() and dp_status_exit()
 * are generated from this list. Exit codes follow sysexits.h where it has one. */
#define DP_STATUS_LIST(X)                                 \
    X(OK, 0, "success")                                   \
    X(ERR_USAGE, 64, "wrong usage")                       \
    X(ERR_DATA, 65, "bad data")                           \
    X(ERR_NOINPUT, 66, "input is missing")                \
    X(ERR_UNAVAILABLE, 69, "not available here")          \
    X(ERR_INTERNAL, 70, "internal error")                 \
    X(ERR_ARG, 70, "invalid argument")                    \
    X(ERR_NOMEM, 69, "out of memory")                     \
    X(ERR_MPI, 70, "MPI call failed")                     \
    X(ERR_CUDA, 70, "CUDA call failed")                   \
    X(ERR_DISAGREE, 70, "ranks disagree")                 \
    X(ERR_DAMAGED, 70, "damaged on the way")              \
    X(ERR_CANCELLED, 70, "given up: another part failed") \
    X(ERR_WRITE, 74, "cannot write")                      \
    X(STOPPED, 75, "checkpointed and stopped on request") \
    X(ERR_HUNG, 76, "a rank did not arrive")              \
    X(ERR_DIVERGED, 77, "training diverged")              \
    X(ERR_CONFIG, 78, "configuration error")

typedef enum dp_status {
#define X(name, code, text) DP_##name,
    DP_STATUS_LIST(X)
#undef X
} dp_status;

/* A static text for people, such as "out of memory". */
const char *dp_status_text(dp_status status);

/* The exit code of a process that ends with `status`. */
int dp_status_exit(dp_status status);

/* Whether every rank reaches this status by itself, since all decide it from the same data:
 * success, a request of the user, the result of training. Any other status may be one rank's alone,
 * which must then end the others. */
bool dp_status_together(dp_status status);

/* Logs "message: text of status" as an error (with file and line at debug level). The text is left
 * out for the user's mistakes (usage, configuration), for what is missing, and for failed writes.
 * What was given up since another part failed is no error of its own: it is logged at debug level.
 * Returns `status`, which must not be DP_OK. */
dp_status dp_fail(const char *file, int line, dp_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Logs "file:line" at debug level, so that failures leave a call trail. Returns `status`. */
dp_status dp_trail(const char *file, int line, dp_status status);

/* Reports a failure where it is first seen: return DP_FAIL(DP_ERR_ARG, "cols is %d", cols). The
 * value is `status` itself, so that compilers and analysers see that it is not DP_OK. */
#define DP_FAIL(status, ...) (dp_fail(__FILE__, __LINE__, (status), __VA_ARGS__), (status))

/* Returns from the calling function if `expr` is not DP_OK. The `if` has no braces because a block
 * would count as nesting in every function that uses this. */
#define DP_TRY(expr)                                               \
    do {                                                           \
        const dp_status dp_try_ = (expr);                          \
        if (dp_try_ != DP_OK)                                      \
            return dp_trail(__FILE__, __LINE__, dp_try_), dp_try_; \
    } while (0)

/* As DP_TRY, for functions that must undo something first: sets `status`, goes to `label`. */
#define DP_TRY_GOTO(expr, status, label)            \
    do {                                            \
        (status) = (expr);                          \
        if ((status) != DP_OK) {                    \
            dp_trail(__FILE__, __LINE__, (status)); \
            goto label;                             \
        }                                           \
    } while (0)

#endif
