/*
 * csv_index.h - where the rows of a text file lie: it is read once from front to back, and then any
 * row is found by reading one block. A block is some whole lines, and one place is kept for each.
 *
 * A line end is \n, or \r\n. Empty lines at the end of a file count for nothing; others are
 * refused. So row i is line i + 1, or i + 2 where the first line is a header.
 */
#ifndef DP_RUNTIME_DATA_FORMATS_CSV_INDEX_H
#define DP_RUNTIME_DATA_FORMATS_CSV_INDEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "runtime/data/problem.h"

enum {
    DP_CSV_LINE = 16 << 20, /* longest line, in bytes */
    DP_CSV_BLOCK = 64 << 10 /* a block ends with the first line end after so many bytes */
};

/* Where a block begins. */
struct dp_csv_block {
    size_t at;   /* byte of the file */
    size_t line; /* its first one, counted from 0 */
};

/* Begins with zeros. */
struct dp_csv_index {
    struct dp_csv_block *blocks; /* owned; [count + 1]: the last one is the end */
    size_t count, room;
    size_t lines; /* without empty ones at the end */
    size_t end;   /* where the last of them ends, in bytes */

    /* While the file is read. */
    size_t bytes;      /* so far */
    size_t line_begin; /* of the line that is not complete yet */
    size_t line;       /* its number, empty ones included */
    bool carriage;     /* that line is a single \r so far */
};

/* Takes the next bytes of the file. Errors: DP_ERR_DATA (an empty line before another, or a line
 * that is too long: `problem` names it), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_csv_index_take(struct dp_csv_index *index, const char *bytes, size_t count,
                                       struct dp_problem *problem);

/* Called after the last byte. Errors: as above. */
DP_CHECKED dp_status dp_csv_index_finish(struct dp_csv_index *index, struct dp_problem *problem);

/* The block that has line `line` < lines. */
size_t dp_csv_index_find(const struct dp_csv_index *index, size_t line);

void dp_csv_index_release(struct dp_csv_index *index);

#endif
