/*
 * samples_own.h - the members of an open data set, for the two files that work on it.
 */
#ifndef DP_RUNTIME_DATA_SAMPLES_OWN_H
#define DP_RUNTIME_DATA_SAMPLES_OWN_H

#include <stdatomic.h>

#include "runtime/data/samples.h"
#include "runtime/data/split.h"

enum { DP_SAMPLES_WARNED = 5 /* most of one rank */ };

struct dp_samples {
    struct dp_source_config config;
    const struct dp_source *source;
    void *state;                 /* owned: the source's */
    struct dp_source_info found; /* by the source */
    struct dp_samples_info info;
    struct dp_split split; /* test 0: the test set is the source's own */
    uint8_t *held[DP_SETS];
    int32_t *held_labels[DP_SETS];           /* owned; NULL: not held */
    struct dp_kept_units kept;               /* bytes NULL: none are */
    atomic_size_t warned[DP_SAMPLES_WARNED]; /* bad samples of which a warning was given: twice its
                                              * number and its set, plus 1; 0: none yet */
};

/* Where sample `i` of a set lies in the source. */
size_t dp_samples_locate(const struct dp_samples *samples, enum dp_set set, size_t i,
                         enum dp_set *from);

#endif
