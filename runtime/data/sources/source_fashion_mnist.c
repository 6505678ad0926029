/*
 * source_fashion_mnist.c - 60,000 + 10,000 images of clothes, 28x28, 10 classes.
 *
 * Source: Xiao, Rasul and Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine
 * learning algorithms", arXiv:1708.07747. Debian packages it as dataset-fashion-mnist.
 */
#include <stdbool.h>

#include "runtime/data/formats/idx_set.h"

enum { SIDE = 28 };

/* Whether both files of images hold what the name promises; rows may be fewer, in a cut-down
 * set. */
static dp_status check_side(const struct dp_idx_set *set)
{
    static const int images[] = {DP_IDX_TRAIN_IMAGES, DP_IDX_TEST_IMAGES};

    for (int i = 0; i < 2; i++) {
        const struct dp_idx *file = set->parts[images[i]];
        const struct dp_idx_header *h = file == NULL ? NULL : dp_idx_header(file);
        if (h == NULL) {
            continue;
        }
        if (h->dims != 3 || h->dim[1] != SIDE || h->dim[2] != SIDE) {
            return DP_FAIL(DP_ERR_DATA,
                           "%s: images of %zux%zu are not Fashion-MNIST's 28x28: set data.source "
                           "to idx",
                           dp_idx_name(file), h->dim[1], h->dim[2]);
        }
    }
    return DP_OK;
}

static dp_status fashion_open(void *state, const struct dp_source_config *config,
                              struct dp_source_info *info)
{
    const bool own = config->dir == NULL || config->dir[0] == '\0';
    const char *dir = own ? "/usr/share/datasets/fashion-mnist" : config->dir;
    struct dp_source_info found;
    dp_status status;

    DP_TRY(dp_idx_set_open(state, dir, "apt-get install dataset-fashion-mnist, or set data.dir",
                           config, &found));
    DP_TRY_GOTO(check_side(state), status, failed);
    *info = found;
    return DP_OK;

failed:
    dp_idx_set_close(state);
    return status;
}

static dp_status fashion_load(void *state, uint8_t *const samples[DP_SETS],
                              int32_t *const labels[DP_SETS])
{
    return dp_idx_set_load(state, samples, labels);
}

static void fashion_close(void *state)
{
    dp_idx_set_close(state);
}

const struct dp_source dp_source_fashion_mnist = {
    .plugin = {.name = "fashion-mnist",
               .help = "60,000 + 10,000 images of clothes, 28x28x1, 10 classes",
               .options = NULL,
               .state_bytes = sizeof(struct dp_idx_set)},
    .open = fashion_open,
    .load = fashion_load,
    .close = fashion_close,
};
