/*
 * eval_rank.h - evaluation by a rank of its own, while the others train on (train.eval_rank).
 *
 *      rank 0      |step S|S + 1|S + 2|S + 3| ...      copies weights beside step S + 1, and sends
 *      evaluator          |weights| evaluates |        them; the answer comes when it is ready
 *
 * Of the ranks that train, rank 0 sends and receives; the others learn of an answer when all of
 * them take it together: before the next weights are handed over, and before a checkpoint is
 * written. So the state of decisions is the same after the same step on all ranks and in every
 * run, however long an evaluation takes; at most one is under way.
 *
 * A request to stop or to save that reaches the evaluator is passed on to rank 0.
 */
#ifndef DP_RUNTIME_RUN_ROLES_EVAL_RANK_H
#define DP_RUNTIME_RUN_ROLES_EVAL_RANK_H

#include "runtime/run/job.h"
#include "runtime/run/roles/eval_messages.h"

struct dp_eval_rank;

/* Errors: DP_ERR_NOMEM. Collective among them. */
DP_CHECKED dp_status dp_eval_rank_open(struct dp_run_job *job, struct dp_eval_rank **out);
void dp_eval_rank_close(struct dp_eval_rank *eval);

/* Hands over the weights after this step, which are equal on all ranks; nothing is pending. Local:
 * steps may begin, but for asynchronous training all ranks do. Errors: those of the device. */
DP_CHECKED dp_status dp_eval_rank_hand_over(struct dp_eval_rank *eval, uint64_t step);

/* Whether an answer is still to be taken, and of which step. The same on all ranks. */
bool dp_eval_rank_pending(const struct dp_eval_rank *eval);
uint64_t dp_eval_rank_step(const struct dp_eval_rank *eval);

/* Rank 0, now and then: sends what is ready, and hears what has come. The answer to what is
 * pending, if it is there and has not been taken; or NULL. Errors: those of messages; why the
 * evaluator has failed, which rank 0 reports in this and in all that follow. */
DP_CHECKED dp_status dp_eval_rank_poll(struct dp_eval_rank *eval,
                                       const struct dp_eval_answer **answer);

/* Rank 0: what the evaluator was asked to do. The second one is answered by a checkpoint. */
enum dp_stop_cause dp_eval_rank_asked(const struct dp_eval_rank *eval);
bool dp_eval_rank_save_asked(const struct dp_eval_rank *eval);
void dp_eval_rank_saving(struct dp_eval_rank *eval);

/* What ends a wait for an answer: nothing; a request that leaves little time; any request. */
enum dp_eval_patience { DP_EVAL_WAITS, DP_EVAL_HURRIES, DP_EVAL_BREAKS_OFF };

/* Waits for the answer that is pending, and gives it to all ranks. Collective among them. Errors:
 * DP_STOPPED (some rank was asked to stop, and the evaluation is broken off; not logged). */
DP_CHECKED dp_status dp_eval_rank_take(struct dp_eval_rank *eval, enum dp_eval_patience patience,
                                       struct dp_eval_answer *out);

/* Breaks off what is pending. Collective among them. */
DP_CHECKED dp_status dp_eval_rank_break_off(struct dp_eval_rank *eval);

/* Ends the evaluator's run with that status; nothing is pending. Collective among them. */
DP_CHECKED dp_status dp_eval_rank_end(struct dp_eval_rank *eval, dp_status status);

#endif
