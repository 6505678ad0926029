/*
 * orthogonal.c - orthonormal columns: the same as kernels/ref/lowrank_ref.c, to the bit except for
 * the sign of zeros.
 *
 * A matrix of powersgd has some hundred rows and few columns. Each column is projected out of TILE
 * later columns together. Every lane of a vector adds one product after the other, as the plain
 * loop does, so the order of each sum is the same and all ranks get the same bits.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"

enum { TILE = 8 };

typedef float narrow __attribute__((vector_size(TILE * sizeof(float))));
typedef double wide __attribute__((vector_size(TILE * sizeof(double))));

struct matrix {
    float *y;
    size_t rows, cols;
};

/* sum[j] = column k times column at + j. */
DP_HOT static void multiply(const struct matrix *m, size_t k, size_t at, double *sum)
{
    wide all = {0};

    for (size_t i = 0; i < m->rows; i++) {
        const float *row = m->y + i * m->cols;
        narrow x;
        memcpy(&x, row + at, sizeof(x));
        all += (double)row[k] * __builtin_convertvector(x, wide);
    }
    memcpy(sum, &all, sizeof(all));
}

/* Subtracts along[j] times column k from column at + j; `scale` normalises column k. */
DP_HOT static void take_off(const struct matrix *m, size_t k, double scale, size_t at,
                            const double *along)
{
    wide part;

    memcpy(&part, along, sizeof(part));
    for (size_t i = 0; i < m->rows; i++) {
        float *row = m->y + i * m->cols;
        const double unit = (double)(float)((double)row[k] * scale);
        narrow x;
        memcpy(&x, row + at, sizeof(x));
        x = __builtin_convertvector(__builtin_convertvector(x, wide) - part * unit, narrow);
        memcpy(row + at, &x, sizeof(x));
    }
}

/* Where the tile with column k begins: at k, unless fewer than TILE columns are left. */
static size_t tile_of(const struct matrix *m, size_t k)
{
    return k + TILE <= m->cols ? k : m->cols - TILE;
}

/* along[j] = column k times column at + j; the tile contains column k. If nothing is left of column
 * k, it is first replaced by a random one. */
static void multiply_or_replace(const struct matrix *m, size_t k, size_t at, double *along)
{
    multiply(m, k, at, along);
    if (!(along[k - at] > DP_ORTHO_NOTHING * DP_ORTHO_NOTHING)) {
        dp_ref_random_column(m->y, m->rows, m->cols, k);
        multiply(m, k, at, along);
    }
}

/* Projects column k out of the later columns, and makes its length 1. */
static void settle_and_pass_on(const struct matrix *m, size_t k)
{
    size_t at = tile_of(m, k);
    double along[TILE], scale;

    multiply_or_replace(m, k, at, along);
    scale = 1.0 / sqrt(along[k - at]);
    for (size_t from = k + 1; from < m->cols; from = at + TILE) {
        if (from == at + TILE) {
            at = tile_of(m, from);
            multiply(m, k, at, along);
        }
        for (size_t j = 0; j < TILE; j++) {
            along[j] = at + j < from ? 0 : along[j] * scale;
        }
        take_off(m, k, scale, at, along);
    }
    for (size_t i = 0; i < m->rows; i++) {
        float *x = &m->y[i * m->cols + k];
        *x = (float)((double)*x * scale);
    }
}

dp_status dp_cpu_orthogonalize(struct dp_stream *s, float *y, size_t rows, size_t cols)
{
    const struct matrix m = {y, rows, cols};

    if (cols < TILE) {
        return dp_ref_orthogonalize(s, y, rows, cols);
    }
    dp_ref_unit_columns(y, rows, cols);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t k = 0; k < cols; k++) {
            settle_and_pass_on(&m, k);
        }
    }
    return DP_OK;
}
