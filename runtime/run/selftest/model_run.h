/*
 * model_run.h - forward and backward of a few rows on one device, with arrays of the host in and
 * out: what devices, and finite differences, are compared by.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_MODEL_RUN_H
#define DP_RUNTIME_RUN_SELFTEST_MODEL_RUN_H

#include "models/pass/pass.h"
#include "runtime/run/selftest/selftest_lines.h"

struct dp_model_run;

/* The first of the selftest's rows, without augmentation, on this device in this compute type.
 * Errors: those of pass and device. */
DP_CHECKED dp_status dp_model_run_create(const struct dp_selftest *selftest,
                                         const struct dp_device *device, enum dp_type type,
                                         size_t rows, struct dp_model_run **out);
void dp_model_run_destroy(struct dp_model_run *run);

/* The mean loss of the rows with these weights [trained], in training. */
DP_CHECKED dp_status dp_model_run_loss(struct dp_model_run *run, const float *weights,
                                       double *loss);

/* The same, and its gradient [trained]. */
DP_CHECKED dp_status dp_model_run_gradient(struct dp_model_run *run, const float *weights,
                                           double *loss, float *gradient);

/* The model's outputs of the last forward, in float32: [rows, classes]. */
DP_CHECKED dp_status dp_model_run_outputs(struct dp_model_run *run, float *outputs);

#endif
