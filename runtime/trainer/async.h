/*
 * async.h - training in which ranks do not wait for each other at every step: train.mode async with
 * train.staleness above 0.
 *
 * Trainers go on by themselves: a trainer computes the gradient of its rows of the next global
 * batch, sends each server (comm.servers) that server's part, and goes on with the weights that it
 * gets back. A server applies each gradient as it comes, and holds back the answer to a trainer
 * that is more than `staleness` steps ahead of the slowest one (collectives/async/ssp_clock.h).
 *
 *      trainer 0   |step 0|step 1|step 2|..waits..|step 3|        staleness 2
 *      trainer 1   |   step 0    |   step 1   |   step 2   |
 *
 * A gradient is the mean over that trainer's own rows, and is applied at the learning rate of its
 * step times (its rows / rows of the global batch): so the gradients of all trainers for one step,
 * and weight decay, move the weights as far as one synchronous step does, whatever the optimizer.
 * Momentum decays with each gradient, thus faster than once a step; delay itself acts like momentum
 * (Mitliagkas et al., "Asynchrony begets momentum", Allerton 2016).
 *
 * The first server brings the results of a step together, and batch norm's running statistics, once
 * all trainers have done it. All ranks synchronise where evaluation, a checkpoint or measuring is
 * due, and soon after a request to stop: with all gradients up to there applied, and the same
 * weights everywhere. In between weights differ between ranks, and not even two equal runs have the
 * same bits.
 *
 * Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
 * server", NIPS 2013.
 */
#ifndef DP_RUNTIME_TRAINER_ASYNC_H
#define DP_RUNTIME_TRAINER_ASYNC_H

#include "runtime/trainer/step.h"

/* What asynchronous training calls. All but `stepped` may be called on every rank. */
struct dp_async_hooks {
    void *context;
    /* Sets what this rank requests (dp_trainer_set_request): before each step of a trainer, and
     * before a server waits. NULL: nothing. */
    void (*request)(void *context);
    /* A trainer has done a step of its own. NULL: nobody cares. */
    dp_status (*stepped)(void *context);
    /* Once for each step, in order, on every rank. *enough: training shall end soon, which counts
     * on the first server; all ranks decide it from the same numbers. */
    dp_status (*result)(void *context, const struct dp_step_result *result, bool *enough);
};

struct dp_async;

/* For a trainer of a configuration that is dp_config_stale(); borrowed; between steps. Local.
 * Errors: DP_ERR_NOMEM, DP_ERR_CONFIG. */
DP_CHECKED dp_status dp_async_create(struct dp_trainer *trainer, const struct dp_async_hooks *hooks,
                                     struct dp_async **out);
void dp_async_destroy(struct dp_async *async);

/*
 * Trains until `until` steps are done, or fewer when a rank requests something or a result was
 * enough: how many is the same on all ranks. Then they hold the same weights and running
 * statistics, and servers the optimizer state of their parts. Collective.
 *
 *   request  out  [DP_REQUEST_COUNT]: what some rank requests; equal on all
 */
DP_CHECKED dp_status dp_async_run(struct dp_async *async, uint64_t until, bool *request);

/* How stale gradients were: counts [bins], summed over servers, each of which counts those of its
 * part; counts[i]: of gradients before which i of other trainers were applied since their weights
 * were handed out. Collective. Errors: DP_ERR_NOMEM. */
size_t dp_async_bins(const struct dp_async *async);
DP_CHECKED dp_status dp_async_histogram(struct dp_async *async, uint64_t *counts);

#endif
