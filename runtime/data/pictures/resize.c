#include "runtime/data/pictures/resize.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cpu/parallel.h"
#include "kernels/tensor.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_AVX2
#endif

/* Weights are multiples of 2^-BITS: a line of 255s sums to less than 2^31. */
enum { BITS = 22, HALF = 1 << (BITS - 1), PIECE = 64 };

/* Lines that are resized together; the lower bits of a weight; bytes that are read at once. */
enum { TOGETHER = 4, LOW = 11, READ = 16 };

/* Into each version of the hot loops, which are compiled for several instruction sets. */
#define INLINED static inline __attribute__((always_inline))

/* Pixel i of the result is the sum of weight[i * most + k] times pixel first[i] + k, k < count[i];
 * further weights are 0. */
struct axis {
    int32_t *first, *count, *weight; /* [out], [out], [out, most] */
    int most, out;                   /* most: even */
    int begin, end;                  /* pixels that are read at all */
};

void dp_resizer_release(struct dp_resizer *resizer)
{
    dp_buffer_release(&resizer->rows);
    dp_buffer_release(&resizer->columns);
    dp_buffer_release(&resizer->pairs);
    dp_buffer_release(&resizer->last);
    dp_buffer_release(&resizer->between);
}

/* Weights of pixel i; they sum to 1 but for rounding. */
static void weigh(struct axis *axis, int i, double centre, double reach, int size)
{
    const double low = centre - reach + 0.5, high = centre + reach + 0.5;
    const int first = low > 0.0 ? (int)low : 0, last = high < (double)size ? (int)high : size;
    int32_t *weight = axis->weight + (size_t)i * (size_t)axis->most;
    double sum = 0.0;

    axis->first[i] = first;
    axis->count[i] = last - first;
    for (int pass = 0; pass < 2; pass++) {
        for (int x = first; x < last; x++) {
            const double far = fabs((double)x + 0.5 - centre) / reach;
            const double w = far < 1.0 ? 1.0 - far : 0.0;
            if (pass == 0) {
                sum += w;
            } else {
                weight[x - first] = (int32_t)(w / sum * (double)(1 << BITS) + 0.5);
            }
        }
    }
}

/* Prepares `size` pixels, of which `part` becomes `out`. */
static bool plan(struct axis *axis, struct dp_buffer *memory, int size, struct dp_stretch part,
                 int out)
{
    const double scale = part.length / (double)out, reach = scale > 1.0 ? scale : 1.0;
    const size_t most = 2 * (size_t)ceil(reach) + 2;
    const int last = out - 1;
    int lowest, highest;

    if (!dp_buffer_reserve(memory, (size_t)out * (most + 2) * sizeof(int32_t))) {
        return false;
    }
    axis->first = memory->data;
    axis->count = axis->first + out;
    axis->weight = axis->count + out;
    axis->most = (int)most;
    axis->out = out;
    memset(axis->weight, 0, (size_t)out * most * sizeof(int32_t));
    for (int i = 0; i < out; i++) {
        weigh(axis, part.backwards ? last - i : i, part.begin + ((double)i + 0.5) * scale, reach,
              size);
    }
    lowest = part.backwards ? last : 0;
    highest = last - lowest;
    axis->begin = axis->first[lowest];
    axis->end = axis->first[highest] + axis->count[highest];
    return true;
}

INLINED uint8_t rounded(int32_t sum)
{
    const int32_t value = (sum + HALF) >> BITS;

    return (uint8_t)(value > 255 ? 255 : value);
}

/* One line of grey pixels. */
static void grey_line(const struct axis *axis, const uint8_t *in, uint8_t *out)
{
    for (int i = 0; i < axis->out; i++) {
        const uint8_t *x = in + axis->first[i];
        const int32_t *weight = axis->weight + (size_t)i * (size_t)axis->most;
        int32_t sum = 0;
        for (int k = 0; k < axis->count[i]; k++) {
            sum += weight[k] * x[k];
        }
        out[i] = rounded(sum);
    }
}

/* One line of colour pixels. */
static void colour_line(const struct axis *axis, const uint8_t *in, uint8_t *out)
{
    for (int i = 0; i < axis->out; i++) {
        const uint8_t *x = in + (size_t)axis->first[i] * 3;
        const int32_t *weight = axis->weight + (size_t)i * (size_t)axis->most;
        int32_t sum[3] = {0, 0, 0};
        for (int k = 0; k < axis->count[i]; k++) {
            for (int c = 0; c < 3; c++) {
                sum[c] += weight[k] * x[k * 3 + c];
            }
        }
        for (int c = 0; c < 3; c++) {
            out[i * 3 + c] = rounded(sum[c]);
        }
    }
}

typedef void line_resizer(const struct axis *axis, const uint8_t *in, uint8_t *out);

/* Lines `begin` to `end` of the picture, each resized; `to` bytes from line to line. */
static void resize_lines(const struct axis *axis, const struct dp_picture *in, int begin, int end,
                         uint8_t *out, size_t to)
{
    const size_t from = dp_picture_line(in);
    line_resizer *resize = in->channels == 3 ? colour_line : grey_line;

    for (int y = begin; y < end; y++) {
        resize(axis, in->pixels + (size_t)y * from, out + (size_t)(y - begin) * to);
    }
}

#ifdef HAS_AVX2

/* ---- four lines of colour pixels at once ----
 *
 * The processor adds products of two neighbouring 16-bit numbers in one go. A weight has 22 bits,
 * so its upper and its lower bits are multiplied by themselves; the sums are as exact as above. */

/* What to multiply pixels 2 k and 2 k + 1 with: upper bits of both weights, lower bits of both. */
static bool pair_weights(const struct axis *axis, struct dp_buffer *memory)
{
    const size_t count = (size_t)axis->out * (size_t)axis->most / 2;
    uint32_t *pair;

    if (!dp_buffer_reserve(memory, 2 * count * sizeof(*pair))) {
        return false;
    }
    pair = memory->data;
    for (size_t i = 0; i < count; i++, pair += 2) {
        const uint32_t one = (uint32_t)axis->weight[2 * i], two = (uint32_t)axis->weight[2 * i + 1];
        const uint32_t low = (1U << LOW) - 1;
        pair[0] = one >> LOW | two >> LOW << 16;
        pair[1] = (one & low) | (two & low) << 16;
    }
    return true;
}

/* Two lines from byte `at` on: the channels of two pixels side by side, as 16 bits. */
__attribute__((target("avx2"), always_inline)) static inline __m256i
two_pixels(const uint8_t *one, const uint8_t *two, size_t at)
{
    const __m256i side_by_side =
        _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, /**/
                         0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1);
    const __m128i first = _mm_loadu_si128((const __m128i *)(const void *)(one + at));
    const __m128i second = _mm_loadu_si128((const __m128i *)(const void *)(two + at));

    return _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1),
                               side_by_side);
}

/* READ bytes from the last pixel on may be read of each line, and one byte after each line of the
 * result is written. */
__attribute__((target("avx2"))) static void colour_lines_avx2(const struct axis *axis,
                                                              const int32_t *pairs,
                                                              const uint8_t *const in[TOGETHER],
                                                              uint8_t *const out[TOGETHER])
{
    const __m256i half = _mm256_set1_epi32(HALF);

    for (int i = 0; i < axis->out; i++, pairs += axis->most) {
        const size_t to = (size_t)i * 3;
        size_t at = (size_t)axis->first[i] * 3;
        __m256i up1 = _mm256_setzero_si256(), up2 = up1, low1 = half, low2 = half;

        for (int k = 0; k < axis->count[i]; k += 2, at += 6) {
            const __m256i upper = _mm256_set1_epi32(pairs[k]);
            const __m256i lower = _mm256_set1_epi32(pairs[k + 1]);
            const __m256i x = two_pixels(in[0], in[1], at), y = two_pixels(in[2], in[3], at);
            up1 = _mm256_add_epi32(up1, _mm256_madd_epi16(x, upper));
            up2 = _mm256_add_epi32(up2, _mm256_madd_epi16(y, upper));
            low1 = _mm256_add_epi32(low1, _mm256_madd_epi16(x, lower));
            low2 = _mm256_add_epi32(low2, _mm256_madd_epi16(y, lower));
        }
        low1 = _mm256_srai_epi32(_mm256_add_epi32(low1, _mm256_slli_epi32(up1, LOW)), BITS);
        low2 = _mm256_srai_epi32(_mm256_add_epi32(low2, _mm256_slli_epi32(up2, LOW)), BITS);
        low1 = _mm256_packs_epi32(low1, low2);
        low1 = _mm256_packus_epi16(low1, low1); /* pixels of lines 0 and 2; of 1 and 3 */
        const __m128i even = _mm256_castsi256_si128(low1);
        const __m128i odd = _mm256_extracti128_si256(low1, 1);
        _mm_storeu_si32(out[0] + to, even);
        _mm_storeu_si32(out[1] + to, odd);
        _mm_storeu_si32(out[2] + to, _mm_srli_si128(even, 4));
        _mm_storeu_si32(out[3] + to, _mm_srli_si128(odd, 4));
    }
}

/* Line `y`: a copy where what may be read after it is not of the picture. */
static const uint8_t *readable_line(const struct dp_picture *in, int y, uint8_t *copy)
{
    const size_t pitch = dp_picture_line(in);
    const uint8_t *line = in->pixels + (size_t)y * pitch;

    if ((size_t)(in->height - 1 - y) * pitch >= READ) {
        return line;
    }
    memcpy(copy, line, (size_t)in->width * 3);
    return copy;
}

static bool resize_lines_avx2(struct dp_resizer *r, const struct axis *axis,
                              const struct dp_picture *in, int begin, int end, uint8_t *out,
                              size_t to)
{
    const size_t room = (size_t)in->width * 3 + READ;
    const uint8_t *from[TOGETHER];
    uint8_t *into[TOGETHER];

    if (!pair_weights(axis, &r->pairs) || !dp_buffer_reserve(&r->last, TOGETHER * room)) {
        return false;
    }
    for (int y = begin; y < end; y += TOGETHER) {
        for (int k = 0; k < TOGETHER; k++) { /* the last one more than once, if few are left */
            const int line = y + k < end ? y + k : end - 1;
            from[k] = readable_line(in, line, (uint8_t *)r->last.data + (size_t)k * room);
            into[k] = out + (size_t)(line - begin) * to;
        }
        colour_lines_avx2(axis, r->pairs.data, from, into);
    }
    return true;
}

#endif

/* Lines `begin` to `end` of the picture, each resized. False: there is no memory. */
static bool resize_rows(struct dp_resizer *r, const struct axis *axis, const struct dp_picture *in,
                        int begin, int end, uint8_t *out, size_t to)
{
#ifdef HAS_AVX2
    if (in->channels == 3 && __builtin_cpu_supports("avx2")) {
        return resize_lines_avx2(r, axis, in, begin, end, out, to);
    }
#endif
    (void)r;
    resize_lines(axis, in, begin, end, out, to);
    return true;
}

/* `count` numbers of a line of the result; they are added up in registers where `count` is known to
 * the compiler. */
INLINED void column_piece(const int32_t *weight, int taps, const uint8_t *x, size_t line,
                          size_t count, uint8_t *out)
{
    int32_t sums[PIECE] = {0};

    for (int k = 0; k < taps; k++, x += line) {
        const int32_t w = weight[k];
        for (size_t i = 0; i < count; i++) {
            sums[i] += w * x[i];
        }
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = rounded(sums[i]);
    }
}

/* All lines of the result from those of `between`, the first of which is line axis->begin; `from`
 * bytes from line to line. */
DP_HOT static void resize_columns(const struct axis *axis, const uint8_t *between, size_t from,
                                  size_t line, uint8_t *out)
{
    for (int y = 0; y < axis->out; y++, out += line) {
        const int32_t *weight = axis->weight + (size_t)y * (size_t)axis->most;
        const uint8_t *x = between + (size_t)(axis->first[y] - axis->begin) * from;
        size_t i = 0;

        for (; i + PIECE <= line; i += PIECE) {
            column_piece(weight, axis->count[y], x + i, from, PIECE, out + i);
        }
        if (i < line && line >= PIECE) { /* the last piece, partly once more */
            i = line - PIECE;
            column_piece(weight, axis->count[y], x + i, from, PIECE, out + i);
        } else {
            column_piece(weight, axis->count[y], x + i, from, line - i, out + i);
        }
    }
}

/* [pixels] to [pixels, 3], in place, from the end. */
static void repeat_grey(uint8_t *pixels, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        const uint8_t grey = pixels[i];
        pixels[3 * i] = pixels[3 * i + 1] = pixels[3 * i + 2] = grey;
    }
}

/* The largest part in the middle whose proportions are those of [height, width]. */
static void crop(const struct dp_picture *in, int height, int width, struct dp_stretch *rows,
                 struct dp_stretch *columns)
{
    const double wide = (double)in->width * height, high = (double)in->height * width;

    if (wide > high) {
        columns->length = high / height;
        columns->begin = ((double)in->width - columns->length) / 2.0;
    } else {
        rows->length = wide / width;
        rows->begin = ((double)in->height - rows->length) / 2.0;
    }
}

bool dp_resize_part(struct dp_resizer *r, const struct dp_picture *in, struct dp_stretch row_part,
                    struct dp_stretch column_part, int height, int width, int channels,
                    uint8_t *out)
{
    const size_t line = (size_t)width * (size_t)in->channels;
    const size_t between = dp_round_up(line + 1, PIECE); /* bytes from line to line */
    struct axis rows, columns;

    assert(in->channels == 1 || in->channels == channels);
    if (!plan(&rows, &r->rows, in->height, row_part, height) ||
        !plan(&columns, &r->columns, in->width, column_part, width) ||
        !dp_buffer_reserve(&r->between, (size_t)(rows.end - rows.begin) * between) ||
        !resize_rows(r, &columns, in, rows.begin, rows.end, r->between.data, between)) {
        return false;
    }
    resize_columns(&rows, r->between.data, between, line, out);
    if (in->channels == 1 && channels == 3) {
        repeat_grey(out, (size_t)height * (size_t)width);
    }
    return true;
}

bool dp_resize(struct dp_resizer *r, const struct dp_picture *in, enum dp_resize how, int height,
               int width, int channels, uint8_t *out)
{
    const size_t pixels = (size_t)height * (size_t)width;
    struct dp_stretch rows = {.length = in->height}, columns = {.length = in->width};

    if (in->height != height || in->width != width || in->line != 0) {
        if (how == DP_RESIZE_CROP) {
            crop(in, height, width, &rows, &columns);
        }
        return dp_resize_part(r, in, rows, columns, height, width, channels, out);
    }
    memcpy(out, in->pixels, pixels * (size_t)in->channels);
    if (in->channels == 1 && channels == 3) {
        repeat_grey(out, pixels);
    }
    return true;
}
