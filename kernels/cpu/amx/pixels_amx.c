#include "kernels/cpu/amx/pixels_amx.h"

#include "base/mem.h"
#include "kernels/cpu/parallel.h"
#include "kernels/ref/window.h"
#include "kernels/tensor.h"

enum {
    ROWS = DP_AMX_ROWS,
    DEPTH = DP_AMX_DEPTH,
    TILE = DP_AMX_TILE,
    SLACK = 64 /* bfloats after a channel's planes: tiles reach beyond the last pixel */
};

struct dp_amx_pixels dp_amx_pixels_of(const struct dp_window *w, size_t rows, size_t across)
{
    struct dp_amx_pixels p = {.w = w, .rows = rows, .stride = w->stride, .few = w->in_c < ROWS};
    const size_t lines = w->out_h + (w->kernel_h - 1) / w->stride;

    p.pitch = dp_round_up(w->out_w + (w->kernel_w - 1) / w->stride, 2);
    p.plane = lines * p.pitch;
    p.channel = p.stride * p.stride * p.plane + SLACK;
    p.channels = p.few ? w->in_c : dp_round_up(w->in_c, ROWS);
    p.steps = dp_div_up(w->out_h * p.pitch, DEPTH);
    p.blocks = dp_round_up(dp_div_up(w->out_c, ROWS), across);
    p.x_bytes = dp_round_up(rows * p.channels * p.channel * sizeof(uint16_t), DP_MEM_ALIGN);
    p.dy_bytes = rows * p.blocks * p.steps * TILE * sizeof(uint16_t);
    return p;
}

#if DP_AMX_CODE

/* ---- x ---- */

/* A row of one plane. */
struct line {
    const uint16_t *from; /* the row of the image; NULL: padding */
    size_t phase;         /* the remainder of its padded columns */
    uint16_t *to;         /* in the first channel */
};

/* The row's pixel `at` in the image; NULL: padding. */
static inline const uint16_t *pixel(const struct dp_amx_pixels *p, const struct line *l, size_t at)
{
    const struct dp_window *w = p->w;
    const size_t padded = p->stride * at + l->phase;

    return l->from == NULL || padded < w->padding || padded - w->padding >= w->in_w
               ? NULL
               : l->from + (padded - w->padding) * w->in_c;
}

static void copy_few(const struct dp_amx_pixels *p, const struct line *l)
{
    for (size_t at = 0; at < p->pitch; at++) {
        const uint16_t *from = pixel(p, l, at);
        for (size_t c = 0; c < p->channels; c++) {
            l->to[c * p->channel + at] = from != NULL ? from[c] : 0;
        }
    }
}

/* Sixteen pixels of the channels [c, c + 32), of which `left` exist and the copy has `kept`. */
DP_AMX static void copy_pixels(const struct dp_amx_pixels *p, const struct line *l, size_t at,
                               size_t c, size_t left, size_t kept)
{
    const __mmask32 mask = left < DEPTH ? (1u << left) - 1 : ~(__mmask32)0;
    __m512i v[ROWS];

    for (size_t i = 0; i < ROWS; i++) {
        const uint16_t *from = pixel(p, l, at + i);
        v[i] = from != NULL ? _mm512_maskz_loadu_epi16(mask, from + c) : _mm512_setzero_si512();
    }
    dp_amx_transpose(v);
    for (size_t i = 0; i < ROWS && 2 * i < kept; i++) { /* pairs of channels, of 16 pixels */
        uint16_t *to = l->to + (c + 2 * i) * p->channel + at;
        _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(v[i]));
        _mm256_storeu_si256((void *)(to + p->channel),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(v[i], 16)));
    }
}

/* What is written beyond the pitch is written again by the next row, or lies in the slack. */
static void copy_line(const struct dp_amx_pixels *p, const struct line *l)
{
    const size_t channels = p->w->in_c;

    if (p->few) {
        copy_few(p, l);
        return;
    }
    for (size_t at = 0; at < p->pitch; at += ROWS) {
        for (size_t c = 0; c < channels; c += DEPTH) {
            copy_pixels(p, l, at, c, channels - c, p->channels - c);
        }
    }
}

static void copy_x(const struct dp_amx_pixels *p, size_t image)
{
    const struct dp_window *w = p->w;
    const uint16_t *from = p->from_x + image * dp_window_in(w);
    uint16_t *to = p->x + image * p->channels * p->channel;

    for (size_t c = 0; c < p->channels; c++) {
        memset(to + (c + 1) * p->channel - SLACK, 0, SLACK * sizeof(*to));
    }
    for (size_t phase = 0; phase < p->stride * p->stride; phase++) {
        for (size_t y = 0; y < p->plane / p->pitch; y++) {
            const size_t padded = p->stride * y + phase / p->stride;
            const bool inside = padded >= w->padding && padded - w->padding < w->in_h;
            const struct line line = {inside ? from + (padded - w->padding) * w->in_w * w->in_c
                                             : NULL,
                                      phase % p->stride, to + phase * p->plane + y * p->pitch};
            copy_line(p, &line);
        }
    }
}

/* ---- dy ---- */

/* One block of one image; adds to its sum over pixels. */
DP_AMX static __m512 copy_block(const struct dp_amx_pixels *p, size_t image, size_t block,
                                __m512 sum)
{
    const struct dp_window *w = p->w;
    const uint16_t *from = p->from_dy + image * dp_window_out(w) + block * ROWS;
    uint16_t *to = p->dy + (image * p->blocks + block) * p->steps * TILE;
    const size_t channels = w->out_c > block * ROWS ? w->out_c - block * ROWS : 0;
    const __mmask16 mask = (__mmask16)(channels < ROWS ? (1u << channels) - 1 : 0xffffu);
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);

    for (size_t y = 0; y < w->out_h; y++) {
        for (size_t x = 0; x < p->pitch; x += 2, to += DEPTH) {
            const uint16_t *at = from + (y * w->out_w + x) * w->out_c;
            const __mmask16 first = x < w->out_w ? mask : 0, second = x + 1 < w->out_w ? mask : 0;
            const __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first, at));
            const __m512i b =
                _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(second, at + w->out_c));
            const __m512i pair = _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
            _mm512_store_si512((void *)to, pair);
            sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)));
            sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_and_si512(pair, upper)));
        }
    }
    memset(to, 0, (p->steps * TILE - w->out_h * p->pitch * ROWS) * sizeof(*to));
    return sum;
}

DP_AMX static void copy_dy(const struct dp_amx_pixels *p, size_t block)
{
    __m512 sum = _mm512_setzero_ps();

    for (size_t image = 0; image < p->rows; image++) {
        sum = copy_block(p, image, block, sum);
    }
    _mm512_storeu_ps(p->totals + block * ROWS, sum);
}

void dp_amx_pixels_copy(const struct dp_amx_pixels *p, int part, int parts)
{
    size_t begin, end;

    dp_part(p->rows, 1, part, parts, &begin, &end);
    for (size_t image = begin; image < end; image++) {
        copy_x(p, image);
    }
    dp_part(p->blocks, 1, part, parts, &begin, &end);
    for (size_t block = begin; block < end; block++) {
        copy_dy(p, block);
    }
}

#endif
