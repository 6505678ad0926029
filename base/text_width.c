#define _XOPEN_SOURCE 700 /* wcwidth, newlocale */

#include "base/text_width.h"

#include <locale.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "base/text.h"

enum { DOTS = 3, COLUMNS_OF_DOTS = 4, HOST_BYTES = 256 };

static locale_t utf8; /* kept for the life of the process; 0: there is none */

static void find_utf8(void)
{
    utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

/* Columns of one character of UTF-8, as the C library knows it; below 0: it does not. */
static int library_width(const char *piece, size_t bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    mbstate_t state = {0};
    wchar_t character;
    locale_t before;
    int width = -1;

    (void)pthread_once(&once, find_utf8);
    if (utf8 == (locale_t)0) {
        return -1;
    }
    before = uselocale(utf8);
    if (mbrtowc(&character, piece, bytes, &state) == bytes) {
        width = wcwidth(character);
    }
    (void)uselocale(before);
    return width;
}

int dp_text_piece_width(const char *text, size_t *bytes)
{
    char piece[DP_TEXT_PIECE];
    unsigned char first;
    size_t length;
    int width;

    *bytes = dp_text_piece(text, piece);
    length = strlen(piece);
    first = (unsigned char)piece[0];
    if (first < 0x80) {
        return (int)length; /* one of ASCII, or an escape of several */
    }
    width = library_width(piece, length);
    return width >= 0 ? width : first < 0xe1 ? 1 : 2;
}

int dp_text_width(const char *text)
{
    size_t bytes;
    int width = 0;

    for (; *text != '\0'; text += bytes) {
        width += dp_text_piece_width(text, &bytes);
    }
    return width;
}

int dp_text_cut(const char *text, int columns, char *out, size_t size)
{
    const int reserved = columns >= COLUMNS_OF_DOTS && size > DOTS + 1 ? DOTS : 0;
    size_t used = 0, whole = 0; /* `whole`, `kept`: up to where dots fit */
    int width = 0, kept = 0;

    while (*text != '\0') {
        char piece[DP_TEXT_PIECE];
        const size_t bytes = dp_text_piece(text, piece), length = strlen(piece);
        size_t ignored;
        const int more = dp_text_piece_width(text, &ignored);

        if (width + more > columns || used + length >= size) {
            memcpy(out + whole, "...", (size_t)reserved);
            out[whole + (size_t)reserved] = '\0';
            return kept + reserved;
        }
        memcpy(out + used, piece, length);
        text += bytes;
        used += length;
        width += more;
        if (width + reserved <= columns && used + (size_t)reserved < size) {
            whole = used;
            kept = width;
        }
    }
    out[used] = '\0';
    return width;
}

void dp_text_cell(const char *text, int columns, char *out, size_t size)
{
    int width = dp_text_cut(text, columns, out, size);
    size_t used = strlen(out);

    for (; width < columns && used + 1 < size; width++) {
        out[used++] = ' ';
    }
    out[used] = '\0';
}

void dp_text_host_cell(const char *host, int columns, char *out, size_t size)
{
    const size_t label = strcspn(host, ".");
    const bool address = strspn(host, "0123456789") == label;
    char name[HOST_BYTES], end[HOST_BYTES + DOTS + 1];
    const char *at = name;
    int width;

    if (dp_text_width(host) <= columns || columns < COLUMNS_OF_DOTS) {
        dp_text_cell(host, columns, out, size);
        return;
    }
    (void)snprintf(name, sizeof(name), "%.*s", address ? HOST_BYTES : (int)label, host);
    width = dp_text_width(name);
    if (width <= columns) {
        dp_text_cell(name, columns, out, size);
        return;
    }
    while (width > columns - DOTS) {
        size_t bytes;
        width -= dp_text_piece_width(at, &bytes);
        at += bytes;
    }
    (void)snprintf(end, sizeof(end), "...%s", at);
    dp_text_cell(end, columns, out, size);
}
