#include "runtime/data/records/statistics.h"

#include <math.h>

int dp_statistics_channels(const struct dp_sample_shape *shape)
{
    if (shape->count == 0) {
        return 3;
    }
    return shape->height == 0 || shape->channels > DP_RECORDS_CHANNELS ? 1 : shape->channels;
}

void dp_statistics_bytes(struct dp_statistics *s, const uint8_t *x, size_t pixels, int stride)
{
    for (int c = 0; c < s->channels; c++) {
        const uint8_t *at = x + (stride == 1 ? 0 : c);
        uint64_t sum = 0, squares = 0;
        for (size_t i = 0; i < pixels; i++) {
            const uint32_t value = at[i * (size_t)stride];
            sum += value;
            squares += (uint64_t)value * value;
        }
        s->sum[c] += sum;
        s->squares[c] += squares;
    }
    s->count += pixels;
}

/* Source: Welford, "Note on a method for calculating corrected sums of squares and products",
 * Technometrics 4, 1962. */
void dp_statistics_floats(struct dp_statistics *s, const float *x, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++) {
        s->count++;
        for (int c = 0; c < s->channels; c++) {
            const double value = (double)x[i * (size_t)s->channels + (size_t)c];
            const double delta = value - s->mean[c];
            s->mean[c] += delta / (double)s->count;
            s->m2[c] += delta * (value - s->mean[c]);
        }
    }
}

void dp_statistics_merge(struct dp_statistics *to, const struct dp_statistics *from)
{
    to->count += from->count;
    for (int c = 0; c < to->channels; c++) {
        to->sum[c] += from->sum[c];
        to->squares[c] += from->squares[c];
    }
}

void dp_statistics_finish(const struct dp_statistics *s, enum dp_element element,
                          struct dp_records_index *index)
{
    const double n = (double)s->count;

    index->channels = s->count > 0 ? s->channels : 0;
    for (int c = 0; c < index->channels; c++) {
        if (element == DP_ELEMENT_FLOAT) {
            index->mean[c] = s->mean[c];
            index->std[c] = sqrt(s->m2[c] / n);
        } else {
            const double mean = (double)s->sum[c] / n;
            const double variance = (double)s->squares[c] / n - mean * mean;
            index->mean[c] = mean / 255.0;
            index->std[c] = sqrt(variance > 0.0 ? variance : 0.0) / 255.0;
        }
    }
}
