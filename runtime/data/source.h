/*
 * source.h - where the samples of a data set come from.
 *
 * A source gives two sets of samples, to train on and to test with; the second may be missing. A
 * sample is numbers or a picture, and a label. What a model takes is made of it by decode.h.
 *
 * A source that can give any sample at any time has `fetch`; one that has to be read from front to
 * back has `load`. Nobody but samples.h calls either.
 *
 * To add one: write source_<name>.c that defines `const struct dp_source dp_source_<name>`, and
 * add a line to sources.def. The conformance test (test_sources) then covers it.
 */
#ifndef DP_RUNTIME_DATA_SOURCE_H
#define DP_RUNTIME_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/plugin.h"
#include "base/status.h"
#include "runtime/data/buffer.h"
#include "runtime/data/sample.h"

/* What the run asks for. */
struct dp_source_config {
    const char *dir;              /* borrowed; the folder of the files; NULL or "": the default */
    struct dp_sample_shape input; /* of the model, in any element; count 0: whatever there is */
    int classes;                  /* labels are below; 0: any */
    size_t targets;               /* the model's outputs, where each is compared with a number that
                                   * may be any (train.loss); 0: labels are classes */
    bool shares;                  /* these numbers are from 0 to 1 */
    uint64_t seed;
    size_t samples, test_samples; /* how many `synthetic` makes; 0: its default */
    double test_fraction;         /* of the training set, where there is no test set; 0: none */
    enum dp_resize resize;
    bool label_last;         /* of csv */
    double remote_wait_s;    /* of records: a server that sends nothing for so long is given up */
    const char *local_cache; /* borrowed; of records: a folder for copies; NULL or "": none */
    uint64_t local_cache_bytes; /* its budget; 0: by what is free there */
    bool only_train;            /* a test set may be missing, and is not split off */
};

/* What the source has. */
struct dp_source_info {
    size_t count[DP_SETS]; /* samples; of the test set 0 where there is none, else 1 or more */
    struct dp_sample_shape shape;   /* of every sample */
    int classes;                    /* labels are below; 0: not known before they are read */
    size_t targets;                 /* numbers of a label, as many as asked for; 0: one, a class
                                     * unless the model has one output */
    const char *const *class_names; /* [classes]; borrowed until close(); NULL: they have none */
    char note[200];                 /* what is worth a warning; empty: nothing */
    uint64_t copied;                /* bytes that local_cache must hold, so that nothing is copied
                                     * again; 0: there are no copies */
};

/* Units (see below) that are kept in memory: number u of a set begins at bytes + at[set][u]. */
struct dp_kept_units {
    const uint8_t *bytes;
    const uint64_t *at[DP_SETS];
    const uint8_t *there[DP_SETS]; /* not 0: it is there */
};

/* What fetch() keeps from call to call, for one thread. Begins with zeros. */
struct dp_fetcher {
    struct dp_buffer bytes, more;
    uint64_t held;     /* what it holds, as the source numbers it from 1; 0: nothing */
    const void *place; /* borrowed; of records: where that lies, decompressed */
    bool shares;       /* of records: it lies in memory of all fetchers */
    bool passes;       /* samples that it reads will not be read again soon */
    const struct dp_kept_units *kept; /* borrowed; NULL: all is read */
    uint64_t read_ns, expand_ns;      /* spent so far: see stream/stage.h */
    uint64_t read_bytes, expand_bytes;
};

/* Unit `u` where it is kept, else NULL. */
static inline const uint8_t *dp_kept_unit(const struct dp_fetcher *fetcher, enum dp_set set,
                                          size_t u)
{
    const struct dp_kept_units *kept = fetcher->kept;

    return kept != NULL && kept->there[set][u] != 0 ? kept->bytes + kept->at[set][u] : NULL;
}

struct dp_source {
    struct dp_plugin plugin; /* name, help, options, state_bytes */

    /*
     * Finds the files and reads their headers only, so that mistakes come to light early and on
     * every rank. On error nothing is left behind and close() must not be called.
     *
     *   state  the zeroed state from dp_plugin_create()
     *   info   out  set only on success
     *
     * Errors: DP_ERR_NOINPUT (no file), DP_ERR_DATA (no such file format, files that contradict
     * each other), DP_ERR_CONFIG (dir is missing), DP_ERR_NOMEM.
     */
    dp_status (*open)(void *state, const struct dp_source_config *config,
                      struct dp_source_info *info);

    /*
     * Reads every sample of both sets, and checks it. At most once.
     *
     *   samples  out  for each set [count, shape]
     *   labels   out  for each set [count]
     *
     * Errors: DP_ERR_DATA (a damaged, short or long file; a label out of range), DP_ERR_NOINPUT
     * (a file cannot be read), DP_ERR_NOMEM.
     */
    dp_status (*load)(void *state, uint8_t *const samples[DP_SETS], int32_t *const labels[DP_SETS]);

    /*
     * Reads one sample. Several threads call it at once, each with a fetcher of its own.
     *
     *   raw  out  its data lies in the fetcher until the next call; its label is as it was found
     *
     * Errors: DP_ERR_DATA (damaged, or no number), DP_ERR_NOINPUT, DP_ERR_NOMEM; each names the
     * sample as name() does.
     */
    dp_status (*fetch)(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                       struct dp_raw *raw);

    /*
     * Units are what a source reads at once, and can be kept in memory as it lies there: the file
     * of a picture, or a block of records. fetch() takes kept ones. NULL, all three: samples are
     * kept decoded only, or not at all. Several threads call them at once.
     *
     *   unit_bytes  0: it cannot be read
     *   read_unit   out [bytes], which unit_bytes() has said; checked as fetch() checks it. Errors
     *               as there.
     */
    size_t (*units)(const void *state, enum dp_set set);
    size_t (*unit_bytes)(const void *state, enum dp_set set, size_t unit);
    dp_status (*read_unit)(const void *state, enum dp_set set, size_t unit, size_t bytes,
                           uint8_t *out);

    /* The most that the buffers of a fetcher will take. NULL: a few samples show it. */
    size_t (*fetcher_bytes)(const void *state);

    /* Whether samples that are read from now on, by one thread, are a few to look at, for which it
     * does not pay to fetch more than them. NULL: it never fetches more. */
    void (*look)(void *state, bool looks);

    /*
     * Whoever reads rows of a window at random needs all of its units again and again. NULL, all
     * three: they are read again.
     *
     *   window_bytes  of the units that any `rows` training rows in a row lie in, at most
     *   share         from now on fetchers share what they have read, in so many bytes. Errors:
     *                 DP_ERR_NOMEM
     *   leave         a fetcher will be used no more, and gives back what it shares
     */
    size_t (*window_bytes)(const void *state, size_t rows);
    dp_status (*share)(void *state, size_t rows, size_t bytes);
    void (*leave)(const void *state, struct dp_fetcher *fetcher);

    /* Writes where a sample is to be found: "pets/train/cat/7.png", "train.csv: line 3". */
    void (*name)(const void *state, enum dp_set set, size_t row, char *text, size_t size);
    /* The same of its label. NULL: it lies with the sample. */
    void (*name_label)(const void *state, enum dp_set set, size_t row, char *text, size_t size);

    /* Releases what open() took; the state itself is the caller's. */
    void (*close)(void *state);
};

extern struct dp_plugin_family dp_sources;

#endif
