#include "runtime/run/roles/eval_serve.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/trace.h"
#include "runtime/run/roles/eval_messages.h"

struct server {
    struct dp_run_job *job; /* borrowed */
    struct dp_evaluator *evaluator;
    struct dp_eval_order order; /* the next one */
    struct dp_eval_message answer, asked;
    struct dp_p2p_message order_message, answer_message, asked_message;
    struct dp_eval_load load;
    enum dp_stop_cause told; /* to rank 0 */
    dp_status status;        /* of messages, within an evaluation */
};

static void expect_order(struct server *s)
{
    dp_p2p_receive(&s->job->p2p, &s->order_message, 0, &s->order, sizeof(s->order));
}

/* Tells rank 0 what this rank was asked to do, once. */
static dp_status pass_on(struct server *s)
{
    const enum dp_stop_cause cause = dp_stop_asked(s->job->stop);
    const bool save = dp_stop_save_asked(s->job->stop);

    if ((cause == s->told && !save) || !dp_p2p_done(&s->job->p2p, &s->asked_message)) {
        return DP_OK;
    }
    if (save) {
        dp_stop_saving(s->job->stop);
    }
    s->told = cause;
    memset(&s->asked, 0, sizeof(s->asked));
    s->asked.kind = DP_EVAL_ANSWER_ASKED;
    s->asked.cause = (int)cause;
    s->asked.save = save;
    dp_p2p_send(&s->job->p2p, &s->asked_message, 0, &s->asked, sizeof(s->asked));
    return DP_OK;
}

static dp_status look(struct server *s)
{
    bool more;

    DP_TRY(pass_on(s));
    return dp_p2p_poll(&s->job->p2p, &more);
}

/* Between the rounds of an evaluation: an order that comes meanwhile ends it. */
static bool stops(void *server)
{
    struct server *s = server;

    s->status = look(s);
    return s->status != DP_OK || dp_p2p_done(&s->job->p2p, &s->order_message);
}

/* Sets s->answer to what comes of an evaluation. Rank 0 reports why there is no result, since it
 * takes part in whatever other ranks report. Errors: of messages. */
static dp_status evaluate(struct server *s, uint64_t step)
{
    DP_WORK_BESIDE();
    const uint64_t begin_ns = dp_now_ns();
    struct dp_log_capture capture;
    dp_status status;

    memset(&s->answer, 0, sizeof(s->answer));
    s->answer.kind = DP_EVAL_ANSWER_RESULT;
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_evaluator_run(s->evaluator, stops, s, &s->answer.result.found);
    dp_log_capture_end(&capture, s->status != DP_OK ? DP_LOG_PRINT : DP_LOG_DROP);
    DP_TRY(s->status);
    s->answer.broken_off = status == DP_STOPPED;
    s->answer.result.step = step;
    s->answer.result.seconds = (double)(dp_now_ns() - begin_ns) / 1e9;
    if (status != DP_OK && status != DP_STOPPED) {
        s->answer.kind = DP_EVAL_ANSWER_FAILURE;
        s->answer.failure = status;
        dp_log_keep_error(&capture, &s->answer.error);
    }
    return DP_OK;
}

static dp_status answer(struct server *s, uint64_t step)
{
    DP_TRY(dp_p2p_wait(&s->job->p2p, &s->answer_message));
    DP_TRY(evaluate(s, step));
    dp_p2p_send(&s->job->p2p, &s->answer_message, 0, &s->answer, sizeof(s->answer));
    return DP_OK;
}

static dp_status await_order(struct server *s)
{
    DP_SPAN(DP_PHASE_IDLE, 0);
    const struct timespec nap = {0, 5000000};

    DP_TRY(look(s));
    while (!dp_p2p_done(&s->job->p2p, &s->order_message)) {
        if (atomic_load(s->job->beside->cancel) != 0) {
            return DP_ERR_CANCELLED;
        }
        (void)nanosleep(&nap, NULL);
        DP_TRY(look(s));
    }
    return DP_OK;
}

static dp_status say_goodbye(struct server *s)
{
    DP_TRY(dp_p2p_wait(&s->job->p2p, &s->answer_message));
    DP_TRY(dp_p2p_wait(&s->job->p2p, &s->asked_message));
    memset(&s->answer, 0, sizeof(s->answer));
    s->answer.kind = DP_EVAL_ANSWER_ENDS;
    dp_p2p_send(&s->job->p2p, &s->answer_message, 0, &s->answer, sizeof(s->answer));
    return dp_p2p_wait(&s->job->p2p, &s->answer_message);
}

static dp_status serve(struct server *s, dp_status *end)
{
    expect_order(s);
    for (;;) {
        DP_TRY(await_order(s));
        const struct dp_eval_order order = s->order;

        if (order.kind == DP_EVAL_ORDER_END) {
            *end = order.status;
            return say_goodbye(s);
        }
        if (order.kind == DP_EVAL_ORDER_EVALUATE) {
            dp_eval_load_post(s->job, &s->load, dp_p2p_receive, 0,
                              dp_evaluator_weights(s->evaluator),
                              dp_evaluator_running(s->evaluator));
            DP_TRY(dp_eval_load_wait(&s->job->p2p, &s->load));
        }
        expect_order(s);
        DP_TRY(order.kind == DP_EVAL_ORDER_EVALUATE ? answer(s, order.step) : DP_OK);
    }
}

dp_status dp_eval_serve(struct dp_run_job *job, struct dp_evaluator *evaluator, dp_status *end)
{
    struct server *s = dp_zalloc(1, sizeof(*s));
    dp_status status;

    if (s == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "evaluation");
    }
    s->job = job;
    s->evaluator = evaluator;
    status = serve(s, end);
    dp_free(s);
    return status;
}
