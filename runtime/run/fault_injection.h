/*
 * fault_injection.h - what the faults of base/fault.h do to a training.
 *
 * What a fault names must be there: a weight or running statistic by its name in model.safetensors.
 * Where all ranks share one copy of the weights, a flip changes it for all.
 */
#ifndef DP_RUNTIME_RUN_FAULT_INJECTION_H
#define DP_RUNTIME_RUN_FAULT_INJECTION_H

#include "base/fault.h"
#include "runtime/trainer/trainer.h"

/* Ranks were lost, and faults name them by the numbers that they had when the job began: the `size`
 * ranks that are left had first_rank_of [size]. Faults of the others never happen. */
void dp_fault_injection_renumber(struct dp_fault *first, const int *first_rank_of, int size);

/* From now on faults of files and of memory happen on this rank. first: borrowed until the end. */
void dp_fault_injection_start(const struct dp_fault *first, int rank);

/* None of these happens any more. Where the run has `finished`, this rank warns of each fault of
 * its own that has not happened; of one that was due up to step `from`, with which this start
 * began, it knows nothing. How many could have been of files and of memory is printed at debug
 * level. */
void dp_fault_injection_end(const struct dp_fault *first, int rank, bool finished, uint64_t from);

/* Refuses faults that this training cannot have. All ranks decide alike. Errors: DP_ERR_CONFIG. */
DP_CHECKED dp_status dp_fault_injection_check(const struct dp_fault *first,
                                              const struct dp_trainer *trainer);

/* Whether one of them flips a bit of the one copy of the weights that several ranks share, which no
 * comparison of ranks finds. */
bool dp_fault_injection_is_of_all(const struct dp_fault *first, const struct dp_trainer *trainer);

/* From now on the trainer injects the faults that belong to a bucket. first: borrowed. */
void dp_fault_injection_arm(struct dp_fault *first, struct dp_trainer *trainer);

/* The next step, from 1, after which all ranks have to synchronise for a fault; `after`: steps
 * made. UINT64_MAX: none. */
uint64_t dp_fault_injection_next(const struct dp_fault *first, uint64_t after);

/* Applies the faults that are due after the last step. All ranks know all faults, and wait for each
 * other where one was due. Collective, between steps. */
DP_CHECKED dp_status dp_fault_injection_apply(struct dp_fault *first, struct dp_trainer *trainer);

#endif
