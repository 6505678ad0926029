/*
 * whole_run.h - runs of a small model in this process, like main()'s, in a scratch folder.
 */
#ifndef DP_TESTS_SUPPORT_WHOLE_RUN_H
#define DP_TESTS_SUPPORT_WHOLE_RUN_H

#include "base/files/file.h"
#include "base/json.h"
#include "collectives/world/world.h"
#include "runtime/run/run.h"
#include "runtime/run/run_options.h"
#include "tests/support/scratch.h"

/* Four steps an epoch, the last one short. Everything with state, or that depends on the step's
 * number, is on. */
static const char whole_run_text[] =
    "data: {source: synthetic, samples: 37, test_samples: 9}\n"
    "train: {global_batch: 10, steps: 30, seed: 3}\n"
    "optimizer: {name: adamw, lr: 0.01, clip_norm: 0.5, weight_decay: 0.1,\n"
    "            schedule: {name: cosine, warmup_steps: 8}}\n"
    "checkpoint: {every_steps: 3, keep: 100}\n"
    "early_stop: {metric: test_loss, patience: 50, min_delta: 10}\n"
    "failure_stop: {spike_sigma: 1000, spike_window: 5, chance_steps: 14}\n"
    "device: {name: ref}\n"
    "model:\n  input: [4, 4, 2]\n"
    "  layers: [conv2d: {filters: 3, kernel: 3, padding: 1}, batchnorm: {}, "
    "relu: {}, flatten: {},\n"
    "           dropout: {rate: 0.2}, dense: {units: 3}]\n";

/* The options of a run into that folder; valid for the next four calls. */
static inline struct dp_run_options options_of(const char *out, int steps, const char *resume)
{
    static char config[256], folder[4][256];
    static int turn;
    char *path = folder[turn++ % 4];

    (void)snprintf(config, sizeof(config), "%s", scratch_path("small.cfg"));
    (void)snprintf(path, sizeof(folder[0]), "%s", scratch_path(out));
    return (struct dp_run_options){
        .config = config, .out = path, .resume = resume, .steps = steps, .quiet = true};
}

static inline dp_status whole_run(const struct dp_run_options *options)
{
    struct dp_world *world = NULL;
    dp_status status;

    scratch_write(scratch_path("small.cfg"), whole_run_text, sizeof(whole_run_text) - 1);
    status = dp_world_create(&world);
    if (status == DP_OK) {
        status = dp_run_main(options, world, NULL);
        dp_world_destroy(world);
    }
    return status;
}

#endif
