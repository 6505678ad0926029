/*
 * guest_hosts.h - hosts without the data set, where other ranks read (data.input_ranks). On such a
 * guest no rank reads; what the set is, its hashes, and the rows to test with come from the first
 * rank that reads.
 */
#ifndef DP_RUNTIME_RUN_DATASET_GUEST_HOSTS_H
#define DP_RUNTIME_RUN_DATASET_GUEST_HOSTS_H

#include "runtime/data/samples.h"
#include "runtime/run/dataset/data_prints.h"
#include "runtime/run/job.h"

/* Whether this rank's host may do without files: none of its ranks reads, and others do. */
bool dp_guest_may_be(const struct dp_run_job *job);

/*
 * Finds the guests: hosts of which a rank has no files.
 *
 *   status   of this rank's attempt to open the set
 *   lacks    it has found no files, and may do without
 *   samples  in, out: on a guest what has the description alone
 *
 * Collective. Returns `status`, or an error of the group; DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_guest_meet(struct dp_run_job *job, dp_status status, bool lacks,
                                   struct dp_samples **samples);

/* Bytes of the rows to test with that this host gets; 0: it is no guest, or tests nothing. */
size_t dp_guest_bytes(const struct dp_run_job *job, const struct dp_samples_info *info);

/* What is known once all is read: guests take hashes, and the number of bad samples, from the first
 * rank that reads. Collective. Errors: those of the group. */
DP_CHECKED dp_status dp_guest_tell(struct dp_run_job *job, struct dp_data_prints *prints,
                                   size_t *skipped);

/* Makes job->data on guests whole: rows to test with, where they are wanted there. Collective.
 * Errors: those of the group, and of the samples. */
DP_CHECKED dp_status dp_guest_take_tests(struct dp_run_job *job, struct dp_samples *samples);

#endif
