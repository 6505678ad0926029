#include "runtime/data/row_print.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/trace.h"

enum { BEAT_ROWS = 1024 };

/* Not one as seed of the other: a seed makes XXH3 prepare anew for each row. */
static uint32_t print_of(const struct dp_row_prints *r, size_t row)
{
    const int32_t *label = r->labels + row * r->label_words;

    return (uint32_t)(XXH3_64bits(r->images + row * r->sample_bytes, r->sample_bytes) ^
                      XXH3_64bits(label, r->label_words * sizeof(*label)));
}

void dp_row_prints_make(const struct dp_row_prints *r, uint32_t *prints)
{
    for (size_t row = 0; row < r->count; row++) {
        prints[row] = print_of(r, row);
        if (row % BEAT_ROWS == 0) {
            dp_trace_beat();
        }
    }
}

dp_status dp_row_prints_check(const struct dp_row_prints *r, enum dp_set set, size_t first,
                              size_t count)
{
    for (size_t row = first; r->prints != NULL && row < first + count; row++) {
        if (print_of(r, row) != r->prints[row]) {
            return DP_FAIL(DP_ERR_DISAGREE,
                           "sample %zu (counted from 0) of the %s set in memory is not what was "
                           "read: a bit has flipped in the memory of this host; start it again",
                           row, set == DP_SET_TRAIN ? "training" : "test");
        }
    }
    return DP_OK;
}
