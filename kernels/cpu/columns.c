#include "kernels/cpu/columns.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/mixed.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/device.h"

struct dp_tile dp_tile_at(size_t begin, size_t columns)
{
    struct dp_tile tile = {.begin = begin, .columns = columns - begin, .fold = 1};

    assert(begin < columns);
    if (columns <= DP_FOLD_WIDTH / 2) {
        tile.fold = DP_FOLD_WIDTH / columns;
    } else if (tile.columns > DP_TILE) {
        tile.columns = DP_TILE;
    }
    tile.width = tile.fold * tile.columns;
    tile.stride = tile.fold * columns;
    return tile;
}

void dp_tile_repeat(const struct dp_tile *tile, float *wide, const float *values)
{
    for (size_t f = 0; f < tile->fold; f++) {
        memcpy(wide + f * tile->columns, values, tile->columns * sizeof(*wide));
    }
}

/* columns[c] += the sums of the folded columns. */
DP_HOT static void fold_sums(double *restrict columns, const float *restrict wide, size_t fold,
                             size_t count)
{
    for (size_t f = 0; f < fold; f++) {
        for (size_t c = 0; c < count; c++) {
            columns[c] += (double)wide[f * count + c];
        }
    }
}

/* Rows of a block: as many folded rows as DP_TILE_BLOCK elements hold, at least one. */
static size_t block_rows(const struct dp_tile *tile)
{
    const size_t folded = DP_TILE_BLOCK / tile->width;

    return (folded > 0 ? folded : 1) * tile->fold;
}

static int sum_parts(int threads, const struct dp_tile *tile, size_t rows)
{
    const int most = threads < DP_PARALLEL_SUMS ? threads : DP_PARALLEL_SUMS;

    return rows * tile->columns < DP_PARALLEL_MIN ? 1 : most;
}

/* ---- plain sums ---- */

struct summing {
    const struct dp_tile *tile;
    const struct dp_column_job *job;
    size_t rows;
    double sums[DP_PARALLEL_SUMS][2][DP_TILE];
};

static void add_block(const struct summing *t, size_t begin, size_t rows, double sums[2][DP_TILE])
{
    const struct dp_tile *tile = t->tile;
    const size_t first = begin / tile->fold * tile->stride + tile->begin;
    _Alignas(DP_MEM_ALIGN) float wide[2][DP_TILE];
    float *const both[2] = {wide[0], wide[1]};
    size_t rest;
    const size_t folded = dp_tile_folded(tile, rows, &rest);

    memset(wide[0], 0, tile->width * sizeof(float));
    memset(wide[1], 0, tile->width * sizeof(float));
    t->job->add(t->job->arg, both, first, folded, tile->stride, tile->width);
    if (rest > 0) {
        t->job->add(t->job->arg, both, first + folded * tile->stride, 1, tile->stride, rest);
    }
    for (size_t i = 0; i < t->job->sums; i++) {
        fold_sums(sums[i], wide[i], tile->fold, tile->columns);
    }
}

static void sum_part(void *arg, int part, int parts)
{
    struct summing *t = arg;
    const size_t step = block_rows(t->tile);
    double sums[2][DP_TILE];
    size_t begin, end;

    memset(sums, 0, sizeof(sums));
    dp_part(t->rows, step, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row += step) {
        add_block(t, row, end - row < step ? end - row : step, sums);
    }
    memcpy(t->sums[part], sums, sizeof(sums));
}

void dp_columns_sum(int threads, const struct dp_tile *tile, size_t rows,
                    const struct dp_column_job *job, double totals[2][DP_TILE])
{
    const int parts = sum_parts(threads, tile, rows);
    struct summing t;

    t.tile = tile;
    t.job = job;
    t.rows = rows;
    dp_parallel_parts(parts, sum_part, &t);
    memcpy(totals, t.sums[0], sizeof(t.sums[0]));
    for (int part = 1; part < parts; part++) {
        for (size_t c = 0; c < tile->columns; c++) {
            totals[0][c] += t.sums[part][0][c];
            totals[1][c] += t.sums[part][1][c];
        }
    }
}

/*
 * ---- moments ----
 *
 * One pass: for a block of rows compute d = x - s, where s is near the mean, and sum d and d
 * squared. The block's mean is s + sum(d) / n, its squares are sum(d^2) - sum(d)^2 / n. Blocks are
 * merged by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
 * sample variances", Stanford STAN-CS-79-773 (1979). s is the mean of the previous rows (for the
 * first block: its own mean, from an extra pass). So cancellation costs a block only a few
 * roundings of its own share in the merged sum, for any data.
 */

struct moments {
    double rows;
    double mean[DP_TILE], squares[DP_TILE];
};

struct measuring {
    const struct dp_tile *tile;
    const void *x;
    bool narrow; /* x is of bfloat16 */
    size_t rows;
    const double *near; /* an initial mean; NULL: unknown */
    struct moments parts[DP_PARALLEL_SUMS];
};

/* Four rows at a time, so that sums are loaded and stored once for four rows. */
DP_INLINE void add_four(float *restrict sum, float *restrict square, const float d[4])
{
    *sum += (d[0] + d[1]) + (d[2] + d[3]);
    *square += (d[0] * d[0] + d[1] * d[1]) + (d[2] * d[2] + d[3] * d[3]);
}

DP_INLINE void add_one(float *restrict sum, float *restrict square, float d)
{
    *sum += d;
    *square += d * d;
}

/* near, sum, square: [width] where loops over lanes have them. */
DP_INLINE void add_moments(const void *x, const float *restrict near, float *restrict sum,
                           float *restrict square, size_t rows, size_t stride, size_t width,
                           bool narrow)
{
    size_t r = 0;

    for (; r + 4 <= rows; r += 4) {
        const void *a = dp_element(x, r * stride, narrow), *b = dp_element(a, stride, narrow);
        const void *c = dp_element(b, stride, narrow), *d = dp_element(c, stride, narrow);
        DP_INDEPENDENT
        for (size_t j = 0; j < width / dp_halves(narrow); j++) {
            for (size_t h = 0; h < dp_halves(narrow); h++) {
                const size_t k = j + h * DP_SPLIT;
                const float away[] = {
                    dp_lane(a, j, h, narrow) - near[k], dp_lane(b, j, h, narrow) - near[k],
                    dp_lane(c, j, h, narrow) - near[k], dp_lane(d, j, h, narrow) - near[k]};
                add_four(sum + k, square + k, away);
            }
        }
        if (dp_has_last(width, narrow)) {
            const size_t k = width / 2;
            const float away[] = {dp_last_of(a, width) - near[k], dp_last_of(b, width) - near[k],
                                  dp_last_of(c, width) - near[k], dp_last_of(d, width) - near[k]};
            add_four(sum + k, square + k, away);
        }
    }
    for (; r < rows; r++) {
        const void *a = dp_element(x, r * stride, narrow);
        DP_INDEPENDENT
        for (size_t j = 0; j < width / dp_halves(narrow); j++) {
            for (size_t h = 0; h < dp_halves(narrow); h++) {
                const size_t k = j + h * DP_SPLIT;
                add_one(sum + k, square + k, dp_lane(a, j, h, narrow) - near[k]);
            }
        }
        if (dp_has_last(width, narrow)) {
            const size_t k = width / 2;
            add_one(sum + k, square + k, dp_last_of(a, width) - near[k]);
        }
    }
}

typedef void moments_fn(const void *x, const float *restrict near, float *restrict sum,
                        float *restrict square, size_t rows, size_t stride, size_t width);

DP_HOT static void add_moments_float(const void *x, const float *restrict near, float *restrict sum,
                                     float *restrict square, size_t rows, size_t stride,
                                     size_t width)
{
    add_moments(x, near, sum, square, rows, stride, width, false);
}

DP_HOT static void add_moments_bfloat(const void *x, const float *restrict near,
                                      float *restrict sum, float *restrict square, size_t rows,
                                      size_t stride, size_t width)
{
    _Alignas(DP_MEM_ALIGN) float split[3][DP_TILE];

    dp_columns_split(split[0], near, width);
    dp_columns_split(split[1], sum, width);
    dp_columns_split(split[2], square, width);
    add_moments(x, split[0], split[1], split[2], rows, stride, width, true);
    dp_columns_join(sum, split[1], width);
    dp_columns_join(square, split[2], width);
}

/* Merges the block of `rows` rows at x into m. */
static void merge_block(const struct dp_tile *tile, struct moments *m, const void *x, bool narrow,
                        size_t rows)
{
    _Alignas(DP_MEM_ALIGN) float near_wide[DP_TILE] = {0};
    _Alignas(DP_MEM_ALIGN) float sum[DP_TILE] = {0};
    _Alignas(DP_MEM_ALIGN) float square[DP_TILE] = {0};
    float near[DP_TILE] = {0};
    double sums[DP_TILE] = {0}, squares[DP_TILE] = {0};
    const double n = (double)rows, all = m->rows + n;
    size_t rest;
    const size_t folded = dp_tile_folded(tile, rows, &rest);
    moments_fn *const add = narrow ? add_moments_bfloat : add_moments_float;

    for (size_t c = 0; c < tile->columns; c++) {
        near[c] = (float)m->mean[c];
    }
    dp_tile_repeat(tile, near_wide, near);
    add(x, near_wide, sum, square, folded, tile->stride, tile->width);
    if (rest > 0) {
        add(dp_element(x, folded * tile->stride, narrow), near_wide, sum, square, 1, tile->stride,
            rest);
    }
    fold_sums(sums, sum, tile->fold, tile->columns);
    fold_sums(squares, square, tile->fold, tile->columns);
    for (size_t c = 0; c < tile->columns; c++) {
        const double shift = sums[c] / n;
        const double delta = (double)near[c] + shift - m->mean[c];
        const double own = squares[c] - sums[c] * shift;
        m->mean[c] += delta * (n / all);
        m->squares[c] += (own > 0 ? own : 0) + delta * delta * (m->rows * n / all);
    }
    m->rows = all;
}

static void measure_part(void *arg, int part, int parts)
{
    struct measuring *t = arg;
    const struct dp_tile *tile = t->tile;
    const size_t step = block_rows(tile);
    struct moments m;
    size_t begin, end;

    memset(&m, 0, sizeof(m));
    if (t->near != NULL) {
        memcpy(m.mean, t->near, tile->columns * sizeof(*t->near));
    }
    dp_part(t->rows, step, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row += step) {
        const void *x = dp_element(t->x, row / tile->fold * tile->stride + tile->begin, t->narrow);
        const size_t rows = end - row < step ? end - row : step;
        if (row == begin && t->near == NULL) { /* only to get a value near the mean */
            merge_block(tile, &m, x, t->narrow, rows);
            memset(m.squares, 0, sizeof(m.squares));
            m.rows = 0;
        }
        merge_block(tile, &m, x, t->narrow, rows);
    }
    t->parts[part] = m;
}

/* Merges other into m. */
static void merge_moments(struct moments *m, const struct moments *other, size_t columns)
{
    const double all = m->rows + other->rows;

    for (size_t c = 0; c < columns && other->rows > 0; c++) {
        const double delta = other->mean[c] - m->mean[c];
        m->mean[c] += delta * (other->rows / all);
        m->squares[c] += other->squares[c] + delta * delta * (m->rows * other->rows / all);
    }
    m->rows = all;
}

void dp_columns_moments(int threads, const struct dp_tile *tile, size_t before, size_t rows,
                        const void *x, bool narrow, double *mean, double *squares)
{
    const int parts = sum_parts(threads, tile, rows);
    struct measuring t;
    struct moments m = {.rows = (double)before};

    t.tile = tile;
    t.x = x;
    t.narrow = narrow;
    t.rows = rows;
    t.near = before > 0 ? mean : NULL;
    dp_parallel_parts(parts, measure_part, &t);
    if (before > 0) {
        memcpy(m.mean, mean, tile->columns * sizeof(*mean));
        memcpy(m.squares, squares, tile->columns * sizeof(*squares));
    }
    for (int part = 0; part < parts; part++) {
        merge_moments(&m, &t.parts[part], tile->columns);
    }
    memcpy(mean, m.mean, tile->columns * sizeof(*mean));
    memcpy(squares, m.squares, tile->columns * sizeof(*squares));
}

/* ---- column sums of a matrix: the gradient of a bias ---- */

DP_INLINE float sum_eight(const float a[8])
{
    return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
}

DP_INLINE void add_eight_rows(const void *x, float *restrict sum, size_t stride, size_t width,
                              bool narrow)
{
    DP_INDEPENDENT
    for (size_t j = 0; j < width / dp_halves(narrow); j++) {
        for (size_t h = 0; h < dp_halves(narrow); h++) {
            float values[8];
            for (size_t i = 0; i < 8; i++) {
                values[i] = dp_lane(dp_element(x, i * stride, narrow), j, h, narrow);
            }
            sum[j + h * DP_SPLIT] += sum_eight(values);
        }
    }
    if (dp_has_last(width, narrow)) {
        float values[8];
        for (size_t i = 0; i < 8; i++) {
            values[i] = dp_last_of(dp_element(x, i * stride, narrow), width);
        }
        sum[width / 2] += sum_eight(values);
    }
}

DP_INLINE void add_rows(const void *arg, float *restrict sum, size_t first, size_t rows,
                        size_t stride, size_t width, bool narrow)
{
    size_t r = 0;

    for (; r + 8 <= rows; r += 8) {
        add_eight_rows(dp_element(arg, first + r * stride, narrow), sum, stride, width, narrow);
    }
    for (; r < rows; r++) {
        const void *a = dp_element(arg, first + r * stride, narrow);
        DP_INDEPENDENT
        for (size_t j = 0; j < width / dp_halves(narrow); j++) {
            for (size_t h = 0; h < dp_halves(narrow); h++) {
                sum[j + h * DP_SPLIT] += dp_lane(a, j, h, narrow);
            }
        }
        if (dp_has_last(width, narrow)) {
            sum[width / 2] += dp_last_of(a, width);
        }
    }
}

DP_HOT static void add_rows_float(const void *arg, float *const sums[2], size_t first, size_t rows,
                                  size_t stride, size_t width)
{
    add_rows(arg, sums[0], first, rows, stride, width, false);
}

DP_HOT static void add_rows_bfloat(const void *arg, float *const sums[2], size_t first, size_t rows,
                                   size_t stride, size_t width)
{
    _Alignas(DP_MEM_ALIGN) float split[DP_TILE];

    dp_columns_split(split, sums[0], width);
    add_rows(arg, split, first, rows, stride, width, true);
    dp_columns_join(sums[0], split, width);
}

static void sum_rows(struct dp_stream *s, float *db, const struct dp_column_job *job, size_t rows,
                     size_t cols, bool keep)
{
    double totals[2][DP_TILE];

    for (size_t begin = 0; begin < cols;) {
        const struct dp_tile tile = dp_tile_at(begin, cols);
        dp_columns_sum(s->threads, &tile, rows, job, totals);
        for (size_t c = 0; c < tile.columns; c++) {
            db[begin + c] = (float)(totals[0][c] + (keep ? (double)db[begin + c] : 0));
        }
        begin += tile.columns;
    }
}

dp_status dp_cpu_sum_rows(struct dp_stream *s, float *db, const void *dy, size_t rows, size_t cols,
                          float keep)
{
    const struct dp_column_job job = {.add = add_rows_float, .arg = dy, .sums = 1};

    sum_rows(s, db, &job, rows, cols, keep != 0);
    return DP_OK;
}

dp_status dp_cpu_bfloat_sum_rows(struct dp_stream *s, float *db, const void *dy, size_t rows,
                                 size_t cols, float keep)
{
    const struct dp_column_job job = {.add = add_rows_bfloat, .arg = dy, .sums = 1};

    sum_rows(s, db, &job, rows, cols, keep != 0);
    return DP_OK;
}
