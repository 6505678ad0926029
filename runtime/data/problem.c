#include "runtime/data/problem.h"

#include <stdarg.h>

#include "base/text.h"

dp_status dp_problem_refuse(struct dp_problem *problem, dp_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    dp_text_format(problem->text, sizeof(problem->text), format, args);
    va_end(args);
    return status;
}
