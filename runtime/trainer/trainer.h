/*
 * trainer.h - one rank's part of a training: model, weights, exchange, optimizer, and one step.
 *
 * The run owns one over the group of trainers; the single-rank baseline makes a second one over a
 * group of this rank alone, which borrows the passes of the first one and runs the same code.
 *
 * Other folders use only this header; trainer_parts.h has the trainer's members.
 */
#ifndef DP_RUNTIME_TRAINER_TRAINER_H
#define DP_RUNTIME_TRAINER_TRAINER_H

#include "collectives/exchange/exchange.h"
#include "models/model.h"
#include "runtime/checkpoint/async_copy.h"
#include "runtime/config/config.h"
#include "runtime/control/stop.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/trainer/compute/input.h"
#include "runtime/trainer/evaluation.h"
#include "runtime/trainer/modes.h"
#include "runtime/trainer/state/state.h"
#include "runtime/trainer/step.h"
#include "runtime/trainer/update/weight_sync.h"

struct dp_trainer;

struct dp_trainer_config {
    const struct dp_config *config; /* borrowed */
    const struct dp_model *model;   /* borrowed */
    const struct dp_device *device;
    struct dp_group *group;          /* borrowed */
    const struct dp_dataset *data;   /* borrowed */
    int threads;                     /* of this rank */
    size_t global_batch;             /* 0: as configured */
    struct dp_input_speaker speaker; /* where ranks read and fail each by itself */
    bool cached_input;
    bool others_read;    /* batches come from a receiver, which is set before the first one */
    uint64_t first_step; /* number of steps done before: not 0 for a resumed run */
    uint64_t total_steps, schedule_steps; /* last step; steps of the learning rate's schedule */
    struct dp_algo_choices *algo_choices; /* borrowed; NULL: no algorithms are measured */
    struct dp_trainer *lender;            /* whose passes or lanes it uses, or NULL */
};

/*
 * Creates everything that a step needs, prepared for every row count that can occur; weights are
 * zero until dp_trainer_init() or a load. With `algo_choices` all ranks then have the same choices,
 * which no longer change. Collective.
 *
 * Errors: those of model, exchange, device and loader; DP_ERR_CONFIG for what cannot go together.
 */
DP_CHECKED dp_status dp_trainer_create(const struct dp_trainer_config *config,
                                       struct dp_trainer **out);
void dp_trainer_destroy(struct dp_trainer *trainer);

/* The configuration of a second trainer of this rank alone, which borrows from this one and trains
 * on this rank's share of the global batch. The caller sets group, threads and total_steps. */
struct dp_trainer_config dp_trainer_lend(struct dp_trainer *trainer);

/* ---- members; pointers are borrowed ---- */

struct dp_exchange *dp_trainer_exchange(const struct dp_trainer *trainer);
struct dp_group *dp_trainer_group(const struct dp_trainer *trainer);
const struct dp_model *dp_trainer_model(const struct dp_trainer *trainer);
const struct dp_config *dp_trainer_configuration(const struct dp_trainer *trainer);
const struct dp_dataset *dp_trainer_data(const struct dp_trainer *trainer);
const struct dp_loss_scaler *dp_trainer_loss_scaler(const struct dp_trainer *trainer);

/* On which this rank computes. */
struct dp_stream *dp_trainer_stream(const struct dp_trainer *trainer);

/* Those of the last step. */
const struct dp_step_params *dp_trainer_step_params(const struct dp_trainer *trainer);

/* Its arrays on the device, and those on the host (host_state.h). */
const struct dp_flat *dp_trainer_flat(const struct dp_trainer *trainer);
const struct dp_flat *dp_trainer_host_flat(const struct dp_trainer *trainer);

/* ---- progress and counters ---- */

/* Steps done so far, over all runs. */
uint64_t dp_trainer_steps(const struct dp_trainer *trainer);

/* Number of ranks that have rows: all but servers. */
int dp_trainer_ranks(const struct dp_trainer *trainer);

/* Bytes that this rank sent in its steps. */
uint64_t dp_trainer_wire_bytes(const struct dp_trainer *trainer);

/* Number of times that state was restored from other ranks. */
int64_t dp_trainer_restored(const struct dp_trainer *trainer);

/* Reads the next batch without a step, to measure input. Whether that has failed says
 * dp_trainer_input_failure(). */
void dp_trainer_next_batch(struct dp_trainer *trainer);

/* What its threads have done to prepare batches; without any, zeros. */
struct dp_loader_report dp_trainer_input(const struct dp_trainer *trainer);

/* Why this rank, or one that reads for it, could not read its rows of the last batch, and what that
 * one has to say; DP_OK: it could. */
DP_CHECKED dp_status dp_trainer_input_failure(const struct dp_trainer *trainer,
                                              const struct dp_log_error **error);

/* The batch of the last step. */
const struct dp_batch *dp_trainer_batch(const struct dp_trainer *trainer);

/* Whether ranks have done local steps since they last averaged: their weights differ. */
bool dp_trainer_unaveraged(const struct dp_trainer *trainer);

/* Whether gradients are sent only after all ranks know that theirs are finite (update_rule.h). */
bool dp_trainer_holds_back(const struct dp_trainer *trainer);

/* ---- settings ---- */

/* Sets this rank's request for the next step's tail. */
void dp_trainer_set_request(struct dp_trainer *trainer, enum dp_request request, bool on);

/* Sets where batches come from that other ranks read; borrowed. */
void dp_trainer_set_receiver(struct dp_trainer *trainer, struct dp_batch_receiver *receiver);

/* Sets the flag that ends long evaluations and measurements, or NULL; borrowed. */
void dp_trainer_set_stop(struct dp_trainer *trainer, const struct dp_stop *stop);

typedef void dp_bucket_hook(void *context, struct dp_trainer *trainer, int bucket, bool summed);

/* Before a step waits for the sum of a bucket, and again when that is there (`summed`) and nothing
 * has used it, `hook` is called: to inject faults. NULL: nothing is. The context is borrowed. */
void dp_trainer_on_bucket(struct dp_trainer *trainer, dp_bucket_hook *hook, void *context);
const struct dp_stop *dp_trainer_stop(const struct dp_trainer *trainer);

/* Sets a copy that each step finishes before weights change, or NULL; borrowed. */
void dp_trainer_set_async_copy(struct dp_trainer *trainer, enum dp_async_copy_use use,
                               struct dp_async_copy *copy);

/* Finishes these copies now. */
void dp_trainer_finish_copies(const struct dp_trainer *trainer);

#endif
