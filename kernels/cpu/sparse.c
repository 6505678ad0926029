/*
 * sparse.c - the largest numbers of an array.
 *
 * The k-th largest magnitude is found bits by bits. Magnitudes compare as their bits do, so a
 * histogram of the upper 11 bits gives its upper 11 bits. Another of the next 11 bits, among the
 * numbers that share these, gives the next, and a third the last 9. Then all above it are taken,
 * and the first of those equal to it. That makes four passes over the array, five with several
 * threads; all but the first check 16 numbers together and skip most of them.
 */
#include <assert.h>

#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/device.h"

struct scale_add {
    float *y;
    const float *x;
    float scale;
};

DP_HOT static void scale_add_part(void *arg, size_t begin, size_t end)
{
    const struct scale_add *t = arg;
    float *restrict y = t->y;
    const float *restrict x = t->x;

    for (size_t i = begin; i < end; i++) {
        y[i] = t->scale * y[i] + x[i];
    }
}

dp_status dp_cpu_scale_add(struct dp_stream *s, float *y, const float *x, float scale, size_t count)
{
    struct scale_add t = {y, x, scale};

    dp_parallel(s->threads, count, DP_BLOCK, scale_add_part, &t);
    return DP_OK;
}

enum { PARTS = 8, BINS = 2048, LEVELS = 3 };

/* The bits that a histogram counts. */
static const struct level {
    int shift;
    uint32_t bins;
} levels[LEVELS] = {{20, BINS}, {9, BINS}, {0, 512}};

struct largest {
    uint32_t *index;
    float *value, *x;
    size_t count;
    uint32_t known, mask; /* upper bits of the threshold, and the mask of them */
    const struct level *level;
    size_t above[PARTS], equal[PARTS]; /* counts of each part; then: where it begins to write, and
                                        * how many equal ones it takes */
    uint32_t bins[PARTS][BINS];
};

static inline uint32_t magnitude(float x)
{
    return dp_bits_of(x) & DP_F32_MAGNITUDE;
}

enum { SOME = 16 };

/* Whether any of SOME magnitudes, masked, is in [low, high]. */
static inline bool any_within(const float *x, uint32_t mask, uint32_t low, uint32_t high)
{
    uint32_t hits = 0;

    for (size_t j = 0; j < SOME; j++) {
        const uint32_t m = magnitude(x[j]) & mask;
        hits |= (uint32_t)(m >= low) & (uint32_t)(m <= high);
    }
    return hits != 0;
}

DP_HOT static void histogram_part(void *arg, int part, int parts)
{
    struct largest *t = arg;
    uint32_t *bins = t->bins[part];
    const uint32_t known = t->known, mask = t->mask, last = t->level->bins - 1;
    const int shift = t->level->shift;
    size_t begin, end;

    dp_part(t->count, DP_BLOCK, part, parts, &begin, &end);
    memset(bins, 0, sizeof(t->bins[part]));
    for (size_t i = begin; i < end; i += SOME) {
        const size_t some = end - i < SOME ? end - i : SOME;
        if (mask != 0 && some == SOME && !any_within(t->x + i, mask, known, known)) {
            continue;
        }
        for (size_t j = i; j < i + some; j++) {
            const uint32_t m = magnitude(t->x[j]);
            if ((m & mask) == known) {
                bins[m >> shift & last]++;
            }
        }
    }
}

/* Finds the next bits of the threshold, which is the k-th largest among the magnitudes that share
 * the bits known so far. Returns k for the remaining bits. */
static size_t next_bits(struct largest *t, int parts, size_t k)
{
    uint32_t bin = t->level->bins;
    size_t here = 0;

    do {
        k -= here;
        bin--;
        here = 0;
        for (int part = 0; part < parts; part++) {
            here += t->bins[part][bin];
        }
    } while (here < k);
    t->known |= bin << t->level->shift;
    t->mask |= (t->level->bins - 1) << t->level->shift;
    return k;
}

DP_HOT static void count_part(void *arg, int part, int parts)
{
    struct largest *t = arg;
    const float *x = t->x;
    const uint32_t threshold = t->known;
    uint32_t above = 0, equal = 0;
    size_t begin, end;

    dp_part(t->count, DP_BLOCK, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        above += magnitude(x[i]) > threshold;
        equal += magnitude(x[i]) == threshold;
    }
    t->above[part] = above;
    t->equal[part] = equal;
}

/* Distributes `left` of the magnitudes that equal the threshold over the parts. */
static void share_out(struct largest *t, int parts, size_t left)
{
    size_t at = 0;

    for (int part = 0; part < parts; part++) {
        const size_t above = t->above[part];
        t->equal[part] = t->equal[part] < left ? t->equal[part] : left;
        t->above[part] = at;
        left -= t->equal[part];
        at += above + t->equal[part];
    }
}

/* Takes from [begin, end) all above the threshold, and the first `equal` of those equal to it.
 * Returns the next position to write. */
static inline size_t take_some(struct largest *t, size_t begin, size_t end, size_t at,
                               size_t *equal)
{
    for (size_t i = begin; i < end; i++) {
        const uint32_t m = magnitude(t->x[i]);
        if (m > t->known || (m == t->known && *equal > 0)) {
            *equal -= m == t->known;
            t->index[at] = (uint32_t)i;
            t->value[at++] = t->x[i];
            t->x[i] = 0;
        }
    }
    return at;
}

DP_HOT static void take_part(void *arg, int part, int parts)
{
    struct largest *t = arg;
    size_t at = t->above[part], begin, end;

    dp_part(t->count, DP_BLOCK, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i += SOME) {
        const size_t some = end - i < SOME ? end - i : SOME;
        if (some < SOME || any_within(t->x + i, DP_F32_MAGNITUDE, t->known, DP_F32_MAGNITUDE)) {
            at = take_some(t, i, i + some, at, &t->equal[part]);
        }
    }
}

dp_status dp_cpu_take_largest(struct dp_stream *s, uint32_t *index, float *value, float *x,
                              size_t k, size_t count)
{
    struct largest t;
    int parts = s->threads < PARTS ? s->threads : PARTS;

    assert(k <= count);
    if (k == 0) {
        return DP_OK;
    }
    parts = count < DP_PARALLEL_MIN ? 1 : parts;
    t.index = index;
    t.value = value;
    t.x = x;
    t.count = count;
    t.known = t.mask = 0;
    for (int i = 0; i < LEVELS; i++) {
        t.level = &levels[i];
        dp_parallel_parts(parts, histogram_part, &t);
        k = next_bits(&t, parts, k);
    }
    t.above[0] = 0;
    t.equal[0] = k;
    if (parts > 1) {
        dp_parallel_parts(parts, count_part, &t);
        share_out(&t, parts, k);
    }
    dp_parallel_parts(parts, take_part, &t);
    return DP_OK;
}
