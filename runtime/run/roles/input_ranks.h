/*
 * input_ranks.h - ranks that read, decode and augment for those that train (data.input_ranks): how
 * a run begins and ends with them. trainer/input/batch_link.h has what they send.
 *
 * Beside batches, rank 0 and each of them have a channel of their own: a request to stop or to save
 * that reaches one of them is passed on, what its work took is reported, and the end of the run
 * comes with its status.
 */
#ifndef DP_RUNTIME_RUN_ROLES_INPUT_RANKS_H
#define DP_RUNTIME_RUN_ROLES_INPUT_RANKS_H

#include "runtime/run/job.h"

/* ---- on ranks that train or serve ---- */

/* Asks for the first batches. Collective among them. Errors: DP_ERR_NOMEM; those of messages. */
DP_CHECKED dp_status dp_input_ranks_open(struct dp_run_job *job, struct dp_input_ranks **out);
void dp_input_ranks_close(struct dp_input_ranks *input);

/* Rank 0: what one of them was asked to do, and which. The second one is answered by a
 * checkpoint. */
enum dp_stop_cause dp_input_ranks_asked(struct dp_input_ranks *input, int *rank);
bool dp_input_ranks_save_asked(struct dp_input_ranks *input);
void dp_input_ranks_saving(struct dp_input_ranks *input);

/* No more batches are taken. On rank 0: the time that all threads of all of them have worked, and
 * the rows that they have made. Errors: those of messages. */
DP_CHECKED dp_status dp_input_ranks_finish(struct dp_input_ranks *input, uint64_t *work_ns,
                                           uint64_t *rows);

/* Ends their runs with that status, after that. Errors: those of messages. */
DP_CHECKED dp_status dp_input_ranks_end(struct dp_input_ranks *input, dp_status status);

/* ---- on a rank that reads ---- */

/* Starts to read ahead. Errors: those of the loader; DP_ERR_CONFIG (data.augment). */
DP_CHECKED dp_status dp_reader_create(const struct dp_run_job *job, struct dp_reader **out);
void dp_reader_destroy(struct dp_reader *reader);

/* Its whole run, once all is set up; *end is the status that it is to end with. Errors: those of
 * messages, and of samples. */
DP_CHECKED dp_status dp_reader_serve(struct dp_reader *reader, struct dp_run_job *job,
                                     dp_status *end);

#endif
