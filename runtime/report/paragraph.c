#include "runtime/report/paragraph.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"

enum { TEXT_BYTES = 4096 };

/* Columns that a character takes on a terminal: East Asian ones and emoji take two, which is said
 * of too many rather than of too few. */
static int columns_of(const char *piece)
{
    const unsigned char *c = (const unsigned char *)piece;

    return c[0] < 0xe1 ? (int)(c[0] < 0x80 ? strlen(piece) : 1) : 2;
}

/* Whether a line may end here: at a space, but not between a number and its percent sign. */
static bool may_break(const char *at)
{
    return at[0] == ' ' && at[1] != '%';
}

size_t dp_paragraph_break(const char *text, int columns)
{
    char piece[DP_TEXT_PIECE];
    size_t at = 0, space = 0;
    int used = 0;

    while (text[at] != '\0') {
        const size_t bytes = dp_text_piece(text + at, piece);

        used += columns_of(piece);
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
