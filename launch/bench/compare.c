#include "launch/bench/compare.h"

#include <math.h>
#include <string.h>

#include "launch/bench/bench.h"

static bool is_whole(const struct dp_bench_row *row)
{
    return row->bucket[0] == '\0' || strcmp(row->bucket, "sum") == 0;
}

static bool of_model(const struct dp_bench_row *row)
{
    return row->bucket[0] != '\0';
}

bool dp_bench_counts(const struct dp_bench_row *row, bool plain)
{
    return dp_bench_plain(row->compressor) == plain && !(plain && row->wrong > 0.0) &&
           is_whole(row);
}

double dp_bench_time(const struct dp_bench_row *row)
{
    return of_model(row) ? row->exposed_us : row->median_us;
}

/* The range in which the row's true time lies. */
static struct dp_stats_range range_of(const struct dp_bench_row *row)
{
    const struct dp_stats_range range = of_model(row) ? row->exposed_range : row->median_range;
    const double time = dp_bench_time(row);

    return isnan(range.low) ? (struct dp_stats_range){time, time} : range;
}

bool dp_bench_less(const struct dp_bench_row *a, const struct dp_bench_row *b)
{
    const struct dp_stats_range mine = range_of(a), theirs = range_of(b);

    if (of_model(a)) {
        return fmax(mine.high, 0.0) < fmax(theirs.low, 0.0);
    }
    return mine.high < theirs.low && dp_bench_time(a) * DP_BENCH_ALIKE < dp_bench_time(b);
}

bool dp_bench_hidden(const struct dp_bench_row *row)
{
    return !(range_of(row).low > 0.0);
}

const struct dp_bench_row *dp_bench_fastest(const struct dp_bench_rows *rows, size_t size,
                                            bool plain)
{
    const struct dp_bench_row *best = NULL;

    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if (dp_bench_counts(row, plain) && (size_t)row->size == size &&
            (best == NULL || dp_bench_time(row) < dp_bench_time(best))) {
            best = row;
        }
    }
    return best;
}

const struct dp_bench_row *dp_bench_same_way(const struct dp_bench_rows *rows,
                                             const struct dp_bench_row *way, size_t size)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *row = &rows->row[i];
        if ((size_t)row->size == size && strcmp(row->strategy, way->strategy) == 0 &&
            strcmp(row->compressor, way->compressor) == 0 && is_whole(row)) {
            return row;
        }
    }
    return NULL;
}

size_t dp_bench_next_size(const struct dp_bench_rows *rows, size_t size)
{
    size_t next = 0;

    for (size_t i = 0; i < rows->count; i++) {
        const size_t other = (size_t)rows->row[i].size;
        if (dp_bench_counts(&rows->row[i], true) && other > size && (next == 0 || other < next)) {
            next = other;
        }
    }
    return next;
}

/* Whether another way without compression is measurably faster at that size. */
static bool is_beaten(const struct dp_bench_rows *rows, const struct dp_bench_row *row)
{
    for (size_t i = 0; i < rows->count; i++) {
        const struct dp_bench_row *other = &rows->row[i];
        if (other->size == row->size && dp_bench_counts(other, true) && dp_bench_less(other, row)) {
            return true;
        }
    }
    return false;
}

const struct dp_bench_row *dp_bench_stretch(const struct dp_bench_rows *rows,
                                            const struct dp_bench_row *way, size_t size)
{
    const struct dp_bench_row *end = NULL;

    for (; size > 0; size = dp_bench_next_size(rows, size)) {
        const struct dp_bench_row *row = dp_bench_same_way(rows, way, size);
        if (row == NULL || !dp_bench_counts(row, true) || is_beaten(rows, row)) {
            break;
        }
        end = row;
    }
    return end;
}
