/*
 * async.h - training in which ranks do not wait for each other at every step: train.mode async with
 * train.staleness above 0.
 *
 * Each trainer keeps its own pace: it computes the gradient of its rows of the next global batch,
 * sends each server (comm.servers) that server's part, and continues with the weights that it gets
 * back. A server applies each gradient when it arrives, and delays the answer to a trainer that is
 * more than `staleness` steps ahead of the slowest one (collectives/async/ssp_clock.h).
 *
 *      trainer 0   |step 0|step 1|step 2|..waits..|step 3|        staleness 2
 *      trainer 1   |   step 0    |   step 1   |   step 2   |
 *
 * A gradient is the mean over that trainer's own rows, and is applied at the learning rate of its
 * step times (its rows / rows of the global batch). So the gradients of all trainers for one step,
 * and weight decay, move the weights as far as one synchronous step does, whatever the optimizer.
 * Momentum decays with each gradient, so faster than once a step; the delay itself acts like
 * momentum (Mitliagkas et al., "Asynchrony begets momentum", Allerton 2016).
 *
 * The first server combines the results of a step, and batch norm's running statistics, when all
 * trainers have done it. All ranks synchronise where evaluation, a checkpoint or measuring is due,
 * and soon after a request to stop: then all earlier gradients have been applied, and weights are
 * equal everywhere. In between, weights differ between ranks, and two identical runs do not have
 * the same bits.
 *
 * Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
 * server", NIPS 2013.
 */
#ifndef DP_RUNTIME_TRAINER_ASYNC_H
#define DP_RUNTIME_TRAINER_ASYNC_H

#include "runtime/trainer/step.h"

/* Functions that asynchronous training calls. All but `stepped` may be called on any rank. */
struct dp_async_hooks {
    void *context;
    /* Sets what this rank requests (dp_trainer_set_request): before each step of a trainer, and
     * before a server waits. NULL: nothing. */
    void (*request)(void *context);
    /* Called after each step of this trainer. NULL: nothing is called. */
    dp_status (*stepped)(void *context);
    /* Called once for each step, in order, on every rank. *enough: training is to end soon; all
     * ranks decide that from the same numbers, and the first server acts on it. */
    dp_status (*result)(void *context, const struct dp_step_result *result, bool *enough);
};

struct dp_async;

/* Creates it for a trainer, which is borrowed, between steps; its configuration is
 * dp_config_stale(). Local. Errors: DP_ERR_NOMEM, DP_ERR_CONFIG. */
DP_CHECKED dp_status dp_async_create(struct dp_trainer *trainer, const struct dp_async_hooks *hooks,
                                     struct dp_async **out);
void dp_async_destroy(struct dp_async *async);

/*
 * Trains until `until` steps are done, of which some are not yet, or fewer when a rank requests
 * something or a hook has set *enough; the number is the same on all ranks. Afterwards they have
 * the same weights and running statistics, and servers have the optimizer state of their parts.
 * Collective.
 *
 *   request  out  [DP_REQUEST_COUNT]: what some rank requests; equal on all
 */
DP_CHECKED dp_status dp_async_run(struct dp_async *async, uint64_t until, bool *request);

/* How stale gradients were: counts [bins], summed over servers, each of which counts the gradients
 * of its part. counts[i]: number of gradients that were applied after i gradients of other trainers
 * had changed the weights they were computed from. Collective. Errors: DP_ERR_NOMEM. */
size_t dp_async_bins(const struct dp_async *async);
DP_CHECKED dp_status dp_async_histogram(struct dp_async *async, uint64_t *counts);

#endif
