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

#define DP_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl")))

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

#endif
#endif
