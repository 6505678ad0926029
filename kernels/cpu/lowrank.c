/*
 * lowrank.c - the product of two thin matrices, and what it leaves of a third.
 *
 * 12 bytes move per element. Both results of TILE columns of a row stay in registers while the
 * `rank` products are added to them, and the columns of the thin matrices in the first-level cache
 * while rows change.
 */
#include <string.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

struct split {
    float *sum, *kept;
    const float *p, *q, *mine;
    size_t cols, rank;
};

enum { TILE = 64, ROWS = 32, RANKS = 32 };

/* TILE columns of both thin matrices, row after row: where they lie rows may be a power of two
 * apart, and few such rows fit into the cache at a time. */
struct tile {
    float q[RANKS * TILE], mine[RANKS * TILE];
};

/* Columns [at, at + width) of row i; q and mine begin there, and their rows are `stride` apart. */
static inline __attribute__((always_inline)) void
split_columns(const struct split *t, size_t i, size_t at, size_t width, const float *restrict q,
              const float *restrict mine, size_t stride)
{
    const float *restrict p = t->p + i * t->rank;
    float *restrict kept = t->kept + i * t->cols + at;
    float sum[TILE] = {0}, left[TILE];

    for (size_t j = 0; j < width; j++) {
        left[j] = kept[j];
    }
    for (size_t k = 0; k < t->rank; k++) {
        for (size_t j = 0; j < width; j++) {
            sum[j] += p[k] * q[k * stride + j];
            left[j] -= p[k] * mine[k * stride + j];
        }
    }
    for (size_t j = 0; j < width; j++) {
        t->sum[i * t->cols + at + j] = sum[j];
        kept[j] = left[j];
    }
}

static void copy_tile(const struct split *t, size_t at, struct tile *tile)
{
    for (size_t k = 0; k < t->rank; k++) {
        memcpy(tile->q + k * TILE, t->q + k * t->cols + at, TILE * sizeof(float));
        memcpy(tile->mine + k * TILE, t->mine + k * t->cols + at, TILE * sizeof(float));
    }
}

/* Rows [begin, end) of the columns from `at` on. */
static inline __attribute__((always_inline)) void split_rows(const struct split *t, size_t begin,
                                                             size_t end, size_t at, size_t width)
{
    struct tile tile;

    if (width == TILE && t->rank <= RANKS) {
        copy_tile(t, at, &tile);
        for (size_t i = begin; i < end; i++) {
            split_columns(t, i, at, TILE, tile.q, tile.mine, TILE);
        }
        return;
    }
    for (size_t i = begin; i < end; i++) {
        split_columns(t, i, at, width, t->q + at, t->mine + at, t->cols);
    }
}

DP_HOT static void split_part(void *arg, size_t begin, size_t end)
{
    const struct split *t = arg;

    for (size_t first = begin; first < end; first += ROWS) {
        const size_t last = end - first < ROWS ? end : first + ROWS;
        for (size_t at = 0; at < t->cols; at += TILE) {
            split_rows(t, first, last, at, t->cols - at < TILE ? t->cols - at : TILE);
        }
    }
}

dp_status dp_cpu_lowrank_split(struct dp_stream *s, float *sum, float *kept, const float *p,
                               const float *q, const float *mine, size_t rows, size_t cols,
                               size_t rank)
{
    struct split t = {sum, kept, p, q, mine, cols, rank};

    dp_parallel_rows(s->threads, rows, cols, 1, split_part, &t);
    return DP_OK;
}
