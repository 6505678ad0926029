/*
 * lowrank_ref.c - products of thin matrices: the formulas of kernels/ops.h.
 */
#include <math.h>

#include "base/random.h"
#include "kernels/ref/ops_ref.h"

static double dot(const float *y, size_t rows, size_t cols, size_t a, size_t b)
{
    double sum = 0;

    for (size_t i = 0; i < rows; i++) {
        sum += (double)y[i * cols + a] * (double)y[i * cols + b];
    }
    return sum;
}

/* Projects the previous columns, which are orthonormal, out of column k. */
static void take_off(float *y, size_t rows, size_t cols, size_t k)
{
    for (size_t j = 0; j < k; j++) {
        const double along = dot(y, rows, cols, j, k);
        for (size_t i = 0; i < rows; i++) {
            const double rest = (double)y[i * cols + k] - along * (double)y[i * cols + j];
            y[i * cols + k] = (float)rest;
        }
    }
}

/* Twice, so that it is orthogonal to float32's precision. false: nothing is left of the column. */
static bool settle(float *y, size_t rows, size_t cols, size_t k)
{
    for (int turn = 0; turn < 2; turn++) {
        const double before = sqrt(dot(y, rows, cols, k, k));
        double length;
        take_off(y, rows, cols, k);
        length = sqrt(dot(y, rows, cols, k, k));
        if (!(length > DP_ORTHO_NOTHING * before)) {
            return false;
        }
        for (size_t i = 0; i < rows; i++) {
            y[i * cols + k] = (float)((double)y[i * cols + k] / length);
        }
    }
    return true;
}

/* A random column is in the space of fewer than `rows` others with probability 0. */
void dp_ref_random_column(float *y, size_t rows, size_t cols, size_t k)
{
    uint32_t turn = 0;

    do {
        for (size_t i = 0; i < rows; i++) {
            const uint32_t bits = dp_random_u32(k, DP_RANDOM_CODE, turn, i);
            y[i * cols + k] = 2.0f * dp_random_unit(bits) - 1.0f;
        }
        turn++;
    } while (!settle(y, rows, cols, k));
}

void dp_ref_unit_columns(float *y, size_t rows, size_t cols)
{
    for (size_t k = 0; k < cols; k++) {
        const double length = sqrt(dot(y, rows, cols, k, k));
        const bool finite = length > 0 && isfinite(length);

        for (size_t i = 0; i < rows; i++) {
            y[i * cols + k] = finite ? (float)((double)y[i * cols + k] / length) : 0.0f;
        }
    }
}

/* Projects column k out of the later columns, and makes its length 1. */
static void settle_and_pass_on(float *y, size_t rows, size_t cols, size_t k)
{
    double scale;

    if (!(dot(y, rows, cols, k, k) > DP_ORTHO_NOTHING * DP_ORTHO_NOTHING)) {
        dp_ref_random_column(y, rows, cols, k);
    }
    scale = 1.0 / sqrt(dot(y, rows, cols, k, k));
    for (size_t j = k + 1; j < cols; j++) {
        const double along = dot(y, rows, cols, k, j) * scale;
        for (size_t i = 0; i < rows; i++) {
            const float unit = (float)((double)y[i * cols + k] * scale);
            y[i * cols + j] = (float)((double)y[i * cols + j] - along * (double)unit);
        }
    }
    for (size_t i = 0; i < rows; i++) {
        y[i * cols + k] = (float)((double)y[i * cols + k] * scale);
    }
}

dp_status dp_ref_orthogonalize(struct dp_stream *s, float *y, size_t rows, size_t cols)
{
    (void)s;
    dp_ref_unit_columns(y, rows, cols);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t k = 0; k < cols; k++) {
            settle_and_pass_on(y, rows, cols, k);
        }
    }
    return DP_OK;
}

dp_status dp_ref_lowrank_split(struct dp_stream *s, float *sum, float *kept, const float *p,
                               const float *q, const float *mine, size_t rows, size_t cols,
                               size_t rank)
{
    (void)s;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            sum[i * cols + j] = 0;
            for (size_t k = 0; k < rank; k++) {
                sum[i * cols + j] += p[i * rank + k] * q[k * cols + j];
                kept[i * cols + j] -= p[i * rank + k] * mine[k * cols + j];
            }
        }
    }
    return DP_OK;
}
