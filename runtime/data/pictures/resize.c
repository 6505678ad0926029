#include "runtime/data/pictures/resize.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Weights are multiples of 2^-BITS: a line of 255s sums to less than 2^31. */
enum { BITS = 22, HALF = 1 << (BITS - 1) };

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
    dp_buffer_release(&resizer->sums);
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

static uint8_t rounded(int32_t sum)
{
    const int32_t value = (sum + HALF) >> BITS;

    return (uint8_t)(value > 255 ? 255 : value);
}

/* One line of [in, channels] to [out, channels]. */
static inline void line_of(const struct axis *axis, const uint8_t *in, uint8_t *out, int channels)
{
    for (int i = 0; i < axis->out; i++) {
        const uint8_t *x = in + (size_t)axis->first[i] * (size_t)channels;
        const int32_t *weight = axis->weight + (size_t)i * (size_t)axis->most;
        int32_t sum[3] = {0, 0, 0};
        for (int k = 0; k < axis->count[i]; k++) {
            for (int c = 0; c < channels; c++) {
                sum[c] += weight[k] * x[k * channels + c];
            }
        }
        for (int c = 0; c < channels; c++) {
            out[i * channels + c] = rounded(sum[c]);
        }
    }
}

/* Rows `begin` to `end` of the picture, each resized. */
static void resize_rows(const struct axis *axis, const struct dp_picture *in, int begin, int end,
                        uint8_t *out)
{
    const size_t c = (size_t)in->channels, from = dp_picture_line(in), to = (size_t)axis->out * c;

    for (int y = begin; y < end; y++) {
        const uint8_t *line = in->pixels + (size_t)y * from;
        uint8_t *result = out + (size_t)(y - begin) * to;
        if (in->channels == 1) { /* constants let the compiler unroll */
            line_of(axis, line, result, 1);
        } else {
            line_of(axis, line, result, 3);
        }
    }
}

/* A line of the result from the lines of `between`, the first of which is line axis->begin. */
static void resize_column(const struct axis *axis, int y, const uint8_t *between, size_t line,
                          int32_t *restrict sums, uint8_t *out)
{
    const int32_t *weight = axis->weight + (size_t)y * (size_t)axis->most;

    memset(sums, 0, line * sizeof(*sums));
    for (int k = 0; k < axis->count[y]; k++) {
        const uint8_t *restrict x = between + (size_t)(axis->first[y] + k - axis->begin) * line;
        const int32_t w = weight[k];
        for (size_t i = 0; i < line; i++) {
            sums[i] += w * x[i];
        }
    }
    for (size_t i = 0; i < line; i++) {
        out[i] = rounded(sums[i]);
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
        !dp_buffer_reserve(&r->between, (size_t)(rows.end - rows.begin) * line) ||
        !dp_buffer_reserve(&r->sums, line * sizeof(int32_t))) {
        return false;
    }
    resize_rows(&columns, in, rows.begin, rows.end, r->between.data);
    for (int y = 0; y < height; y++) {
        resize_column(&rows, y, r->between.data, line, r->sums.data, out + (size_t)y * line);
    }
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
