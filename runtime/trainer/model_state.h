/*
 * model_state.h - what a training has learned so far: weights, master weights, running statistics
 * and optimizer state; and what is counted on the way. A checkpoint keeps it (state.h).
 */
#ifndef DP_RUNTIME_TRAINER_MODEL_STATE_H
#define DP_RUNTIME_TRAINER_MODEL_STATE_H

#include "models/model.h"
#include "runtime/config/config.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/optim/optimizer.h"
#include "runtime/trainer/host_state.h"

struct dp_model_state {
    struct dp_flat flat; /* arrays of the device; the gradient is the exchange's */
    void *weights;       /* owned: flat.weights, unless the exchange has made them */
    float *masters;      /* owned: flat.master, unless weights are float32 */
    const struct dp_optimizer *optimizer;
    void *optimizer_state;              /* owned */
    struct dp_host_state *host;         /* owned by the trainer; the arrays for the host */
    struct dp_step_params *step_params; /* owned; the host's, sent to the device when changed */
    struct dp_step_params *there;       /* device memory: step_params itself where that is it */
    struct dp_loss_scaler scaler;
    uint64_t step;           /* done so far */
    int64_t batches_tracked; /* running statistics were updated so often */
};

/* Finds and opens the optimizer, and describes the flat order of the model; memory comes later.
 * Errors: DP_ERR_CONFIG (the optimizer's options), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_model_state_open(struct dp_model_state *state,
                                         const struct dp_config *config,
                                         const struct dp_model *model);

/* The host's step parameters. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_model_state_allocate_params(struct dp_model_state *state,
                                                    const struct dp_device *device);

/* Memory for all that the exchange has not brought along. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_model_state_allocate(struct dp_model_state *state,
                                             const struct dp_model *model,
                                             const struct dp_device *device);
void dp_model_state_close(struct dp_model_state *state, const struct dp_device *device);

/* The step parameters, from the host to the device, in the order of the stream. */
DP_CHECKED dp_status dp_model_state_send_params(const struct dp_model_state *state,
                                                struct dp_stream *stream);

#endif
