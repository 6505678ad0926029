/*
 * load_samples.h - a whole data set into memory, as the model takes it, by several threads of
 * several ranks.
 *
 * Whoever is free takes the next few samples, counted in memory that all of them share. Of several
 * bad samples the first one is reported, whoever meets it.
 */
#ifndef DP_RUNTIME_DATA_LOAD_SAMPLES_H
#define DP_RUNTIME_DATA_LOAD_SAMPLES_H

#include <stdatomic.h>

#include "runtime/data/samples.h"

/* Where the set goes, and how far it has come: in the memory of those who load it together. Zeros
 * to begin with. Places count both sets: those to train on, then those to test with. */
struct dp_load_state {
    atomic_size_t next;      /* place that nobody has taken yet */
    atomic_size_t done;      /* samples that were read, or are bad */
    atomic_size_t first_bad; /* 1 + place of the first one that ends the load; 0: none */
    atomic_size_t bad;       /* samples that are bad and do not end it */
};

struct dp_load_job {
    struct dp_samples *samples;
    struct dp_load_state *state;
    uint8_t *out[DP_SETS];    /* [count, shape] */
    int32_t *labels[DP_SETS]; /* [count, dp_label_words()] */
    uint8_t *bad;             /* [places]: set to 1 for a bad one; NULL: it ends the load */
    int threads;              /* of this rank */
    void (*progress)(void *context, size_t done, size_t all); /* may be NULL */
    void *context;
};

/*
 * This rank's part of the work; returns when nothing is left to be taken. Others may still be busy:
 * only after all have returned is `first_bad` known, and the data whole.
 *
 *   place  out  where this rank's error stands, counted as `first_bad`; 0: it has none of its own
 *
 * Errors: those of dp_sample_reader_read(). Of bad samples that do not end it, the first few of
 * each rank are named in warnings.
 */
DP_CHECKED dp_status dp_load_samples(const struct dp_load_job *job, size_t *place);

/* After all have returned: puts in the place of each bad sample the next good one of its set,
 * counted from its end to its begin, as dp_sample_reader_read_good() does. False: a set has none.
 */
bool dp_load_replace(const struct dp_load_job *job);

#endif
