#include "kernels/cpu/gemm/few_rows.h"

#include <stddef.h>

#include "base/system/crowd.h"
#include "kernels/tensor.h"

#if DP_HAVE_ONEDNN && defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))
#define INLINE TARGET static inline __attribute__((always_inline))

enum {
    LANES = 16,
    FEWEST = 2, /* samples: one is a product with a vector, which oneDNN adds in another order */
    MOST = 15,
    TILE = 4,      /* samples, and weights, of a tile */
    BLOCK = 384,   /* products that are added before the block is added to others */
    COLUMNS = 256, /* whose sums stay in the first cache */
};

INLINE __mmask16 mask_of(size_t count)
{
    return (__mmask16)(count >= LANES ? 0xffffu : (1u << count) - 1u);
}

/* ---- c = a b' ---- */

INLINE float add_lanes(__m512 sums)
{
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* `rows` samples from a, and `weights` rows from b. */
INLINE void dot_tile(const struct dp_matmul *p, size_t row, size_t weight, int rows, int weights)
{
    const float *a = p->a + row * p->lda, *b = p->b + weight * p->ldb;
    __m512 sums[TILE][TILE] = {{_mm512_setzero_ps()}};

    for (size_t k = 0; k < p->k; k += LANES) {
        const __mmask16 mask = mask_of(p->k - k);
        __m512 x[TILE];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            x[i] = _mm512_maskz_loadu_ps(mask, a + (size_t)i * p->lda + k);
        }
#pragma GCC unroll 4
        for (int j = 0; j < weights; j++) {
            const __m512 w = _mm512_maskz_loadu_ps(mask, b + (size_t)j * p->ldb + k);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                sums[i][j] = _mm512_fmadd_ps(x[i], w, sums[i][j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 4
        for (int j = 0; j < weights; j++) {
            p->c[(row + (size_t)i) * p->ldc + weight + (size_t)j] = add_lanes(sums[i][j]);
        }
    }
}

/* A function for each number of samples, so that sums are registers. */
#define DOTS(rows)                                                                       \
    TARGET static void dots_##rows(const struct dp_matmul *p, size_t row, size_t weight) \
    {                                                                                    \
        for (; weight + TILE <= p->n; weight += TILE) {                                  \
            dot_tile(p, row, weight, rows, TILE);                                        \
        }                                                                                \
        for (; weight < p->n; weight++) {                                                \
            dot_tile(p, row, weight, rows, 1);                                           \
        }                                                                                \
    }
DOTS(1)
DOTS(2)
DOTS(3)
DOTS(4)

static void forward(const struct dp_matmul *p)
{
    static void (*const dots[])(const struct dp_matmul *p, size_t row,
                                size_t weight) = {dots_1, dots_2, dots_3, dots_4};

    for (size_t row = 0; row < p->m; row += TILE) {
        dots[dp_smaller(p->m - row, TILE) - 1](p, row, 0);
    }
}

/* ---- c = a b ---- */

/* sums += a few rows of a times `depth` rows of b, of up to COLUMNS columns. */
INLINE void add_rows(const struct dp_matmul *p, size_t k, int depth, size_t column, size_t columns,
                     float sums[MOST][COLUMNS])
{
    const float *b = p->b + k * p->ldb + column;

    for (size_t j = 0; j < columns; j += LANES) {
        const __mmask16 mask = mask_of(columns - j);
        __m512 w[TILE];
#pragma GCC unroll 4
        for (int d = 0; d < depth; d++) {
            w[d] = _mm512_maskz_loadu_ps(mask, b + (size_t)d * p->ldb + j);
        }
        for (size_t i = 0; i < p->m; i++) {
            const float *a = p->a + i * p->lda + k;
            __m512 sum = _mm512_load_ps(&sums[i][j]);
#pragma GCC unroll 4
            for (int d = 0; d < depth; d++) {
                sum = _mm512_fmadd_ps(_mm512_set1_ps(a[d]), w[d], sum);
            }
            _mm512_store_ps(&sums[i][j], sum);
        }
    }
}

/* The products of the next block, of `left`. */
static size_t block_of(size_t left)
{
    return left >= 2 * (size_t)BLOCK ? BLOCK : left > BLOCK ? (left + 1) / 2 : left;
}

TARGET static void back_columns(const struct dp_matmul *p, size_t column, size_t columns)
{
    float sums[MOST][COLUMNS] __attribute__((aligned(64)));

    for (size_t at = 0, depth; at < p->k; at += depth) {
        size_t k = at;
        depth = block_of(p->k - at);
        memset(sums, 0, p->m * sizeof(sums[0]));
        for (; k + TILE <= at + depth; k += TILE) {
            add_rows(p, k, TILE, column, columns, sums);
        }
        for (; k < at + depth; k++) {
            add_rows(p, k, 1, column, columns, sums);
        }
        for (size_t i = 0; i < p->m; i++) {
            float *c = p->c + i * p->ldc + column;
            for (size_t j = 0; j < columns; j++) {
                c[j] = at > 0 ? c[j] + sums[i][j] : sums[i][j];
            }
        }
    }
}

static void back_to_data(const struct dp_matmul *p)
{
    for (size_t column = 0; column < p->n; column += COLUMNS) {
        back_columns(p, column, dp_smaller(p->n - column, COLUMNS));
    }
}

/* ---- c = a' b ---- */

TARGET static void back_to_weights(const struct dp_matmul *p)
{
    for (size_t i = 0; i < p->m; i++) {
        float *c = p->c + i * p->ldc;
        __m512 factors[MOST];
        for (size_t k = 0; k < p->k; k++) {
            factors[k] = _mm512_set1_ps(p->a[k * p->lda + i]);
        }
        for (size_t j = 0; j < p->n; j += LANES) {
            const __mmask16 mask = mask_of(p->n - j);
            __m512 sum = _mm512_setzero_ps();
            for (size_t k = 0; k < p->k; k++) {
                sum = _mm512_fmadd_ps(factors[k],
                                      _mm512_maskz_loadu_ps(mask, p->b + k * p->ldb + j), sum);
            }
            if (p->keep != 0) {
                sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c + j), sum);
            }
            _mm512_mask_storeu_ps(c + j, mask, sum);
        }
    }
}

/* ---- which of them ---- */

bool dp_few_rows(int threads, const struct dp_matmul *p)
{
    const bool weights = p->order_a == DP_TRANSPOSED;
    const size_t rows = weights ? p->k : p->m;

    if (!dp_crowd_is() || threads != 1 || rows < FEWEST || rows > MOST || p->m < 2 || p->n < 2 ||
        p->k < 2 || (weights ? p->order_b == DP_TRANSPOSED : p->keep != 0) ||
        __builtin_cpu_supports("avx512f") == 0 || __builtin_cpu_supports("avx512bw") == 0 ||
        __builtin_cpu_supports("avx512vl") == 0 || __builtin_cpu_supports("avx512dq") == 0 ||
        !dp_matmul_onednn_is_known()) {
        return false;
    }
    if (weights) {
        back_to_weights(p);
    } else if (p->order_b == DP_TRANSPOSED) {
        forward(p);
    } else {
        back_to_data(p);
    }
    return true;
}

#else

bool dp_few_rows(int threads, const struct dp_matmul *product)
{
    (void)threads, (void)product;
    return false;
}

#endif
