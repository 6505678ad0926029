/*
 * run_model.h - the model of a run, and into how many parts it is cut (model.recompute;
 * models/model_parts.h).
 */
#ifndef DP_RUNTIME_RUN_RUN_MODEL_H
#define DP_RUNTIME_RUN_RUN_MODEL_H

#include "models/model_parts.h"
#include "runtime/trainer/prepare/memory_plan.h"

/* Makes the model of a configuration, with its loss, in as many parts as are asked for; `auto`
 * keeps it whole until there is a plan. Errors: those of dp_model_create() and dp_model_set_loss();
 * DP_ERR_CONFIG (its layers cannot be cut into so many parts). */
DP_CHECKED dp_status dp_run_make_model(const struct dp_config *config, struct dp_model **out);

/* Whether what a run needs with the model as it is now fits. */
typedef bool dp_recompute_fits(const void *context, const struct dp_memory_plan *plan);

/* Cuts the plan's model into the fewest parts, which cost the least time, with which the run fits;
 * if none do, into those that need the least. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_recompute_choose(const struct dp_memory_plan *plan, struct dp_model *model,
                                         dp_recompute_fits *fits, const void *context);

/* "3 parts: activations take 5.2 MB a rank, not 18.3; 22.1 % more FLOPs". Cuts the plan's model
 * meanwhile. Errors: DP_ERR_NOMEM. */
enum { DP_RECOMPUTE_TEXT = 160 };
DP_CHECKED dp_status dp_recompute_describe(const struct dp_memory_plan *plan,
                                           struct dp_model *model, char text[DP_RECOMPUTE_TEXT]);

#endif
