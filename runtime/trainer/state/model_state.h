/*
 * model_state.h - what training has learned so far: weights, master weights, running statistics,
 * optimizer state, and counters. A checkpoint holds it (state.h).
 */
#ifndef DP_RUNTIME_TRAINER_STATE_MODEL_STATE_H
#define DP_RUNTIME_TRAINER_STATE_MODEL_STATE_H

#include "models/model.h"
#include "runtime/config/config.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/optim/optimizer.h"
#include "runtime/trainer/state/host_state.h"

struct dp_model_state {
    struct dp_flat flat; /* arrays on the device; the gradient belongs to the exchange */
    void *weights;       /* owned: flat.weights, unless the exchange has made them */
    float *masters;      /* owned: flat.master, unless weights are float32 */
    void *judged;        /* owned: flat.average, rounded; NULL: under float32 */
    const struct dp_optimizer *optimizer;
    const void *optimizer_options;      /* the configuration's */
    struct dp_host_state *host;         /* owned by the trainer; the arrays for the host */
    struct dp_step_params *step_params; /* owned; on the host, sent to the device after changes */
    struct dp_step_params *there;       /* device memory; or the same as step_params */
    struct dp_loss_scaler scaler;
    uint64_t step;           /* steps done so far */
    int64_t batches_tracked; /* number of updates of running statistics */
};

/* Takes the optimizer from the configuration, which must live as long, and describes the model's
 * flat order. Allocates nothing. */
void dp_model_state_open(struct dp_model_state *state, const struct dp_config *config,
                         const struct dp_model *model);

/* Allocates the host's step parameters. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_model_state_allocate_params(struct dp_model_state *state,
                                                    const struct dp_device *device);

/* Allocates all that the exchange has not provided. averages: of the weights there is an average,
 * and each rank has all of them. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_model_state_allocate(struct dp_model_state *state,
                                             const struct dp_model *model,
                                             const struct dp_device *device, bool averages);
void dp_model_state_close(struct dp_model_state *state, const struct dp_device *device);

/* Copies the step parameters from the host to the device, in the order of the stream. */
DP_CHECKED dp_status dp_model_state_send_params(const struct dp_model_state *state,
                                                struct dp_stream *stream);

#endif
