/*
 * columns.h - sums over the rows of a matrix, one for each column: batch norm and bias gradients.
 *
 * A matrix of few columns is treated as one with several rows side by side ("folded"), so that
 * inner loops are long for any number of columns. One of many columns is cut into tiles, so that
 * the sums of its columns fit on the stack. Sums are float32 within a block of rows and double over
 * blocks: accurate for any number of rows. Their order depends only on the shape and the number of
 * threads.
 */
#ifndef DP_KERNELS_CPU_COLUMNS_H
#define DP_KERNELS_CPU_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/parallel.h"

enum { DP_TILE = 256, DP_SPLIT = DP_TILE / 2, DP_FOLD_WIDTH = 128, DP_TILE_BLOCK = 16384 };

/* Neighbouring columns of a matrix [rows, columns]. */
struct dp_tile {
    size_t begin;   /* first column */
    size_t columns; /* of this tile; at most DP_TILE */
    size_t fold;    /* rows side by side; 1 unless the tile is the whole matrix */
    size_t width;   /* fold * columns: length of a folded row; at most DP_TILE */
    size_t stride;  /* elements from a folded row to the next */
};

/* The tile that starts at column `begin` of `columns`; the next one starts at begin + .columns. */
struct dp_tile dp_tile_at(size_t begin, size_t columns);

/* For loops over rows: of a part of `rows` rows, returns the number of whole folded rows of tile
 * `width`. *rest is the width of the last, partial row (0: none). */
static inline size_t dp_tile_folded(const struct dp_tile *tile, size_t rows, size_t *rest)
{
    *rest = rows % tile->fold * tile->columns;
    return rows / tile->fold;
}

/* Repeats [columns] values for each folded row: [width]. */
void dp_tile_repeat(const struct dp_tile *tile, float *wide, const float *values);

/*
 * Loops over the columns of rows which are of float32 or, if narrow, of bfloat16: for j below
 * width / dp_halves(), for h below dp_halves(): column dp_lane(), whose sums and factors are at
 * j + h DP_SPLIT. Bfloats go in pairs (kernels/cpu/bfloat.h), so even columns lie apart from odd
 * ones. Where their number is odd the last one follows, at width / 2: dp_last_of().
 */
DP_INLINE size_t dp_halves(bool narrow)
{
    return narrow ? 2 : 1;
}

DP_INLINE float dp_lane(const void *row, size_t j, size_t h, bool narrow)
{
    return narrow ? dp_half_of(((const dp_bfloat_pair *)row)[j], h) : ((const float *)row)[j];
}

/* Sets the columns of step j. */
DP_INLINE void dp_lanes_to(void *row, size_t j, const float values[2], bool narrow)
{
    if (narrow) {
        ((dp_bfloat_pair *)row)[j] = dp_bfloat_pair_of(values);
    } else {
        ((float *)row)[j] = values[0];
    }
}

/* Whether a row of bfloats has a last column without a neighbour. */
DP_INLINE bool dp_has_last(size_t width, bool narrow)
{
    return narrow && width % 2 > 0;
}

DP_INLINE float dp_last_of(const void *row, size_t width)
{
    return dp_of_bfloat(((const uint16_t *)row)[width - 1]);
}

/* From values [width], one for each column, to where loops over pairs have them, and back. */
DP_INLINE void dp_columns_split(float *restrict split, const float *restrict values, size_t width)
{
    for (size_t j = 0; j < width / 2; j++) {
        split[j] = values[2 * j];
        split[DP_SPLIT + j] = values[2 * j + 1];
    }
    if (width % 2 > 0) {
        split[width / 2] = values[width - 1];
    }
}

DP_INLINE void dp_columns_join(float *restrict values, const float *restrict split, size_t width)
{
    for (size_t j = 0; j < width / 2; j++) {
        values[2 * j] = split[j];
        values[2 * j + 1] = split[DP_SPLIT + j];
    }
    if (width % 2 > 0) {
        values[width - 1] = split[width / 2];
    }
}

/* Adds `rows` folded rows of length `width` to sums[0] (and sums[1]); `first` is the offset of the
 * first element in the arrays of `arg`. */
typedef void dp_column_add_fn(const void *arg, float *const sums[2], size_t first, size_t rows,
                              size_t stride, size_t width);

/* A sum over rows. */
struct dp_column_job {
    dp_column_add_fn *add;
    const void *arg;
    size_t sums; /* 1 or 2 */
};

/* totals[i][c] = sum i of column c of the tile over all rows. */
void dp_columns_sum(int threads, const struct dp_tile *tile, size_t rows,
                    const struct dp_column_job *job, double totals[2][DP_TILE]);

/* Computes means, and sums of squared distances from them, [tile->columns] each, in one pass over x
 * [rows, columns], of float32 or, if narrow, of bfloat16. Merges them with the values for `before`
 * earlier rows, which the arrays hold (0: they are not read). */
void dp_columns_moments(int threads, const struct dp_tile *tile, size_t before, size_t rows,
                        const void *x, bool narrow, double *mean, double *squares);

#endif
