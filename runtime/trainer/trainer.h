/*
 * trainer.h - one rank's part of a training: model, weights, exchange, optimizer, and one step.
 *
 * The run owns one over the group of trainers; the single-rank baseline makes a second one over a
 * group of this rank alone, which borrows the first one's passes and computes with the same code.
 */
#ifndef DP_RUNTIME_TRAINER_TRAINER_H
#define DP_RUNTIME_TRAINER_TRAINER_H

#include "collectives/exchange/exchange.h"
#include "collectives/exchange/exchange_calls.h"
#include "models/pass.h"
#include "runtime/checkpoint/async_copy.h"
#include "runtime/checkpoint/state_dict.h"
#include "runtime/config/config.h"
#include "runtime/control/stop.h"
#include "runtime/data/loader.h"
#include "runtime/data/rows.h"
#include "runtime/optim/grad_norm.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/optim/optimizer.h"
#include "runtime/trainer/deferred_update.h"
#include "runtime/trainer/graph_capture.h"
#include "runtime/trainer/host_state.h"
#include "runtime/trainer/lanes.h"
#include "runtime/trainer/micro_batch.h"
#include "runtime/trainer/replica_check.h"
#include "runtime/trainer/step_scalars.h"

/* The data set in memory: bytes, one copy on each node. */
struct dp_dataset {
    const uint8_t *train_images, *test_images;
    const int32_t *train_labels, *test_labels;
    size_t train_count, test_count, sample_bytes;
};

struct dp_trainer_config {
    const struct dp_config *config; /* borrowed */
    const struct dp_model *model;   /* borrowed */
    const struct dp_device *device;
    struct dp_group *group;        /* borrowed */
    const struct dp_dataset *data; /* borrowed */
    int threads;                   /* of this rank */
    size_t global_batch;
    bool cached_input;
    uint64_t first_step;                  /* done before: a resumed run goes on there */
    uint64_t total_steps, schedule_steps; /* when it ends; for how many steps lr is made */
    struct dp_algo_choices *algo_choices; /* borrowed; of algorithms; NULL: none are measured */
    struct dp_trainer *lender;            /* NULL, or whose passes or lanes are used */
};

struct dp_trainer {
    const struct dp_config *config;
    const struct dp_model *model;
    const struct dp_device *device;
    const struct dp_dataset *data;
    struct dp_group *group;
    struct dp_stream *stream;             /* owned unless lent */
    struct dp_pass *pass;                 /* owned unless lent; NULL with lanes */
    struct dp_lanes *lanes;               /* owned unless lent; NULL without train.lanes */
    struct dp_algo_choices *algo_choices; /* borrowed, or NULL; the stream's, and those of lanes */
    bool lent;
    struct dp_normalize normalize;
    struct dp_micro_batches parts;
    struct dp_graph_capture *capture; /* owned; NULL: steps are not recorded */
    struct dp_flat flat;
    void *weights;  /* owned: flat.weights, unless the exchange has made them */
    float *masters; /* owned: flat.master, unless weights are float32 */
    struct dp_exchange *exchange;
    const struct dp_optimizer *optimizer;
    void *optimizer_state;
    struct dp_grad_norm *grad_norm; /* NULL: none needed */
    struct dp_loss_scaler scaler;
    struct dp_replica_check *replica_check;
    struct dp_loader *loader;
    struct dp_model_hooks hooks; /* `ready` NULL: gradients are held back until backward is done */
    struct dp_host_state *host_state; /* weights, statistics and optimizer state for the host */
    struct dp_step_params
        *step_params; /* the host's; sent to the device whenever they have changed */
    struct dp_step_params
        *there; /* device memory: step parameters itself where that is the host's */
    struct dp_step_scalars scalars;
    struct dp_batch batch;
    size_t global_batch;
    int trainers; /* ranks [0, trainers) have rows; those behind are servers */
    bool cached_input;
    uint64_t step; /* done so far */
    uint64_t schedule_steps;
    bool request[DP_REQUEST_COUNT];      /* of this rank, for the next step */
    const struct dp_stop *stop;          /* borrowed, or NULL; looked at in long evaluations */
    bool apart;                          /* weights differ between ranks: within local steps */
    struct dp_deferred_updates deferred; /* buckets that the next step's forward waits for */
    struct dp_async_copy *async_copy;    /* borrowed, or NULL; finished before weights change */
    uint64_t wire_bytes;                 /* that this rank sent in its steps */
    uint64_t wire_mark;                  /* dp_exchange_wire() when that was last counted */
    int64_t batches_tracked;             /* running statistics were updated so often */
};

/*
 * Makes everything a step needs; weights are zero until dp_trainer_init or a load. Collective.
 * Every row count that can occur is prepared here; with `choices`, which are settled then, all
 * ranks have the same ones.
 *
 * Errors: those of model, exchange, device and loader; DP_ERR_CONFIG for what cannot go together.
 */
DP_CHECKED dp_status dp_trainer_create(const struct dp_trainer_config *config,
                                       struct dp_trainer **out);
void dp_trainer_destroy(struct dp_trainer *trainer);

/* prepare.c, for dp_trainer_create: stream, passes or lanes, tape. Collective where there are
 * choices. */
DP_CHECKED dp_status dp_trainer_prepare(struct dp_trainer *trainer, int threads);

/* Why steps of this configuration are not recorded, in words that follow
 * "steps are not recorded: "; NULL: they are. Local. */
const char *dp_trainer_unrecorded(const struct dp_trainer *trainer);

/* Initial weights from the seed: equal on all ranks. Collective. */
DP_CHECKED dp_status dp_trainer_init(struct dp_trainer *trainer);

/*
 * Float32 weights from outside, whole, in flat order: they are written into the memory of
 * dp_trainer_whole() [trained] (of ranks that share one copy by the one that
 * dp_exchange_writes()), then taken over as master weights and rounded to the compute type. Between
 * steps, since the memory may be that of the gradient. dp_trainer_take: collective.
 */
float *dp_trainer_whole(struct dp_trainer *trainer);
DP_CHECKED dp_status dp_trainer_take(struct dp_trainer *trainer);

/* Rounds master weights to the compute type anew, on all ranks. Nothing to do for float32.
 * Collective. */
DP_CHECKED dp_status dp_trainer_round(struct dp_trainer *trainer);

/* Ranks whose state differs find out where, and have the same again: dp_replica_check_resolve(),
 * and the rounding of restored master weights. Collective. */
DP_CHECKED dp_status dp_trainer_settle(struct dp_trainer *trainer);

/* The weights that layers read [trained], in float32. Between steps: may lie in the gradient's
 * memory. */
DP_CHECKED dp_status dp_trainer_wide(struct dp_trainer *trainer, const float **out);

/* Copies weights, running statistics and optimizer state of another trainer of the same model; of
 * the state only what `from` owns, to the beginning, and rounded weights for masters: enough to
 * measure with. */
DP_CHECKED dp_status dp_trainer_copy_state(struct dp_trainer *to, const struct dp_trainer *from);

static inline bool dp_trainer_serves(const struct dp_trainer *t)
{
    return t->group->rank >= t->trainers;
}

/* This rank's rows of so many; servers have none. */
static inline struct dp_range dp_trainer_rows(const struct dp_trainer *t, size_t rows)
{
    return dp_trainer_serves(t) ? (struct dp_range){rows, 0}
                                : dp_row_range(rows, t->group->rank, t->trainers);
}

static inline struct dp_lanes_share dp_trainer_share(const struct dp_trainer *t)
{
    return (struct dp_lanes_share){t->group->rank, t->trainers};
}

/* Rows that the global batch of a step really has. */
size_t dp_trainer_global_rows(const struct dp_trainer *trainer, uint64_t step);

/* What the optimizer gets for this rank's part of bucket b, whose gradient lies at `grad`. */
struct dp_update dp_trainer_update(const struct dp_trainer *trainer, int b, const float *grad);

/* The next batch; trainer->batch. For dp_trainer_step(). */
DP_CHECKED dp_status dp_trainer_batch(struct dp_trainer *trainer);

/* That, and the step parameters of the step, on the host. */
DP_CHECKED dp_status dp_trainer_begin(struct dp_trainer *trainer);

/* Forward and backward of this rank's rows of the batch, whose gradient is handed to the exchange
 * tensor by tensor. For dp_trainer_step(). */
DP_CHECKED dp_status dp_trainer_compute(struct dp_trainer *trainer);

/*
 * Ends what is left open: late updates, a snapshot that is being copied, and local steps
 * (train.local_steps), whose weights and optimizer state become their means over the ranks, so that
 * all have the same again. Nothing to do where they do. Collective; before whatever looks at the
 * weights of all ranks.
 *
 * Source: Lin, Stich, Patel and Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020;
 * that the momentum is averaged too: Yu, Jin and Yang, ICML 2019, algorithm 1.
 */
DP_CHECKED dp_status dp_trainer_meet(struct dp_trainer *trainer);

/* All that dp_trainer_add_state() lists, from the device to the host and back; done when they
 * return. Between steps. */
DP_CHECKED dp_status dp_trainer_fetch(struct dp_trainer *trainer);
DP_CHECKED dp_status dp_trainer_put(struct dp_trainer *trainer);

/* Adds a row for everything that a step changes and a later one needs. Arrays are the host's. */
void dp_trainer_add_state(struct dp_trainer *trainer, struct dp_state_dict *list);

/* Counts what was sent since the last call, or since a step began. Local. */
static inline void dp_trainer_note_wire(struct dp_trainer *t)
{
    const uint64_t now = dp_exchange_wire(t->exchange);

    t->wire_bytes += now - t->wire_mark;
    t->wire_mark = now;
}

/* What a step came to that all trainers have done. */
struct dp_step_result {
    uint64_t step; /* from 1 */
    size_t rows;   /* of the global batch */
    double lr;
    struct dp_step_report report;
};

/* One training step: step.c. Collective. */
DP_CHECKED dp_status dp_trainer_step(struct dp_trainer *trainer, struct dp_step_report *report);

/* Mean loss and accuracy over the test rows, sharded over ranks; equal on all. Collective. Goes in
 * rounds of about a quarter of a second, and is broken off behind one of them, on all ranks, when a
 * rank has been asked to stop. Errors: also DP_STOPPED (broken off; not logged). */
struct dp_evaluation {
    double loss, accuracy;
};
DP_CHECKED dp_status dp_trainer_evaluate(struct dp_trainer *trainer, struct dp_evaluation *out);

#endif
