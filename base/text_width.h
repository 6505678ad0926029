/*
 * text_width.h - how many columns a text takes on a terminal, and texts in cells of tables.
 *
 * East Asian characters and emoji take two columns, combining marks none, as the C library's
 * wcwidth() says for UTF-8, whatever the locale of the process is. Where it has no UTF-8, a
 * character beyond U+1000 counts as two, rather too many than too few.
 */
#ifndef DP_BASE_TEXT_WIDTH_H
#define DP_BASE_TEXT_WIDTH_H

#include <stddef.h>

/* Columns of the printed form (text.h) of the first character of `text`, which is not empty;
 * `bytes`: out, how many it has in `text`. */
int dp_text_piece_width(const char *text, size_t *bytes);

/* Columns of the printed form of all of it. */
int dp_text_width(const char *text);

/*
 * Copies the printed form of `text`, as far as it takes at most `columns`. Where it is cut, it ends
 * with "..." if `columns` is 4 or more. Returns the columns that it takes.
 *
 *   out  [size]; a text of more bytes is cut, too
 */
int dp_text_cut(const char *text, int columns, char *out, size_t size);

/* The same, with spaces after it up to `columns`. */
void dp_text_cell(const char *text, int columns, char *out, size_t size);

/* The same for a host: those of a cluster begin alike. So of "node-017.cluster.example.org" the
 * domain is left out first, and then the beginning: "...-017". */
void dp_text_host_cell(const char *host, int columns, char *out, size_t size);

#endif
