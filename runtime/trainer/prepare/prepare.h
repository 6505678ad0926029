/*
 * prepare.h - creates what a trainer computes with: a stream, passes or lanes on it, and the graph
 * capture, prepared for all row counts before the first step. Where algorithms are measured
 * meanwhile, ranks agree on them.
 */
#ifndef DP_RUNTIME_TRAINER_PREPARE_PREPARE_H
#define DP_RUNTIME_TRAINER_PREPARE_PREPARE_H

#include "base/status.h"

struct dp_trainer;

/* Fills in trainer->compute, except what is borrowed. Collective where there are choices. Errors:
 * DP_ERR_CONFIG, DP_ERR_NOMEM, those of the device; where algorithms are measured all ranks return
 * with an error. */
DP_CHECKED dp_status dp_prepare_compute(struct dp_trainer *trainer, int threads);

/* Why steps of this configuration are not recorded, in words that follow
 * "steps are not recorded: "; NULL: they are. Local. */
const char *dp_trainer_unrecorded(const struct dp_trainer *trainer);

#endif
