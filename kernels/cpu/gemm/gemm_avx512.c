#include "kernels/cpu/gemm/code.h"

#if DP_GEMM_CODE

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")))
#define INLINE TARGET static inline __attribute__((always_inline))

/* Keeps an address in a register: GCC would compute all of them anew from one. */
#define HIDE(pointer) __asm__("" : "+r"(pointer))

/* sum += a b in place: GCC would move sums from register to register, and some to memory. */
#define ADD_PRODUCT(sum, a, b) __asm__("vfmadd231ps %1, %2, %0" : "+v"(sum) : "v"(b), "v"(a))

enum {
    LANES = DP_GEMM_LANES,
    WIDTH = DP_GEMM_WIDTH,
    ROWS = DP_GEMM_ROWS,
    CHUNK = 16, /* steps between prefetches */
    UNROLL = 4, /* of them */
    GROUP = 3,  /* rows that share an address: base, base + stride, base + 2 stride */
};

/* What is fetched into the second cache while a tile is computed: after each chunk of steps `rows`
 * lines, or pairs of lines, `row` bytes apart. */
struct ahead {
    const char *at;
    size_t chunk, row;
    size_t rows;
};

/* c (+)= a b: `rows` rows of a, and 32 columns of b or fewer. */
struct tile {
    size_t depth;
    const float *a; /* rows lda apart; or, of a' b, [depth, LANES] */
    size_t lda;
    const float *b; /* [depth, WIDTH] */
    float *c;
    size_t ldc;
    size_t columns; /* of c that are stored */
    bool keep;      /* adds to c */
    const float *bias;
    bool relu;
    struct ahead ahead;
};

enum way { BY_SAMPLES, BACK, BACK_TO_WEIGHTS };

INLINE __mmask16 mask_of(size_t count)
{
    return (__mmask16)(count >= LANES ? 0xffffu : (1u << count) - 1u);
}

/* Transposes 16 x 16 numbers. */
INLINE void transpose(__m512 r[LANES])
{
    __m512 t[LANES];

#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 4) {
        const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
        const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* ---- sums of a tile ---- */

/* sums += a step of a b. base: addresses of each third row of a, or one address. */
INLINE void step(__m512 sums[ROWS][2], int rows, int vectors, enum way way,
                 const char *const base[], size_t stride, const float *b, int at)
{
    __m512 columns[2];

#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        columns[v] = _mm512_loadu_ps(b + (size_t)(at * WIDTH + v * LANES));
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const char *from =
            way == BACK_TO_WEIGHTS
                ? base[0] + sizeof(float) * (size_t)(at * LANES + i)
                : base[i / GROUP] + (size_t)(i % GROUP) * stride + sizeof(float) * (size_t)at;
        const __m512 one = _mm512_set1_ps(*(const float *)(const void *)from);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            ADD_PRODUCT(sums[i][v], one, columns[v]);
        }
    }
}

INLINE void fetch(struct ahead *ahead, enum way way)
{
    const char *at = ahead->at;

    for (size_t i = 0; i < ahead->rows; i++, at += ahead->row) {
        _mm_prefetch(at, _MM_HINT_T1);
        if (way != BY_SAMPLES) {
            _mm_prefetch(at + LANES * sizeof(float), _MM_HINT_T1);
        }
    }
    ahead->at += ahead->chunk;
}

INLINE void add_products(const struct tile *t, __m512 sums[ROWS][2], int rows, int vectors,
                         enum way way)
{
    const int bases = way == BACK_TO_WEIGHTS ? 1 : (rows + GROUP - 1) / GROUP;
    const size_t stride = t->lda * sizeof(float);
    const size_t advance = (way == BACK_TO_WEIGHTS ? LANES : 1) * sizeof(float);
    const char *const a = (const char *)t->a;
    const char *base[ROWS / GROUP] = {a, a, a, a};
    const float *b = t->b;
    struct ahead ahead = t->ahead;

    for (int i = 0; i < bases; i++) {
        base[i] += (size_t)(i * GROUP) * stride;
    }
    for (size_t k = 0; k + UNROLL <= t->depth; k += UNROLL) {
        if (k % CHUNK == 0) {
            fetch(&ahead, way);
        }
        HIDE(b);
#pragma GCC unroll 4
        for (int i = 0; i < bases; i++) {
            HIDE(base[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < UNROLL; i++) {
            step(sums, rows, vectors, way, base, stride, b, i);
        }
        b += (size_t)(UNROLL * WIDTH);
#pragma GCC unroll 4
        for (int i = 0; i < bases; i++) {
            base[i] += UNROLL * advance;
        }
    }
    for (size_t k = t->depth % UNROLL; k > 0; k--) {
        step(sums, rows, vectors, way, base, stride, b, 0);
        b += WIDTH;
#pragma GCC unroll 4
        for (int i = 0; i < bases; i++) {
            base[i] += advance;
        }
    }
}

/* ---- storing a tile ---- */

INLINE void store(const struct tile *t, __m512 sums[ROWS][2], int rows, int vectors)
{
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        const __mmask16 mask = mask_of(t->columns - (size_t)(v * LANES));
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            float *c = t->c + (size_t)i * t->ldc + (size_t)(v * LANES);
            const __m512 sum =
                t->keep ? _mm512_add_ps(sums[i][v], _mm512_maskz_loadu_ps(mask, c)) : sums[i][v];
            _mm512_mask_storeu_ps(c, mask, sum);
        }
    }
}

/* Stores the transpose: rows of the tile are columns of c. */
INLINE void store_transposed(const struct tile *t, __m512 sums[ROWS][2], int rows, int vectors)
{
    const __mmask16 mask = mask_of((size_t)rows);
    const __m512 zero = _mm512_setzero_ps();
    const __m512 bias = t->bias == NULL ? zero : _mm512_maskz_loadu_ps(mask, t->bias);

#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        __m512 transposed[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) {
            transposed[i] = i < rows ? sums[i][v] : zero;
        }
        transpose(transposed);
#pragma GCC unroll 16
        for (size_t i = 0; i < LANES; i++) {
            const size_t sample = (size_t)v * LANES + i;
            float *c = t->c + sample * t->ldc;
            __m512 sum = transposed[i];
            if (sample >= t->columns) {
                break;
            }
            sum = t->keep ? _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, c)) : sum;
            sum = t->bias != NULL ? _mm512_add_ps(sum, bias) : sum;
            /* As `sum < 0 ? 0 : sum`: the second operand if it is no number. */
            sum = t->relu ? _mm512_max_ps(zero, sum) : sum;
            _mm512_mask_storeu_ps(c, mask, sum);
        }
    }
}

INLINE void run_tile(const struct tile *t, int rows, int vectors, enum way way)
{
    __m512 sums[ROWS][2];

#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    }
    add_products(t, sums, rows, vectors, way);
    if (way == BY_SAMPLES) {
        store_transposed(t, sums, rows, vectors);
    } else {
        store(t, sums, rows, vectors);
    }
}

enum { HEIGHTS = 5 };
static const size_t heights[HEIGHTS] = {ROWS, 8, 4, 2, 1};

/* A function for each number of rows and vectors, so that sums are registers. */
#define TILE(rows, vectors, way)                                             \
    TARGET static void tile_##rows##_##vectors##_##way(const struct tile *t) \
    {                                                                        \
        run_tile(t, rows, vectors, way);                                     \
    }
#define TILES(way)                                                         \
    TILE(12, 1, way)                                                       \
    TILE(12, 2, way)                                                       \
    TILE(8, 1, way)                                                        \
    TILE(8, 2, way)                                                        \
    TILE(4, 1, way)                                                        \
    TILE(4, 2, way)                                                        \
    TILE(2, 1, way)                                                        \
    TILE(2, 2, way)                                                        \
    TILE(1, 1, way)                                                        \
    TILE(1, 2, way)                                                        \
    static void (*const tiles_##way[HEIGHTS][2])(const struct tile *t) = { \
        {tile_12_1_##way, tile_12_2_##way},                                \
        {tile_8_1_##way, tile_8_2_##way},                                  \
        {tile_4_1_##way, tile_4_2_##way},                                  \
        {tile_2_1_##way, tile_2_2_##way},                                  \
        {tile_1_1_##way, tile_1_2_##way}}
TILES(BY_SAMPLES);
TILES(BACK);
TILES(BACK_TO_WEIGHTS);

/* Runs a tile of at most `rows` rows; returns how many it had. */
static size_t run(const struct tile *t, size_t rows, enum way way)
{
    size_t i = 0;

    while (heights[i] > rows) {
        i++;
    }
    (way == BY_SAMPLES ? tiles_BY_SAMPLES
     : way == BACK     ? tiles_BACK
                       : tiles_BACK_TO_WEIGHTS)[i][t->columns > LANES](t);
    return heights[i];
}

/* ---- c = a b': a is transposed into panels of 32 samples ---- */

static size_t panels(size_t columns)
{
    return (columns + WIDTH - 1) / WIDTH;
}

/* Inputs [k, k + 16) of samples first to first + 15, zeros where there are none. */
TARGET static void pack_square(const struct dp_gemm_block *b, size_t first, size_t k)
{
    const struct dp_matmul *p = &b->call->product;
    const float *a = p->a + (b->row + first) * p->lda + b->at + k;
    float *to = b->packed + first / WIDTH * WIDTH * b->depth + first % WIDTH + k * WIDTH;
    const __mmask16 mask = mask_of(b->depth - k);
    __m512 r[LANES];

#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++) {
        r[i] =
            first + i < b->rows ? _mm512_maskz_loadu_ps(mask, a + i * p->lda) : _mm512_setzero_ps();
    }
    transpose(r);
#pragma GCC unroll 16
    for (size_t i = 0; i < LANES; i++) {
        if (k + i < b->depth) {
            _mm512_storeu_ps(to + i * WIDTH, r[i]);
        }
    }
}

/* 16 samples are half of a panel. */
static void pack_samples(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    for (size_t part = begin; part < end; part++) {
        for (size_t k = 0; k < b->depth; k += LANES) {
            pack_square(b, part * LANES, k);
        }
    }
}

static void compute_samples(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    const struct dp_gemm *call = b->call;
    const struct dp_matmul *p = &call->product;
    const size_t count = panels(b->rows);
    struct tile t = {.depth = b->depth,
                     .lda = p->ldb,
                     .ldc = p->ldc,
                     .keep = b->keep,
                     .relu = b->last && call->relu};

    t.ahead = (struct ahead){.chunk = CHUNK * sizeof(float),
                             .row = p->ldb * sizeof(float),
                             .rows = (ROWS + count - 1) / count};
    for (size_t unit = begin, done = 0; unit < end; unit += done) {
        t.a = p->b + unit * p->ldb + b->at;
        t.bias = b->last && call->bias != NULL ? call->bias + unit : NULL;
        for (size_t i = 0; i < count; i++) {
            t.b = b->packed + i * WIDTH * b->depth;
            t.c = p->c + (b->row + i * WIDTH) * p->ldc + unit;
            t.columns = b->rows - i * WIDTH;
            t.ahead.at = (const char *)(t.a + (ROWS + i * t.ahead.rows) * p->ldb);
            done = run(&t, end - unit, BY_SAMPLES);
        }
    }
}

/* ---- c = a b: rows of a are copied apart, and 32 columns of b ---- */

static size_t copied_stride(const struct dp_gemm_block *b)
{
    return (b->depth + LANES - 1) / LANES * LANES + DP_GEMM_EXTRA;
}

TARGET static void copy_rows(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    const struct dp_matmul *p = &b->call->product;
    const size_t stride = copied_stride(b);

    for (size_t i = begin; i < end; i++) {
        const float *a = p->a + (b->row + i) * p->lda + b->at;
        for (size_t k = 0; k < b->depth; k += LANES) {
            _mm512_storeu_ps(b->packed + i * stride + k,
                             _mm512_maskz_loadu_ps(mask_of(b->depth - k), a + k));
        }
    }
}

/* [depth, WIDTH]: columns of a matrix; zeros where there are fewer. */
TARGET static void copy_panel(float *to, const float *from, size_t ld, size_t depth, size_t columns)
{
    const __mmask16 first = mask_of(columns);
    const __mmask16 second = columns > LANES ? mask_of(columns - LANES) : 0;

    for (size_t k = 0; k < depth; k++) {
        _mm512_storeu_ps(to + k * WIDTH, _mm512_maskz_loadu_ps(first, from + k * ld));
        _mm512_storeu_ps(to + k * WIDTH + LANES,
                         _mm512_maskz_loadu_ps(second, from + k * ld + LANES));
    }
}

static void compute_back(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    const struct dp_matmul *p = &b->call->product;
    const size_t stride = copied_stride(b), calls = (b->rows + ROWS - 1) / ROWS;
    const size_t fetched = (CHUNK + calls - 1) / calls; /* rows of the next panel, in a chunk */
    struct tile t = {.depth = b->depth, .lda = stride, .b = b->own, .ldc = p->ldc, .keep = b->keep};

    t.ahead = (struct ahead){
        .chunk = fetched * p->ldb * sizeof(float), .row = p->ldb * sizeof(float), .rows = fetched};
    for (size_t column = begin; column < end; column += WIDTH) {
        const float *from = p->b + b->at * p->ldb + column;
        t.columns = end - column;
        copy_panel(b->own, from, p->ldb, b->depth, t.columns);
        t.ahead.at = (const char *)(from + WIDTH);
        for (size_t i = 0, done; i < b->rows; i += done) {
            t.a = b->packed + i * stride;
            t.c = p->c + (b->row + i) * p->ldc + column;
            done = run(&t, b->rows - i, BACK);
            t.ahead.at += b->depth / CHUNK * t.ahead.chunk;
        }
    }
}

/* ---- c = a' b: panels of b; columns of a ---- */

static void pack_panels(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    const struct dp_matmul *p = &b->call->product;

    for (size_t i = begin; i < end; i++) {
        copy_panel(b->packed + i * WIDTH * b->depth, p->b + b->at * p->ldb + i * WIDTH, p->ldb,
                   b->depth, p->n - i * WIDTH);
    }
}

TARGET static void copy_columns(const struct dp_gemm_block *b, size_t first, size_t count)
{
    const struct dp_matmul *p = &b->call->product;
    const float *a = p->a + b->at * p->lda + first;
    const __mmask16 mask = mask_of(count);

    for (size_t k = 0; k < b->depth; k++) {
        _mm512_storeu_ps(b->own + k * LANES, _mm512_maskz_loadu_ps(mask, a + k * p->lda));
    }
}

static void compute_weights(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    const struct dp_matmul *p = &b->call->product;
    const size_t chunks = b->depth / CHUNK + 1, fetched = (ROWS + chunks - 1) / chunks;
    struct tile t = {.depth = b->depth, .a = b->own, .ldc = p->ldc, .keep = b->keep};

    t.ahead = (struct ahead){
        .chunk = fetched * p->ldc * sizeof(float), .row = p->ldc * sizeof(float), .rows = fetched};
    for (size_t unit = begin, done = 0; unit < end; unit += done) {
        copy_columns(b, unit, end - unit < ROWS ? end - unit : ROWS);
        for (size_t i = 0; i < panels(p->n); i++) {
            t.b = b->packed + i * WIDTH * b->depth;
            t.c = p->c + unit * p->ldc + i * WIDTH;
            t.columns = p->n - i * WIDTH;
            t.ahead.at = (const char *)(t.c + WIDTH);
            done = run(&t, end - unit, BACK_TO_WEIGHTS);
        }
    }
}

/* ---- which of them ---- */

void dp_gemm_pack(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    const struct dp_matmul *p = &b->call->product;

    if (p->order_a == DP_TRANSPOSED) {
        pack_panels(b, begin, end);
    } else if (p->order_b == DP_TRANSPOSED) {
        pack_samples(b, begin, end);
    } else {
        copy_rows(b, begin, end);
    }
}

void dp_gemm_compute(const struct dp_gemm_block *b, size_t begin, size_t end)
{
    const struct dp_matmul *p = &b->call->product;

    if (p->order_a == DP_TRANSPOSED) {
        compute_weights(b, begin, end);
    } else if (p->order_b == DP_TRANSPOSED) {
        compute_samples(b, begin, end);
    } else {
        compute_back(b, begin, end);
    }
}

#endif
