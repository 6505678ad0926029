/*
 * fault_hang.h - a rank that never comes back: faults that a watchdog must tell apart
 * (collectives/world/watchdog.h).
 */
#ifndef DP_RUNTIME_RUN_FAULT_HANG_H
#define DP_RUNTIME_RUN_FAULT_HANG_H

#include "base/fault.h"
#include "runtime/trainer/trainer.h"

/* spin, lock or swap; does not return, but for swap where TMPDIR has no room for 4 MB. */
void dp_fault_hang_apply(const struct dp_fault *fault, struct dp_trainer *trainer);

#endif
