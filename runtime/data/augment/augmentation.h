/*
 * augmentation.h - one way to change a training picture at random.
 *
 * A picture is [height, width, channels] of bytes or of float32, before data.normalize; what comes
 * out has the same shape. Random numbers are functions of seed, epoch and row, so that the result
 * is the same on any rank and thread, and after a resume.
 *
 * To add one: write augment_<name>.c that defines `const struct dp_augmentation
 * dp_augmentation_<name>`, and add a line to augmentations.def. test_augment then covers it.
 */
#ifndef DP_RUNTIME_DATA_AUGMENT_AUGMENTATION_H
#define DP_RUNTIME_DATA_AUGMENT_AUGMENTATION_H

#include "base/plugin.h"
#include "base/random.h"
#include "runtime/data/sample.h"

/* The random numbers of one sample for one augmentation. */
struct dp_draw {
    uint64_t seed, row;
    uint32_t what, epoch;
};

/* Four numbers; `block` is below 16. */
static inline void dp_draw_block(const struct dp_draw *draw, uint32_t block, uint32_t out[4])
{
    dp_random_block(draw->seed, draw->what + block, draw->epoch, draw->row, out);
}

/* So far away from 0 that its logarithm can be taken: (0, 1). */
static inline double dp_draw_inside(uint32_t bits)
{
    return ((double)bits + 0.5) / 4294967296.0;
}

/* 0 to count - 1, each as often. */
static inline int dp_draw_below(uint32_t bits, int count)
{
    return (int)(((uint64_t)bits * (uint64_t)count) >> 32);
}

struct dp_augmentation {
    struct dp_plugin plugin;

    /* Why pictures of this shape cannot be changed so; NULL: they can. May be NULL. */
    const char *(*refuse)(const void *state, const struct dp_sample_shape *shape);

    /* Of a picture of any size: which part of it apply() would scale to the shape. NULL: there is
     * none. */
    void (*part)(const void *state, int height, int width, const struct dp_draw *draw,
                 struct dp_part *part);

    /* It either leaves a picture as it is, or mirrors it: true. NULL: it does something else. */
    bool (*mirrors)(const void *state, const struct dp_draw *draw);

    /* Mixes each sample with another one: the share of the sample, 0 to 1. Comes last, takes
     * samples of any shape, and has no apply(). NULL: it changes samples by themselves. */
    double (*share)(const void *state, const struct dp_draw *draw);

    /* Writes the changed picture; both are aligned to their elements, and do not overlap. */
    void (*apply)(const void *state, const struct dp_sample_shape *shape,
                  const struct dp_draw *draw, const uint8_t *in, uint8_t *out);
};

extern struct dp_plugin_family dp_augmentations;

#endif
