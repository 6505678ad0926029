/*
 * fault_injection.h - what the faults of base/fault.h do to a training.
 *
 * A fault works only once what it names was found: a weight or running statistic by its name in
 * model.safetensors. Where all ranks share one copy of the weights, a flip changes it for all.
 */
#ifndef DP_RUNTIME_RUN_FAULT_INJECTION_H
#define DP_RUNTIME_RUN_FAULT_INJECTION_H

#include "base/fault.h"
#include "runtime/trainer/trainer.h"

/* Refuses what cannot happen in this training. Every rank decides alike. Errors: DP_ERR_CONFIG. */
DP_CHECKED dp_status dp_fault_injection_check(const struct dp_fault *first,
                                              const struct dp_trainer *trainer);

/* Lets happen what is due behind the step that was done last. All ranks know all faults, and wait
 * for each other when one was due. Collective, between steps. */
DP_CHECKED dp_status dp_fault_injection_apply(const struct dp_fault *first,
                                              struct dp_trainer *trainer);

#endif
