/*
 * check_memory.h - the memory of --check: of a rank, and of a host, for 1, 2, 4 and 8 ranks.
 */
#ifndef DP_RUNTIME_RUN_CHECK_MEMORY_H
#define DP_RUNTIME_RUN_CHECK_MEMORY_H

#include "kernels/device.h"
#include "models/model.h"
#include "runtime/config/config.h"
#include "runtime/run/run_options.h"

/* Prints it, for ranks that divide the cores of this host; cuts the model for it where
 * model.recompute is auto. Errors: DP_ERR_NOMEM, those of dp_machine_create(). */
DP_CHECKED dp_status dp_run_check_memory(const struct dp_run_options *options,
                                         const struct dp_config *config, struct dp_model *model,
                                         const struct dp_device *device);

#endif
