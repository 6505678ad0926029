#include "launch/bench/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { FIRST_ROOM = 512 };

/* Makes space for `length` more characters and the NUL. */
static bool grow(struct dp_bench_text *text, size_t length)
{
    const size_t capacity = 2 * text->capacity + length + FIRST_ROOM;
    char *more;

    if (text->used + length < text->capacity) {
        return true;
    }
    more = dp_zalloc(capacity, 1);
    if (more == NULL) {
        text->failed = true;
        return false;
    }
    if (text->used > 0) {
        memcpy(more, text->at, text->used);
    }
    dp_free(text->at);
    text->at = more;
    text->capacity = capacity;
    return true;
}

void dp_bench_say(struct dp_bench_text *text, const char *format, ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0 || !grow(text, (size_t)length)) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text->at + text->used, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->used += (size_t)length;
}

void dp_bench_say_clause(struct dp_bench_text *text)
{
    dp_bench_say(text, "%s", text->used > 0 ? "; " : "");
}

void dp_bench_say_times(struct dp_bench_text *text, double times)
{
    dp_bench_say(text, times < 9.95 ? "%.1fx" : "%.0fx", times);
}

void dp_bench_say_size(struct dp_bench_text *text, double bytes)
{
    static const char *const units[] = {"B", "K", "M", "G", "T"};
    int unit = 0;

    while (unit < 4 && bytes >= 1024.0) {
        bytes /= 1024.0;
        unit++;
    }
    dp_bench_say(text, "%.3g%s", bytes, units[unit]);
}
