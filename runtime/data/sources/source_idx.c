/*
 * source_idx.c - any data set in four IDX files, of any image size.
 */
#include "runtime/data/formats/idx_set.h"

static dp_status idx_open(void *state, const struct dp_source_config *config,
                          struct dp_source_info *info)
{
    if (config->dir == NULL || config->dir[0] == '\0') {
        return DP_FAIL(DP_ERR_CONFIG, "data.dir: source idx needs the folder of its files");
    }
    return dp_idx_set_open(state, config->dir, "put the files there, or set data.dir", config,
                           info);
}

static dp_status idx_load(void *state, uint8_t *const samples[DP_SETS],
                          int32_t *const labels[DP_SETS])
{
    return dp_idx_set_load(state, samples, labels);
}

static void idx_close(void *state)
{
    dp_idx_set_close(state);
}

const struct dp_source dp_source_idx = {
    .plugin = {.name = "idx",
               .help = "four IDX files in data.dir, named as those of MNIST, plain or .gz",
               .options = NULL,
               .state_bytes = sizeof(struct dp_idx_set)},
    .open = idx_open,
    .load = idx_load,
    .close = idx_close,
};
