/*
 * prepare.h - creates what a trainer computes with: a stream, passes or lanes on it, and the graph
 * capture, prepared for all row counts before the first step. Where algorithms are measured
 * meanwhile, ranks agree on them.
 */
#ifndef DP_RUNTIME_TRAINER_PREPARE_PREPARE_H
#define DP_RUNTIME_TRAINER_PREPARE_PREPARE_H

#include "runtime/config/config.h"
#include "runtime/trainer/compute/compute.h"

struct dp_trainer;

/* What passes are made for: one rank's share of the rows. */
struct dp_compute_plan {
    const struct dp_config *config;
    const struct dp_model *model;
    const struct dp_device *device;
    enum dp_type type;   /* of weights */
    int ranks, threads;  /* ranks that share the rows; threads of this one */
    size_t global_batch; /* rows over all of them */
    bool trains;         /* or only evaluates */
};

/* Creates compute->stream; then the passes or lanes on it, for the most rows that a rank can have.
 * compute->normalize and algo_choices are set before. Errors: those of dp_prepare_compute. */
DP_CHECKED dp_status dp_prepare_stream(struct dp_compute *compute,
                                       const struct dp_compute_plan *plan);
DP_CHECKED dp_status dp_prepare_passes(struct dp_compute *compute,
                                       const struct dp_compute_plan *plan);

/* How a rank that has rows computes. */
const struct dp_compute_mode *dp_prepare_mode(const struct dp_config *config);

/* Fills in trainer->compute, except what is borrowed. Collective where there are choices. Errors:
 * DP_ERR_CONFIG, DP_ERR_NOMEM, those of the device; where algorithms are measured all ranks return
 * with an error. */
DP_CHECKED dp_status dp_prepare_compute(struct dp_trainer *trainer, int threads);

/* Why steps of this configuration are not recorded, in words that follow
 * "steps are not recorded: "; NULL: they are. Local. */
const char *dp_trainer_unrecorded(const struct dp_trainer *trainer);

#endif
