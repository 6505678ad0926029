#include "runtime/run/roles/eval_rank.h"

#include <stdatomic.h>
#include <string.h>

#include "base/log.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/run/roles/eval_messages.h"

/* After so long ranks that wait exchange what they were asked to do. */
enum { ROUND_NS = 250000000 };

struct dp_eval_rank {
    struct dp_run_job *job; /* borrowed */
    bool pending;           /* an answer is still to be taken */
    uint64_t step;          /* of that one */

    /* Rank 0. */
    struct dp_async_copy *copy; /* owned */
    void *weights;              /* owned; copies to be sent */
    float *running;             /* owned */
    atomic_ullong copied;       /* how often copies were complete */
    unsigned long long copies;
    bool copying; /* they are not sent yet */
    struct dp_eval_load load;
    struct dp_eval_order order;
    struct dp_eval_message answer;
    struct dp_p2p_message order_message, answer_message;
    struct dp_eval_answer result; /* the last one that has come */
    bool come, broken_off;
    enum dp_stop_cause asked;
    bool save_asked, ended;
};

static int evaluator_of(const struct dp_run_job *job)
{
    return dp_role_first(&job->world->roles, DP_ROLE_EVALUATE);
}

static bool leads(const struct dp_eval_rank *e)
{
    return dp_run_leads(e->job);
}

static void expect_answer(struct dp_eval_rank *e)
{
    dp_p2p_receive(&e->job->p2p, &e->answer_message, evaluator_of(e->job), &e->answer,
                   sizeof(e->answer));
}

static dp_status open_leader(struct dp_eval_rank *e)
{
    const size_t statistics = e->job->model->statistics * sizeof(*e->running);

    if (dp_eval_weight_bytes(e->job) > (size_t)DP_EVAL_PARTS * DP_MESSAGE_MAX) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "train.eval_rank: weights of more than %d GB",
                       DP_EVAL_PARTS);
    }
    e->weights = dp_mem_arena(DP_MEM_OTHER, dp_eval_weight_bytes(e->job));
    e->running = dp_mem_arena(DP_MEM_OTHER, statistics);
    if (e->weights == NULL || e->running == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "train.eval_rank: a copy of the weights needs %zu MB",
                       dp_eval_weight_bytes(e->job) >> 20);
    }
    DP_TRY(dp_async_copy_create(2, e->job->threads, &e->copy));
    dp_trainer_set_async_copy(e->job->trainer, DP_ASYNC_COPY_EVALUATION, e->copy);
    expect_answer(e);
    return DP_OK;
}

dp_status dp_eval_rank_open(struct dp_run_job *job, struct dp_eval_rank **out)
{
    struct dp_eval_rank *e = dp_zalloc(1, sizeof(*e));
    dp_status status = e == NULL ? DP_FAIL(DP_ERR_NOMEM, "evaluation") : DP_OK;

    if (e != NULL) {
        e->job = job;
        status = leads(e) ? open_leader(e) : DP_OK;
    }
    status = dp_exchange_agree(dp_trainer_exchange(job->trainer), status);
    if (status != DP_OK) {
        dp_eval_rank_close(e);
        return status;
    }
    *out = e;
    return DP_OK;
}

void dp_eval_rank_close(struct dp_eval_rank *e)
{
    if (e == NULL) {
        return;
    }
    if (e->copy != NULL) {
        dp_trainer_set_async_copy(e->job->trainer, DP_ASYNC_COPY_EVALUATION, NULL);
    }
    dp_async_copy_destroy(e->copy);
    dp_free(e->running);
    dp_free(e->weights);
    dp_free(e);
}

static dp_status give_order(struct dp_eval_rank *e, struct dp_eval_order order)
{
    struct dp_p2p *p2p = &e->job->p2p;

    DP_TRY(dp_p2p_wait(p2p, &e->order_message));
    e->order = order;
    dp_p2p_send(p2p, &e->order_message, evaluator_of(e->job), &e->order, sizeof(e->order));
    return DP_OK;
}

/* The copies are complete: they go. */
static dp_status send_copies(struct dp_eval_rank *e)
{
    e->copying = false;
    DP_TRY(give_order(e, (struct dp_eval_order){.kind = DP_EVAL_ORDER_EVALUATE, .step = e->step}));
    dp_eval_load_post(e->job, &e->load, dp_p2p_send, evaluator_of(e->job), e->weights, e->running);
    return DP_OK;
}

static dp_status finish_copies(struct dp_eval_rank *e)
{
    if (!e->copying) {
        return DP_OK;
    }
    dp_async_copy_finish(e->copy);
    return send_copies(e);
}

/* Whether other ranks, or the engine, may change this rank's weights before its own backward ends:
 * then nothing is copied beside a step. */
static bool others_change_weights(const struct dp_run_job *job)
{
    const struct dp_exchange *e = dp_trainer_exchange(job->trainer);

    return dp_exchange_is_sharded(e) || job->async != NULL;
}

dp_status dp_eval_rank_hand_over(struct dp_eval_rank *e, uint64_t step)
{
    const struct dp_flat *flat = dp_trainer_flat(e->job->trainer);

    e->pending = true;
    e->step = step;
    if (!leads(e)) {
        return DP_OK;
    }
    DP_TRY(dp_eval_load_wait(&e->job->p2p, &e->load)); /* which the evaluator has had for long */
    e->come = e->broken_off = false;
    e->copying = true;
    memcpy(e->running, flat->running, e->job->model->statistics * sizeof(*e->running));
    dp_async_copy_finish(e->copy); /* so that the next may be added */
    dp_async_copy_add(e->copy, e->weights, flat->weights, dp_eval_weight_bytes(e->job));
    e->copies++;
    dp_async_copy_start(e->copy, &e->copied);
    return others_change_weights(e->job) ? finish_copies(e) : DP_OK;
}

bool dp_eval_rank_pending(const struct dp_eval_rank *e)
{
    return e->pending;
}

uint64_t dp_eval_rank_step(const struct dp_eval_rank *e)
{
    return e->step;
}

/* Takes what the evaluator has sent. */
static dp_status hear(struct dp_eval_rank *e)
{
    while (!e->ended && dp_p2p_done(&e->job->p2p, &e->answer_message)) {
        const struct dp_eval_message *a = &e->answer;

        if (a->kind == DP_EVAL_ANSWER_FAILURE) {
            dp_log_error_of(&a->error);
            return a->failure;
        }
        if (a->kind == DP_EVAL_ANSWER_RESULT) {
            e->result = a->result;
            e->come = true;
            e->broken_off = a->broken_off;
        } else if (a->kind == DP_EVAL_ANSWER_ASKED) {
            e->asked = e->asked == DP_STOP_NONE ? (enum dp_stop_cause)a->cause : e->asked;
            e->save_asked = e->save_asked || a->save;
        }
        e->ended = a->kind == DP_EVAL_ANSWER_ENDS;
        if (!e->ended) {
            expect_answer(e);
        }
    }
    return DP_OK;
}

dp_status dp_eval_rank_poll(struct dp_eval_rank *e, const struct dp_eval_answer **answer)
{
    *answer = NULL;
    if (e->copying && atomic_load_explicit(&e->copied, memory_order_acquire) == e->copies) {
        DP_TRY(send_copies(e));
    }
    DP_TRY(hear(e));
    if (e->pending && e->come && !e->broken_off) {
        *answer = &e->result;
    }
    return DP_OK;
}

enum dp_stop_cause dp_eval_rank_asked(const struct dp_eval_rank *e)
{
    return e->asked;
}

bool dp_eval_rank_save_asked(const struct dp_eval_rank *e)
{
    return e->save_asked;
}

void dp_eval_rank_saving(struct dp_eval_rank *e)
{
    e->save_asked = false;
}

/* Rank 0: until an answer comes, or the time is over. */
static dp_status listen(struct dp_eval_rank *e, uint64_t most_ns)
{
    const uint64_t begin_ns = dp_now_ns();

    DP_TRY(finish_copies(e));
    DP_TRY(hear(e));
    while (!e->come && dp_now_ns() - begin_ns < most_ns) {
        DP_TRY(dp_p2p_wait_for(&e->job->p2p, &e->answer_message, most_ns));
        DP_TRY(hear(e));
    }
    return DP_OK;
}

/* Rank 0: what is pending gives no result. */
static dp_status give_up(struct dp_eval_rank *e)
{
    DP_TRY(finish_copies(e));
    DP_TRY(hear(e));
    DP_TRY(e->come ? DP_OK
                   : give_order(e, (struct dp_eval_order){.kind = DP_EVAL_ORDER_BREAK_OFF}));
    while (!e->come) {
        DP_TRY(listen(e, UINT64_MAX));
    }
    return DP_OK;
}

dp_status dp_eval_rank_break_off(struct dp_eval_rank *e)
{
    DP_SPAN(DP_PHASE_EVALUATE, (int64_t)e->step);
    DP_AWAIT_ONE();

    e->pending = false;
    return leads(e) ? give_up(e) : DP_OK;
}

/* What ranks that wait exchange. */
struct state {
    bool come;
    int cause; /* enum dp_stop_cause */
};

static bool ends_wait(enum dp_stop_cause cause, enum dp_eval_patience patience)
{
    const bool hurries = cause == DP_STOP_TERM || cause == DP_STOP_INT;

    return cause != DP_STOP_NONE &&
           (patience == DP_EVAL_BREAKS_OFF || (patience == DP_EVAL_HURRIES && hurries));
}

/* One round of waiting; `all` is memory for what all ranks say. */
static dp_status wait_round(struct dp_eval_rank *e, enum dp_eval_patience patience,
                            struct state *all, bool *stops)
{
    struct dp_exchange *exchange = dp_trainer_exchange(e->job->trainer);
    struct state mine;

    memset(&mine, 0, sizeof(mine));
    DP_TRY(leads(e) ? listen(e, ROUND_NS) : DP_OK);
    mine.come = e->come;
    mine.cause = (int)dp_stop_asked(e->job->stop);
    mine.cause = mine.cause == DP_STOP_NONE ? (int)e->asked : mine.cause;
    DP_TRY(dp_exchange_gather(exchange, &mine, sizeof(mine), all));
    for (int i = 0; i < dp_exchange_group(exchange)->size; i++) {
        *stops = *stops || ends_wait((enum dp_stop_cause)all[i].cause, patience);
    }
    return DP_OK;
}

static dp_status wait_rounds(struct dp_eval_rank *e, enum dp_eval_patience patience)
{
    DP_AWAIT_ONE();
    const size_t ranks = (size_t)dp_trainer_group(e->job->trainer)->size;
    struct state *all = dp_zalloc(ranks, sizeof(*all));
    bool stops = false;
    dp_status status =
        all == NULL ? DP_FAIL(DP_ERR_NOMEM, "evaluation of %zu ranks", ranks) : DP_OK;

    while (status == DP_OK && all != NULL && !all[0].come && !stops) {
        status = wait_round(e, patience, all, &stops);
    }
    if (status == DP_OK && all != NULL && !all[0].come) {
        status = dp_eval_rank_break_off(e);
        status = status == DP_OK ? DP_STOPPED : status;
    }
    dp_free(all);
    return status;
}

dp_status dp_eval_rank_take(struct dp_eval_rank *e, enum dp_eval_patience patience,
                            struct dp_eval_answer *out)
{
    DP_SPAN(DP_PHASE_EVALUATE, (int64_t)e->step);

    DP_TRY(wait_rounds(e, patience));
    e->pending = false;
    *out = e->result;
    return dp_exchange_broadcast(dp_trainer_exchange(e->job->trainer), out, sizeof(*out), 0);
}

dp_status dp_eval_rank_end(struct dp_eval_rank *e, dp_status status)
{
    DP_AWAIT_ONE();

    if (!leads(e)) {
        return DP_OK;
    }
    DP_TRY(give_order(e, (struct dp_eval_order){.kind = DP_EVAL_ORDER_END, .status = status}));
    while (!e->ended) {
        DP_TRY(dp_p2p_wait(&e->job->p2p, &e->answer_message));
        DP_TRY(hear(e));
    }
    DP_TRY(dp_p2p_wait(&e->job->p2p, &e->order_message));
    return dp_eval_load_wait(&e->job->p2p, &e->load);
}
