/*
 * row_print.h - a hash of each row of a data set that lies in memory: a bit that flips there is
 * found when the row is read, before it is used.
 */
#ifndef DP_RUNTIME_DATA_ROW_PRINT_H
#define DP_RUNTIME_DATA_ROW_PRINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/data/source.h"

/* Borrowed. */
struct dp_row_prints {
    const uint8_t *images; /* [count, sample_bytes] */
    const int32_t *labels; /* [count, label_words] */
    size_t count, sample_bytes, label_words;
    const uint32_t *prints; /* [count]; NULL: rows are not checked */
};

/* Makes them: the low half of XXH3-64 of the image, xor that of the label. prints: out, [count]. */
void dp_row_prints_make(const struct dp_row_prints *rows, uint32_t *prints);

/* Compares rows [first, first + count). Errors: DP_ERR_DISAGREE (reported: the row of this set). */
DP_CHECKED dp_status dp_row_prints_check(const struct dp_row_prints *rows, enum dp_set set,
                                         size_t first, size_t count);

#endif
