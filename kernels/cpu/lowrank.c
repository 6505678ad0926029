/*
 * lowrank.c - the product of two thin matrices, and what it leaves of a third.
 *
 * 12 bytes are moved per element. Both results of LANES columns of ROWS rows stay in registers
 * while the `rank` products are added, so that a loaded element of a thin matrix is used ROWS
 * times. The columns of the thin matrices stay in the first-level cache while rows change. Products
 * and sums are rounded separately: with fused multiply-adds the bits would depend on the processor.
 */
#include <string.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

struct split {
    float *sum, *kept;
    const float *p, *q, *mine;
    size_t cols, rank;
};

enum {
    LANES = 16,
    ROWS = 4,
    TILE = 64,  /* columns whose parts of the thin matrices are in the cache, */
    RANKS = 32, /* for this many of their rows, */
    TALL = 32,  /* while this many rows of the results are computed */
};

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* A copy of at most TILE columns of both thin matrices, RANKS rows from row `first`. In the
 * matrices rows may be a power of two apart, so that few of them fit into the cache at a time. */
struct tile {
    size_t first, rank, at, width;
    float q[RANKS * TILE], mine[RANKS * TILE];
};

static void copy_tile(const struct split *t, struct tile *tile)
{
    for (size_t k = 0; k < tile->rank; k++) {
        const size_t from = (tile->first + k) * t->cols + tile->at;
        memcpy(tile->q + k * TILE, t->q + from, tile->width * sizeof(float));
        memcpy(tile->mine + k * TILE, t->mine + from, tile->width * sizeof(float));
    }
}

/* LANES columns, from column `at` of the tile on, of rows [i, i + rows). */
static inline __attribute__((always_inline)) void
split_lanes(const struct split *t, const struct tile *tile, size_t i, size_t rows, size_t at)
{
    const float *p = t->p + i * t->rank + tile->first;
    const size_t place = i * t->cols + tile->at + at;
    lanes sum[ROWS] = {{0}}, left[ROWS];

    for (size_t r = 0; r < rows; r++) {
        memcpy(&left[r], t->kept + place + r * t->cols, sizeof(lanes));
        if (tile->first > 0) {
            memcpy(&sum[r], t->sum + place + r * t->cols, sizeof(lanes));
        }
    }
    for (size_t k = 0; k < tile->rank; k++) {
        lanes q, mine;
        memcpy(&q, tile->q + k * TILE + at, sizeof(lanes));
        memcpy(&mine, tile->mine + k * TILE + at, sizeof(lanes));
        for (size_t r = 0; r < rows; r++) {
            sum[r] += p[r * t->rank + k] * q;
            left[r] -= p[r * t->rank + k] * mine;
        }
    }
    for (size_t r = 0; r < rows; r++) {
        memcpy(t->sum + place + r * t->cols, &sum[r], sizeof(lanes));
        memcpy(t->kept + place + r * t->cols, &left[r], sizeof(lanes));
    }
}

/* The columns of a tile of rows [begin, end). */
static inline __attribute__((always_inline)) void
split_tile(const struct split *t, const struct tile *tile, size_t begin, size_t end)
{
    size_t i = begin;

    for (; end - i >= ROWS; i += ROWS) {
        for (size_t at = 0; at < tile->width; at += LANES) {
            split_lanes(t, tile, i, ROWS, at);
        }
    }
    for (; i < end; i++) {
        for (size_t at = 0; at < tile->width; at += LANES) {
            split_lanes(t, tile, i, 1, at);
        }
    }
}

/* Columns from `at` on of rows [begin, end), fewer than LANES, one number after the other. */
static void split_rest(const struct split *t, size_t begin, size_t end, size_t at)
{
    for (size_t i = begin; i < end; i++) {
        for (size_t j = at; j < t->cols; j++) {
            float sum = 0, left = t->kept[i * t->cols + j];
            for (size_t k = 0; k < t->rank; k++) {
                sum += t->p[i * t->rank + k] * t->q[k * t->cols + j];
                left -= t->p[i * t->rank + k] * t->mine[k * t->cols + j];
            }
            t->sum[i * t->cols + j] = sum;
            t->kept[i * t->cols + j] = left;
        }
    }
}

DP_HOT static void split_part(void *arg, size_t begin, size_t end)
{
    const struct split *t = arg;
    const size_t whole = t->cols - t->cols % LANES;
    struct tile tile;

    for (size_t first = begin; first < end; first += TALL) {
        const size_t last = dp_smaller(first + TALL, end);
        for (tile.at = 0; tile.at < whole; tile.at += TILE) {
            tile.width = dp_smaller(TILE, whole - tile.at);
            for (tile.first = 0; tile.first < t->rank; tile.first += RANKS) {
                tile.rank = dp_smaller(RANKS, t->rank - tile.first);
                copy_tile(t, &tile);
                split_tile(t, &tile, first, last);
            }
        }
        split_rest(t, first, last, whole);
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
