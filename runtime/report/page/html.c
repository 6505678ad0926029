#include "runtime/report/page/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/files/file.h"
#include "base/mem.h"
#include "base/text.h"

enum { FIRST_BYTES = 64 * 1024, PRINTED_BYTES = 1024 };

static bool make_room(struct dp_html *h, size_t bytes)
{
    size_t capacity = h->capacity > 0 ? h->capacity : FIRST_BYTES;
    char *text;

    if (h->failed || h->used + bytes < h->capacity) {
        return !h->failed;
    }
    while (h->used + bytes >= capacity) {
        capacity *= 2;
    }
    text = dp_zalloc(1, capacity);
    if (text == NULL) {
        h->failed = true;
        return false;
    }
    if (h->used > 0) {
        memcpy(text, h->text, h->used);
    }
    dp_free(h->text);
    h->text = text;
    h->capacity = capacity;
    return true;
}

void dp_html_add_bytes(struct dp_html *html, const char *text, size_t bytes)
{
    if (make_room(html, bytes)) {
        memcpy(html->text + html->used, text, bytes);
        html->used += bytes;
        html->text[html->used] = '\0';
    }
}

void dp_html_add(struct dp_html *html, const char *text)
{
    dp_html_add_bytes(html, text, strlen(text));
}

void dp_html_print(struct dp_html *html, const char *format, ...)
{
    char text[PRINTED_BYTES];
    va_list args;

    va_start(args, format);
    dp_text_format(text, sizeof(text), format, args);
    va_end(args);
    dp_html_add(html, text);
}

/* What stands for a character of HTML's own, or NULL. */
static const char *entity(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

static void add_text(struct dp_html *h, const char *text, bool lines)
{
    char piece[DP_TEXT_PIECE];

    while (text != NULL && *text != '\0') {
        const bool is_kept = lines && (*text == '\n' || *text == '\t');
        const char *name = entity(*text);

        if (is_kept) {
            dp_html_add_bytes(h, text++, 1);
            continue;
        }
        text += dp_text_piece(text, piece);
        dp_html_add(h, name != NULL ? name : piece);
    }
}

void dp_html_text(struct dp_html *html, const char *text)
{
    add_text(html, text, false);
}

void dp_html_lines(struct dp_html *html, const char *text)
{
    add_text(html, text, true);
}

dp_status dp_html_save(const struct dp_html *html, const char *path, const char *unless)
{
    if (html->failed) {
        return DP_FAIL(DP_ERR_NOMEM, "%s", path);
    }
    return dp_file_replace_unless(path, html->text, html->used, unless);
}

void dp_html_free(struct dp_html *html)
{
    dp_free(html->text);
    memset(html, 0, sizeof(*html));
}
