#include "runtime/report/paragraph.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "base/text_width.h"

enum { TEXT_BYTES = 4096 };

/* Whether a line may end here: at a space, but not between a number and its percent sign. */
static bool may_break(const char *at)
{
    return at[0] == ' ' && at[1] != '%';
}

size_t dp_paragraph_break(const char *text, int columns)
{
    size_t at = 0, space = 0;
    int used = 0;

    while (text[at] != '\0') {
        size_t bytes;

        used += dp_text_piece_width(text + at, &bytes);
        if (used > columns && !may_break(text + at)) {
            return space > 0 ? space : at > 0 ? at : bytes;
        }
        if (may_break(text + at)) {
            space = at;
        }
        at += bytes;
        if (used > columns) {
            return space;
        }
    }
    return at;
}

void dp_paragraph(FILE *out, int indent, const char *format, ...)
{
    char text[TEXT_BYTES], line[TEXT_BYTES];
    const char *at = text;
    int before = 0;
    va_list args;

    va_start(args, format);
    dp_text_format(text, sizeof(text), format, args);
    va_end(args);
    do {
        const size_t bytes = dp_paragraph_break(at, DP_PARAGRAPH_COLUMNS - before);

        (void)snprintf(line, sizeof(line), "%.*s", (int)bytes, at);
        (void)fprintf(out, "%*s", before, "");
        dp_text_line(out, "%s", line);
        at += bytes;
        at += strspn(at, " ");
        before = indent;
    } while (*at != '\0');
}
