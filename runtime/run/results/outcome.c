#include "runtime/run/results/outcome.h"

#include <stdarg.h>
#include <stdio.h>

void dp_outcome_end(struct dp_outcome *outcome, enum dp_run_exit exit, const char *format, ...)
{
    va_list args;

    if (outcome->exit != DP_RUN_FINISHED) {
        return;
    }
    outcome->exit = exit;
    va_start(args, format);
    (void)vsnprintf(outcome->reason, sizeof(outcome->reason), format, args);
    va_end(args);
}

void dp_outcome_replace(struct dp_outcome *outcome, enum dp_run_exit exit, const char *format, ...)
{
    va_list args;

    outcome->exit = exit;
    va_start(args, format);
    (void)vsnprintf(outcome->reason, sizeof(outcome->reason), format, args);
    va_end(args);
}
