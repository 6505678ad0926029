#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char CUT[] = "...";

/* The code point of the UTF-8 character at `text` and its length in bytes; 0: it is not UTF-8. */
static size_t decode(const char *text, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *c = (const unsigned char *)text;
    const size_t bytes = *c < 0x80 ? 1 : *c < 0xc2 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : 4;

    *point = bytes > 1 ? *c & (0xffU >> (bytes + 1)) : *c;
    for (size_t i = 1; i < bytes; i++) {
        if ((c[i] & 0xc0) != 0x80) { /* also the NUL */
            return 0;
        }
        *point = *point << 6 | (c[i] & 0x3f);
    }
    return *point < least[bytes] || *point > 0x10ffff || (*point >= 0xd800 && *point < 0xe000)
               ? 0
               : bytes;
}

/* Whether a terminal would act on it, or it would change how other characters look. */
static bool is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x61c || point == 0x200e ||
           point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
           (point >= 0x2066 && point <= 0x206f) || point == 0xfeff;
}

size_t dp_text_piece(const char *text, char piece[DP_TEXT_PIECE])
{
    static const char named[] = "\n\r\t", names[] = "nrt";
    const char *name = strchr(named, *text);
    uint32_t point;
    const size_t bytes = decode(text, &point);

    if (bytes > 0 && !is_control(point)) {
        memcpy(piece, text, bytes);
        piece[bytes] = '\0';
    } else if (name != NULL) {
        (void)snprintf(piece, DP_TEXT_PIECE, "\\%c", names[name - named]);
    } else if (bytes > 1) {
        (void)snprintf(piece, DP_TEXT_PIECE, "\\u%04x", (unsigned)point & 0xffff);
    } else {
        (void)snprintf(piece, DP_TEXT_PIECE, "\\x%02x", (unsigned char)*text);
    }
    return bytes > 0 ? bytes : 1;
}

size_t dp_text_clean(const char *text, char *out, size_t size)
{
    size_t used = 0, whole = 0; /* `whole`: length up to the last character after which CUT fits */
    char piece[DP_TEXT_PIECE];

    while (*text != '\0') {
        const size_t bytes = dp_text_piece(text, piece), length = strlen(piece);

        if (used + length >= size) {
            memcpy(out + whole, CUT, sizeof(CUT));
            return whole + sizeof(CUT) - 1;
        }
        memcpy(out + used, piece, length);
        text += bytes;
        used += length;
        whole = used + sizeof(CUT) <= size ? used : whole;
    }
    out[used] = '\0';
    return used;
}

void dp_text_format(char *out, size_t size, const char *format, va_list args)
{
    const int length = vsnprintf(out, size, format, args);
    size_t end = size - sizeof(CUT);

    if (length < 0 || (size_t)length < size) {
        return;
    }
    while (end > 0 && ((unsigned char)out[end] & 0xc0) == 0x80) {
        end--; /* never half of a character */
    }
    memcpy(out + end, CUT, sizeof(CUT));
}

void dp_text_vline(FILE *out, const char *format, va_list args)
{
    char text[DP_TEXT_LINE], piece[DP_TEXT_PIECE];

    dp_text_format(text, sizeof(text), format, args);
    for (const char *at = text; *at != '\0';) {
        at += dp_text_piece(at, piece);
        (void)fputs(piece, out);
    }
    (void)fputc('\n', out);
}

void dp_text_line(FILE *out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    dp_text_vline(out, format, args);
    va_end(args);
}
