/*
 * trainer_parts.h - the members of a trainer, for the files of this folder and tests.
 */
#ifndef DP_RUNTIME_TRAINER_TRAINER_PARTS_H
#define DP_RUNTIME_TRAINER_TRAINER_PARTS_H

#include "collectives/exchange/exchange.h"
#include "runtime/config/config.h"
#include "runtime/control/stop.h"
#include "runtime/data/rows.h"
#include "runtime/trainer/compute/compute.h"
#include "runtime/trainer/compute/input.h"
#include "runtime/trainer/modes.h"
#include "runtime/trainer/state/model_state.h"
#include "runtime/trainer/step_scalars.h"

struct dp_trainer {
    const struct dp_config *config;
    const struct dp_model *model;
    const struct dp_device *device;
    struct dp_group *group;
    int trainers; /* ranks [0, trainers) have rows; the others are servers */
    uint64_t schedule_steps;

    struct dp_model_state state;    /* what a checkpoint holds */
    struct dp_input input;          /* batches */
    struct dp_compute compute;      /* how gradients are computed */
    struct dp_exchange *exchange;   /* owned; gradients in, sums out */
    struct dp_modes modes;          /* when weights change */
    struct dp_step_scalars scalars; /* of this rank, for the tail */

    bool request[DP_REQUEST_COUNT]; /* of this rank, for the next step */
    const struct dp_stop *stop;     /* borrowed, or NULL; ends long evaluations */
    uint64_t wire_bytes;            /* that this rank sent in its steps */
    uint64_t wire_mark;             /* dp_exchange_wire() at the last count */
};

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

/* Counts what was sent since the last call, or since a step began. Local. */
static inline void dp_trainer_note_wire(struct dp_trainer *t)
{
    const uint64_t now = dp_exchange_wire(t->exchange);

    t->wire_bytes += now - t->wire_mark;
    t->wire_mark = now;
}

/* What this folder reads of its exchange. */
static inline const struct dp_bucket_plan *dp_trainer_plan(const struct dp_trainer *t)
{
    return dp_exchange_plan(t->exchange);
}

/* The tail of the gradient, where loss, requests and hashes lie for the host. */
static inline float *dp_trainer_tail(const struct dp_trainer *t)
{
    return dp_exchange_host_gradient(t->exchange) + dp_model_loss_at(t->model);
}

/* Whether buckets go to ranks that sum them; else each rank keeps its own gradient. */
static inline bool dp_trainer_sums(const struct dp_trainer *t)
{
    return dp_exchange_sums(t->exchange);
}

#endif
