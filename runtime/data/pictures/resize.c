#include "runtime/data/pictures/resize.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/parallel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_AVX2
#endif

/* Weights are multiples of 2^-BITS: a line of 255s sums to less than 2^31. */
enum { BITS = 22, HALF = 1 << (BITS - 1), PIECE = 64 };

/* Into each version of the hot loops, which are compiled for several instruction sets. */
#define INLINED static inline __attribute__((always_inline))

/* Pixel i of the result is the sum of weight[i * most + k] times pixel first[i] + k, k < count[i].
 */
struct axis {
    int32_t *first, *count, *weight; /* [out], [out], [out, most] */
    int most, out;
    int begin, end; /* pixels that are read at all */
};

void dp_resizer_release(struct dp_resizer *resizer)
{
    dp_buffer_release(&resizer->rows);
    dp_buffer_release(&resizer->columns);
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
    const size_t most = 2 * (size_t)ceil(reach) + 1;

    if (!dp_buffer_reserve(memory, (size_t)out * (most + 2) * sizeof(int32_t))) {
        return false;
    }
    axis->first = memory->data;
    axis->count = axis->first + out;
    axis->weight = axis->count + out;
    axis->most = (int)most;
    axis->out = out;
    for (int i = 0; i < out; i++) {
        weigh(axis, i, part.begin + ((double)i + 0.5) * scale, reach, size);
    }
    axis->begin = axis->first[0];
    axis->end = axis->first[out - 1] + axis->count[out - 1];
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

#ifdef HAS_AVX2

/* The pixel at byte `at` of a line, and one more byte. Nothing beyond the line is read: of its last
 * pixel the byte before it is taken, and shifted out. */
static inline uint32_t pixel_at(const uint8_t *line, size_t at)
{
    uint32_t pixel;

    memcpy(&pixel, line + at, sizeof(pixel));
    return pixel;
}

static inline uint32_t last_pixel_at(const uint8_t *line, size_t at)
{
    return at > 0 ? pixel_at(line, at - 1) >> 8
                  : line[0] | (uint32_t)line[1] << 8 | (uint32_t)line[2] << 16;
}

/* Its channels side by side, times its weight. */
__attribute__((target("avx2"), always_inline)) static inline __m128i weighed(uint32_t pixel,
                                                                             int32_t weight)
{
    return _mm_mullo_epi32(_mm_cvtepu8_epi32(_mm_cvtsi32_si128((int32_t)pixel)),
                           _mm_set1_epi32(weight));
}

/* The same, with the channels of a pixel side by side: no compiler finds that by itself. */
__attribute__((target("avx2"))) static void colour_line_avx2(const struct axis *axis,
                                                             const uint8_t *in, uint8_t *out)
{
    const int32_t *weights = axis->weight;

    for (int i = 0; i < axis->out; i++, weights += axis->most, out += 3) {
        const int last = axis->count[i] - 1;
        size_t at = (size_t)axis->first[i] * 3;
        __m128i sum = _mm_set1_epi32(HALF);
        uint32_t pixel;
        for (int k = 0; k < last; k++, at += 3) {
            sum = _mm_add_epi32(sum, weighed(pixel_at(in, at), weights[k]));
        }
        sum = _mm_add_epi32(sum, weighed(last_pixel_at(in, at), weights[last]));
        sum = _mm_packs_epi32(_mm_srai_epi32(sum, BITS), sum);
        pixel = (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
        out[0] = (uint8_t)pixel;
        out[1] = (uint8_t)(pixel >> 8);
        out[2] = (uint8_t)(pixel >> 16);
    }
}

#endif

typedef void line_resizer(const struct axis *axis, const uint8_t *in, uint8_t *out);

static line_resizer *resizer_of(int channels)
{
#ifdef HAS_AVX2
    if (channels == 3 && __builtin_cpu_supports("avx2")) {
        return colour_line_avx2;
    }
#endif
    return channels == 3 ? colour_line : grey_line;
}

/* Rows `begin` to `end` of the picture, each resized. */
static void resize_rows(const struct axis *axis, const struct dp_picture *in, int begin, int end,
                        uint8_t *out)
{
    const size_t from = dp_picture_line(in), to = (size_t)axis->out * (size_t)in->channels;
    line_resizer *resize = resizer_of(in->channels);

    for (int y = begin; y < end; y++) {
        resize(axis, in->pixels + (size_t)y * from, out + (size_t)(y - begin) * to);
    }
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

/* All lines of the result from those of `between`, the first of which is line axis->begin. */
DP_HOT static void resize_columns(const struct axis *axis, const uint8_t *between, size_t line,
                                  uint8_t *out)
{
    for (int y = 0; y < axis->out; y++, out += line) {
        const int32_t *weight = axis->weight + (size_t)y * (size_t)axis->most;
        const uint8_t *x = between + (size_t)(axis->first[y] - axis->begin) * line;
        size_t i = 0;

        for (; i + PIECE <= line; i += PIECE) {
            column_piece(weight, axis->count[y], x + i, line, PIECE, out + i);
        }
        column_piece(weight, axis->count[y], x + i, line, line - i, out + i);
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
    struct axis rows, columns;

    assert(in->channels == 1 || in->channels == channels);
    if (!plan(&rows, &r->rows, in->height, row_part, height) ||
        !plan(&columns, &r->columns, in->width, column_part, width) ||
        !dp_buffer_reserve(&r->between, (size_t)(rows.end - rows.begin) * line)) {
        return false;
    }
    resize_rows(&columns, in, rows.begin, rows.end, r->between.data);
    resize_columns(&rows, r->between.data, line, out);
    if (in->channels == 1 && channels == 3) {
        repeat_grey(out, (size_t)height * (size_t)width);
    }
    return true;
}

bool dp_resize(struct dp_resizer *r, const struct dp_picture *in, enum dp_resize how, int height,
               int width, int channels, uint8_t *out)
{
    const size_t pixels = (size_t)height * (size_t)width;
    struct dp_stretch rows = {0.0, (double)in->height}, columns = {0.0, (double)in->width};

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
