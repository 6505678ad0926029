#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

static const struct {
    const char *text;
    int code;
} status_rows[] = {
#define X(name, code, text) [DP_##name] = {text, code},
    DP_STATUS_LIST(X)
#undef X
};

enum { STATUS_COUNT = sizeof(status_rows) / sizeof(status_rows[0]) };

const char *dp_status_text(dp_status status)
{
    return (unsigned)status < STATUS_COUNT ? status_rows[status].text : "unknown status";
}

int dp_status_exit(dp_status status)
{
    return (unsigned)status < STATUS_COUNT ? status_rows[status].code : 70;
}

bool dp_status_together(dp_status status)
{
    return status == DP_ERR_CONFIG || status == DP_ERR_USAGE || status == DP_ERR_NOINPUT ||
           status == DP_ERR_DATA || status == DP_ERR_UNAVAILABLE || status == DP_ERR_DIVERGED ||
           status == DP_ERR_DISAGREE || status == DP_STOPPED ||
           status == DP_OK; /* not DP_ERR_WRITE: only rank 0 writes */
}

/* Whether a message was made of a captured one, which ends with ": text". A path may have the same
 * words. */
static bool has_text(const char *message, const char *text)
{
    const size_t length = strlen(text);

    for (const char *at = message; (at = strstr(at, text)) != NULL; at += length) {
        if (at >= message + 2 && strncmp(at - 2, ": ", 2) == 0 &&
            strchr(";:,", at[length]) != NULL) { /* or its end, which strchr() finds, too */
            return true;
        }
    }
    return false;
}

dp_status dp_fail(const char *file, int line, dp_status status, const char *format, ...)
{
    char message[1024];
    va_list args;

    va_start(args, format);
    dp_text_format(message, sizeof(message), format, args);
    va_end(args);
    if (status == DP_ERR_CANCELLED) { /* whoever failed has said why */
        dp_log(DP_LOG_DEBUG, file, line, "%s: %s", message, dp_status_text(status));
    } else if (status == DP_ERR_CONFIG || status == DP_ERR_USAGE || status == DP_ERR_WRITE ||
               status == DP_ERR_NOINPUT || has_text(message, dp_status_text(status))) {
        /* The message is complete without the status, or tells what was captured, which has it. */
        dp_log(DP_LOG_ERROR, file, line, "%s", message);
    } else {
        dp_log(DP_LOG_ERROR, file, line, "%s: %s", message, dp_status_text(status));
    }
    return status;
}

dp_status dp_trail(const char *file, int line, dp_status status)
{
    dp_log(DP_LOG_DEBUG, file, line, "-> %s", dp_status_text(status));
    return status;
}
