/*
 * saved_run.h - what a run has left for whoever uses its model: a whole checkpoint, and the
 * configuration that it was trained with.
 */
#ifndef DP_RUNTIME_RUN_USE_SAVED_RUN_H
#define DP_RUNTIME_RUN_USE_SAVED_RUN_H

#include <stdint.h>

#include "base/files/file.h"
#include "base/json.h"
#include "base/status.h"
#include "models/model.h"
#include "runtime/config/config.h"

struct dp_saved_run {
    char checkpoint[DP_PATH_BYTES]; /* its folder */
    char config[DP_PATH_BYTES];     /* of a model.cfg: the run's config.yaml, or another one */
    uint64_t step;                  /* of training, done by then */
    struct dp_json *state;          /* owned: what its state.json says */
};

/*
 * Finds the newest whole checkpoint for a path, as dp_checkpoint_dir_find() does, and the
 * configuration beside its folder.
 *
 *   given   in   a run, a folder of checkpoints, a checkpoint, or `latest`
 *   config  in   the path of a model.cfg to take instead of the run's; NULL: the run's
 *   out     out  to be released; set only on success
 *
 * Errors: DP_ERR_NOINPUT (no checkpoint, or no config.yaml), DP_ERR_DATA (none is whole),
 * DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_saved_run_find(const char *given, const char *config,
                                       struct dp_saved_run *out);
void dp_saved_run_release(struct dp_saved_run *saved);

/*
 * Its configuration and model. Neither variables of the environment nor flags are for them.
 *
 *   device  in   the device's name in the configuration; NULL: auto
 *   config  out  owned by the caller (dp_config_destroy)
 *   model   out  owned by the caller (dp_model_destroy), before the configuration; both are set
 *                only on success
 *
 * Errors: DP_ERR_CONFIG, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_saved_run_model(const struct dp_saved_run *saved, const char *device,
                                        struct dp_config **config, struct dp_model **model);

#endif
