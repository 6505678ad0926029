/*
 * training.h - one training run, composed of its parts: what it runs, what it saves, how it ends
 * and what it measures. Functions take the parts that they need.
 */
#ifndef DP_RUNTIME_RUN_TRAINING_H
#define DP_RUNTIME_RUN_TRAINING_H

#include "runtime/run/job.h"
#include "runtime/run/results/figures.h"
#include "runtime/run/results/outcome.h"
#include "runtime/run/saver.h"
#include "runtime/timeline/tracing.h"
#include "runtime/trainer/evaluator.h"

struct dp_training {
    struct dp_run_job job;
    struct dp_saver saver;
    struct dp_outcome outcome;
    struct dp_figures figures;
    struct {
        uint64_t epoch;
        size_t count; /* so far in that epoch; all ranks have the same */
    } bad_samples;
    struct dp_tracing *tracing;     /* owned; NULL: nothing is traced */
    bool trace_failed;              /* its file could not be written */
    struct dp_evaluator *evaluator; /* owned; on the rank that evaluates for the others */
    struct dp_reader *reader;       /* owned; on ranks that read for the others */
};

#endif
