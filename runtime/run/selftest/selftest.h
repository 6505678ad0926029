/*
 * selftest.h - ddp_train model.cfg --selftest: whether this model trains rightly on this machine.
 *
 * Lines on stdout, "ok NAME: FIGURE" or "FAIL NAME: FIGURE":
 *
 *   data             the user's own, or generated ones of the same shapes where they cannot be read
 *   resume           saved, killed, and resumed in a temporary folder: the same bits as without
 *   gradient.TENSOR  the gradient against finite differences of the loss, both of device ref
 *   DEVICE.forward, .loss, .gradients   each other device here against ref, in float32; and
 *   DEVICE.TYPE.gradients               in the type of train.precision where that is narrow
 *   ranks            several ranks against one: weights after a few steps; lanes: the same bits
 *   strategy.NAME    every way to sum that can run here, on the model's own buckets
 *   compressor.NAME  every compressor on them: ranks agree, and what is not sent is kept
 *
 * A job that was started alone has threads as ranks for the last three; else they are its own.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_SELFTEST_H
#define DP_RUNTIME_RUN_SELFTEST_SELFTEST_H

#include "collectives/world/world.h"
#include "runtime/run/run_options.h"

/* All of it. Only a folder for temporary files is written to, and what was written is deleted.
 * Collective. Errors: DP_ERR_INTERNAL (a line says FAIL); those of the configuration. */
DP_CHECKED dp_status dp_selftest_run(const struct dp_run_options *options, struct dp_world *world);

#endif
