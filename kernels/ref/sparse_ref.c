/*
 * sparse_ref.c - a few numbers out of many: the formulas of kernels/ops.h.
 */
#include <string.h>

#include "base/random.h"
#include "kernels/ref/ops_ref.h"

dp_status dp_ref_scale_add(struct dp_stream *s, float *y, const float *x, float scale, size_t count)
{
    (void)s;
    for (size_t i = 0; i < count; i++) {
        y[i] = scale * y[i] + x[i];
    }
    return DP_OK;
}

/* Magnitudes compare as their bits do, with NaN as the largest. */
static uint32_t magnitude(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffff;
}

static size_t count_above(const float *x, size_t count, uint32_t threshold)
{
    size_t above = 0;

    for (size_t i = 0; i < count; i++) {
        above += magnitude(x[i]) > threshold;
    }
    return above;
}

/* The k-th largest magnitude is the smallest threshold with fewer than k magnitudes above it. */
dp_status dp_ref_take_largest(struct dp_stream *s, uint32_t *index, float *value, float *x,
                              size_t k, size_t count)
{
    uint32_t low = 0, high = 0x7fffffff;
    size_t taken = 0, equal;
    (void)s;

    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (count_above(x, count, middle) < k) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    equal = k - (k == 0 ? 0 : count_above(x, count, low));
    for (size_t i = 0; i < count && taken < k; i++) {
        if (magnitude(x[i]) < low || (magnitude(x[i]) == low && equal == 0)) {
            continue;
        }
        equal -= magnitude(x[i]) == low;
        index[taken] = (uint32_t)i;
        value[taken++] = x[i];
        x[i] = 0;
    }
    return DP_OK;
}

dp_status dp_ref_sample(struct dp_stream *s, uint32_t *index, size_t k, size_t count,
                        const struct dp_key *key)
{
    (void)s;
    for (size_t i = 0; i < k; i++) {
        const uint64_t begin = (uint64_t)i * count / k, end = ((uint64_t)i + 1) * count / k;
        const uint32_t bits = dp_random_u32(key->seed, key->what, key->step, key->first + i);
        index[i] = (uint32_t)(begin + (uint64_t)bits * (end - begin) / 4294967296u);
    }
    return DP_OK;
}

dp_status dp_ref_take_at(struct dp_stream *s, float *value, float *x, const uint32_t *index,
                         size_t k)
{
    (void)s;
    for (size_t i = 0; i < k; i++) {
        value[i] = x[index[i]];
        x[index[i]] = 0;
    }
    return DP_OK;
}

dp_status dp_ref_add_at(struct dp_stream *s, float *y, const uint32_t *index, const float *value,
                        size_t k)
{
    (void)s;
    for (size_t i = 0; i < k; i++) {
        y[index[i]] += value[i];
    }
    return DP_OK;
}
