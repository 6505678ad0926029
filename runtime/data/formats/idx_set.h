/*
 * idx_set.h - a data set of four IDX files in one folder, as MNIST is published: images and labels
 * for training, images and labels for testing.
 *
 * The files are train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
 * t10k-labels-idx1-ubyte, or the same with .gz appended; if both exist the plain file is used.
 * Images are [rows, height, width]; those with channels are [rows, height, width, channels], and
 * may be called idx4.
 */
#ifndef DP_RUNTIME_DATA_FORMATS_IDX_SET_H
#define DP_RUNTIME_DATA_FORMATS_IDX_SET_H

#include "runtime/data/formats/idx.h"
#include "runtime/data/source.h"

enum dp_idx_part {
    DP_IDX_TRAIN_IMAGES,
    DP_IDX_TRAIN_LABELS,
    DP_IDX_TEST_IMAGES,
    DP_IDX_TEST_LABELS,
    DP_IDX_PARTS
};

/* The state of a source. */
struct dp_idx_set {
    struct dp_idx *parts[DP_IDX_PARTS]; /* owned; open from open() to close(), so that the checked
                                         * files are the ones that are read */
    int classes;
};

/* open, load and close of struct dp_source (source.h). `dir` is config->dir or the source's own
 * default; `hint` says how to get the files ("apt-get install ..., or set data.dir"). */
DP_CHECKED dp_status dp_idx_set_open(struct dp_idx_set *set, const char *dir, const char *hint,
                                     const struct dp_source_config *config,
                                     struct dp_source_info *info);
DP_CHECKED dp_status dp_idx_set_load(struct dp_idx_set *set, uint8_t *const images[DP_SETS],
                                     int32_t *const labels[DP_SETS]);
void dp_idx_set_close(struct dp_idx_set *set);

#endif
