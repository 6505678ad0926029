/*
 * text.h - prints texts from outside (names of files, configurations, files, the environment)
 * safely.
 *
 * A terminal obeys control characters: with them a text could erase lines, or add one that looks
 * like ours. So printed text is UTF-8 without any of them, on one line:
 *
 *   a line end, a carriage return, a tab      \n \r \t
 *   other control characters of ASCII         \x1b
 *   those of Unicode (U+0080 to U+009F), characters that change the writing direction,
 *   line separators and the byte order mark   \u202e
 *   bytes that are not UTF-8                  \xff
 */
#ifndef DP_BASE_TEXT_H
#define DP_BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

enum { DP_TEXT_PIECE = 8 };

/* Writes the printed form of the first character of `text`, which is not empty, and a NUL. Returns
 * how many bytes of `text` that character has. */
size_t dp_text_piece(const char *text, char piece[DP_TEXT_PIECE]);

/* Copies the printed form of `text`. If it does not fit into `size` bytes (at least 4), it ends
 * with "..." after a whole character. Returns its length. */
size_t dp_text_clean(const char *text, char *out, size_t size);

/* As vsnprintf(), but a text that does not fit ends with "...". It is not cleaned. */
void dp_text_format(char *out, size_t size, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Prints one line, of at most DP_TEXT_LINE bytes before it is cleaned, and the line end. */
enum { DP_TEXT_LINE = 8192 };
void dp_text_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dp_text_vline(FILE *out, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

#endif
