/*
 * amx.h - Intel's Advanced Matrix Extensions: tiles of 16 rows of 64 bytes, whose products of
 * bfloat16, summed in float32, are 16 times as fast as those of vectors of float32 (Intel 64 and
 * IA-32 Architectures Software Developer's Manual, volume 1, chapter 18).
 *
 * A tile A holds 16 rows of 32 bfloats. A tile B holds, for 16 columns, 16 pairs of bfloats: pair k
 * of a column is what elements 2k and 2k + 1 of a row of A are multiplied with. C += A B is 16 x 16
 * floats.
 */
#ifndef DP_KERNELS_CPU_AMX_AMX_H
#define DP_KERNELS_CPU_AMX_AMX_H

#include <stdbool.h>

enum { DP_AMX_ROWS = 16, DP_AMX_DEPTH = 32, DP_AMX_TILE = DP_AMX_ROWS * DP_AMX_DEPTH };

/* Whether the processor has tiles, with products of bfloat16, and Linux lets this process use them:
 * a process has to ask once. Thread-safe. */
bool dp_amx_has(void);

/* Whether this compiler knows them. */
#if defined(__x86_64__) && defined(__GNUC__)
#define DP_AMX_CODE 1
#else
#define DP_AMX_CODE 0
#endif

#if DP_AMX_CODE

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define DP_AMX \
    __attribute__((target("prfchw,amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16")))

/* How a thread's tiles are shaped, as the instruction wants it. */
struct dp_amx_shape {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Makes the calling thread's eight tiles whole ones. *before is what they were, for libraries that
 * believe that nobody else changes them. */
DP_AMX static inline void dp_amx_begin(struct dp_amx_shape *before)
{
    struct dp_amx_shape whole = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        whole.row_bytes[i] = 64;
        whole.rows[i] = DP_AMX_ROWS;
    }
    _tile_storeconfig(before);
    _tile_loadconfig(&whole);
}

DP_AMX static inline void dp_amx_end(const struct dp_amx_shape *before)
{
    if (before->palette != 0) {
        _tile_loadconfig(before);
    } else {
        _tile_release();
    }
}

/*
 * C += A B of tiles with these numbers, and instructions that do nothing. Where the other thread of
 * a core uses tiles, too, which may be another virtual machine's, products that begin within six
 * instructions of each other (as many as the core begins at once) take 1.4 times as long. Eight
 * more cost 3 % of a loop of products alone where it does not, and nothing of a whole product.
 * Measured on a Xeon of model 207.
 */
#define DP_AMX_MULTIPLY(c, a, b)                 \
    do {                                         \
        _tile_dpbf16ps(c, a, b);                 \
        __asm__ volatile(".rept 8; nop; .endr"); \
    } while (0)

/* Before tiles are loaded from what vectors have stored: GCC's loads of tiles do not say that they
 * read memory, so that it may move stores after them. */
static inline void dp_amx_stored(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Sixteen vectors of sixteen 32-bit numbers become their columns. */
DP_AMX static inline void dp_amx_transpose(__m512i v[DP_AMX_ROWS])
{
    __m512i t[DP_AMX_ROWS];

    for (int i = 0; i < DP_AMX_ROWS; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < DP_AMX_ROWS; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        v[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        v[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#endif
#endif
