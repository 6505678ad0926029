/*
 * device_check.h - the other devices of this machine against device ref: outputs, loss, gradients.
 *
 * In float32 they may differ as much as ref does from itself when each weight is rounded otherwise,
 * a few times over; in a narrow type they may be twice as far from ref in float32 as ref is in that
 * type.
 */
#ifndef DP_RUNTIME_RUN_SELFTEST_DEVICE_CHECK_H
#define DP_RUNTIME_RUN_SELFTEST_DEVICE_CHECK_H

#include "runtime/run/selftest/selftest_lines.h"

/* Rank 0: a few lines for each. Errors: those of ref; what fails on another device is a line. */
DP_CHECKED dp_status dp_device_check(struct dp_selftest *selftest, size_t rows);

#endif
