/*
 * run_model.h - the model of a run.
 */
#ifndef DP_RUNTIME_RUN_RUN_MODEL_H
#define DP_RUNTIME_RUN_RUN_MODEL_H

#include "models/model.h"
#include "runtime/config/config.h"

/* Makes the model of a configuration, with its loss. Errors: those of dp_model_create() and
 * dp_model_set_loss(). */
DP_CHECKED dp_status dp_run_make_model(const struct dp_config *config, struct dp_model **out);

#endif
