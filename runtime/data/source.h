/*
 * source.h - where the rows of a data set come from.
 *
 * A source gives two sets of rows, to train on and to test with. A row is an image of bytes,
 * [height, width, channels], and a label. Bytes stay bytes: the model scales them.
 *
 * To add one: write source_<name>.c that defines `const struct dp_source dp_source_<name>`, and
 * add a line to sources.def. The conformance test (test_sources) then covers it.
 */
#ifndef DP_RUNTIME_DATA_SOURCE_H
#define DP_RUNTIME_DATA_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/plugin.h"
#include "base/status.h"

/* What the run asks for. */
struct dp_source_config {
    const char *dir;             /* borrowed; the folder of the files; NULL or "": the default */
    size_t sample_bytes;         /* of the model's input: height * width * channels */
    int height, width, channels; /* height 0: the input is flat, only sample_bytes is compared */
    int classes;                 /* the model's outputs: labels are 0 to classes - 1 */
    uint64_t seed;
    size_t samples, test_samples; /* how many `synthetic` makes; 0: its default */
};

/* What the source has. Counts are 1 or more. */
struct dp_source_info {
    size_t train_count, test_count;
    size_t sample_bytes; /* as configured */
};

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
     * each other or the model), DP_ERR_CONFIG (dir is missing), DP_ERR_NOMEM.
     */
    dp_status (*open)(void *state, const struct dp_source_config *config,
                      struct dp_source_info *info);

    /*
     * Reads every row, and checks it. At most once. Memory is the caller's, who may share it: then
     * one rank of a node calls this.
     *
     *   train_images, test_images  out  [count, sample_bytes]
     *   train_labels, test_labels  out  [count]
     *
     * Errors: DP_ERR_DATA (a damaged, short or long file; a label out of range), DP_ERR_NOINPUT
     * (a file cannot be read), DP_ERR_NOMEM.
     */
    dp_status (*load)(void *state, uint8_t *train_images, int32_t *train_labels,
                      uint8_t *test_images, int32_t *test_labels);

    /* Releases what open() took; the state itself is the caller's. */
    void (*close)(void *state);
};

extern struct dp_plugin_family dp_sources;

#endif
