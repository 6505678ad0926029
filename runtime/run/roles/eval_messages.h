/*
 * eval_messages.h - what rank 0 and the rank that evaluates send each other (eval_rank.h).
 */
#ifndef DP_RUNTIME_RUN_ROLES_EVAL_MESSAGES_H
#define DP_RUNTIME_RUN_ROLES_EVAL_MESSAGES_H

#include "base/log.h"
#include "collectives/async/p2p.h"
#include "runtime/run/job.h"
#include "runtime/trainer/evaluation.h"

/* What came of an evaluation. */
struct dp_eval_answer {
    uint64_t step; /* whose weights */
    struct dp_evaluation found;
    double seconds;
};

/* From rank 0. Weights follow an order to evaluate. */
struct dp_eval_order {
    enum { DP_EVAL_ORDER_EVALUATE, DP_EVAL_ORDER_BREAK_OFF, DP_EVAL_ORDER_END } kind;
    dp_status status; /* of DP_EVAL_ORDER_END */
    uint64_t step;
};

/* From the evaluator. A result, or why there is none, comes for each order to evaluate; what it was
 * asked to do at any time; its farewell last. */
struct dp_eval_message {
    enum {
        DP_EVAL_ANSWER_RESULT,
        DP_EVAL_ANSWER_FAILURE,
        DP_EVAL_ANSWER_ASKED,
        DP_EVAL_ANSWER_ENDS
    } kind;
    bool broken_off; /* a result that is none */
    int cause;       /* enum dp_stop_cause */
    bool save;
    struct dp_eval_answer result;
    dp_status failure;
    struct dp_log_error error; /* what there is to say of it */
};

/* Most messages of the weights, each of at most DP_MESSAGE_MAX bytes. */
enum { DP_EVAL_PARTS = 16 };

/* Weights and running statistics, on their way. */
struct dp_eval_load {
    struct dp_p2p_message parts[DP_EVAL_PARTS + 1];
    int count;
};

/* Bytes of the weights that layers read. */
size_t dp_eval_weight_bytes(const struct dp_run_job *job);

/* dp_p2p_send() or dp_p2p_receive(). */
typedef void dp_eval_post(struct dp_p2p *p2p, struct dp_p2p_message *message, int peer, void *data,
                          size_t bytes);

/* Sends weights and running statistics to a rank, or receives them; what they lie in is used until
 * dp_eval_load_wait() has returned. */
void dp_eval_load_post(struct dp_run_job *job, struct dp_eval_load *load, dp_eval_post *post,
                       int peer, void *weights, float *running);
DP_CHECKED dp_status dp_eval_load_wait(struct dp_p2p *p2p, const struct dp_eval_load *load);

#endif
