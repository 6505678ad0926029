#include "runtime/trainer/async.h"

#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/async/ps_messages.h"
#include "collectives/async/ssp_clock.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/optim/optimizer.h"
#include "runtime/trainer/step.h"
#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update/bucket_update.h"

/* The header of a gradient, of an answer, and of what the first server sends when ranks
 * synchronise. */
struct head {
    uint64_t step;    /* gradient: its step; else: steps that all trainers have done */
    uint64_t end;     /* from the first server: after how many steps ranks synchronise */
    uint32_t applied; /* when ranks synchronise: number of gradients that were applied */
    bool last;        /* gradient: the last one before ranks synchronise */
    bool request[DP_REQUEST_COUNT];
    float scores[][2]; /* loss, score; of a gradient [1]; from the first server [window] */
};

struct dp_async {
    struct dp_trainer *t;        /* borrowed */
    struct dp_async_hooks hooks; /* its context is borrowed */
    bool leads;                  /* the first server */
    size_t window;               /* most steps between the fastest and the slowest trainer */
    struct dp_ps_messages messages;
    struct dp_ssp_clock ssp_clock;  /* servers */
    struct head *news;              /* owned; what servers report to trainers */
    float (*trainer_scores)[2];     /* owned; servers: [window, trainers] */
    float *statistics;              /* owned; first server: [window, statistics], sums so far */
    uint64_t reported;              /* steps whose results were given to the hooks */
    uint64_t end;                   /* the step after which ranks synchronise */
    bool request[DP_REQUEST_COUNT]; /* of all ranks, since they last synchronised */
};

/* ---- creating ---- */

static dp_status async_open(struct dp_async *a)
{
    struct dp_trainer *t = a->t;
    const size_t statistics = t->model->statistics;
    const size_t head_bytes = sizeof(struct head) + a->window * sizeof(a->news->scores[0]);

    a->messages = (struct dp_ps_messages){.group = t->group,
                                          .plan = dp_exchange_plan(t->exchange),
                                          .servers = t->group->size - t->trainers,
                                          .head_bytes = head_bytes,
                                          .extra = statistics,
                                          .width = dp_type_bytes(t->state.flat.type)};
    a->news = dp_zalloc(1, head_bytes);
    a->trainer_scores = dp_zalloc(a->window * (size_t)t->trainers, sizeof(*a->trainer_scores));
    a->statistics = dp_zalloc(a->window * statistics, sizeof(*a->statistics));
    if (a->news == NULL || a->trainer_scores == NULL || a->statistics == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "results of %zu steps", a->window);
    }
    DP_TRY(dp_ssp_clock_open(&a->ssp_clock, t->trainers, a->window - 1));
    return dp_ps_messages_open(&a->messages);
}

dp_status dp_async_create(struct dp_trainer *t, const struct dp_async_hooks *hooks,
                          struct dp_async **out)
{
    const char *sharding = dp_exchange_sharding(t->exchange);
    struct dp_async *a;
    dp_status status;

    if (strcmp(sharding, "ps") != 0) { /* otherwise trainers own parts that no rank updates */
        return DP_FAIL(DP_ERR_CONFIG, "train.staleness: needs comm.strategy ps, not %s", sharding);
    }
    if (!t->device->host_memory) { /* messages are packed by the host, which does not wait */
        return DP_FAIL(DP_ERR_CONFIG, "train.staleness: needs device cpu, not %s",
                       t->device->plugin.name);
    }
    a = dp_zalloc(1, sizeof(*a));
    if (a == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "asynchronous training");
    }
    a->t = t;
    a->hooks = *hooks;
    a->leads = t->group->rank == t->trainers;
    a->window = (size_t)t->config->train.staleness + 1;
    status = async_open(a);
    if (status != DP_OK) {
        dp_async_destroy(a);
        return status;
    }
    t->compute.hooks.ready = NULL; /* gradients are sent whole, after backward */
    dp_exchange_set_run(t->exchange, DP_RUN_AT_WAIT);
    *out = a;
    return DP_OK;
}

void dp_async_destroy(struct dp_async *a)
{
    if (a == NULL) {
        return;
    }
    dp_ps_messages_close(&a->messages);
    dp_ssp_clock_close(&a->ssp_clock);
    dp_free(a->statistics);
    dp_free(a->trainer_scores);
    dp_free(a->news);
    dp_free(a);
}

/* ---- results and requests ---- */

/* Reports the results of steps [reported, done), which are in the news. */
static dp_status report_results(struct dp_async *a, uint64_t done, bool *enough)
{
    for (; a->reported < done; a->reported++) {
        const float *score = a->news->scores[a->reported % a->window];
        const struct dp_step_result result = {
            .step = a->reported + 1,
            .rows = dp_input_global_rows(&a->t->input, a->reported),
            .lr = (double)(float)dp_optimizer_lr(&a->t->config->optimizer, a->reported,
                                                 a->t->schedule_steps),
            .report = {.loss = score[0], .score = score[1]},
        };
        DP_TRY(a->hooks.result(a->hooks.context, &result, enough));
    }
    return DP_OK;
}

static void hear(struct dp_async *a, const bool *request)
{
    for (int i = 0; i < DP_REQUEST_COUNT; i++) {
        a->request[i] = a->request[i] || request[i];
    }
}

static void request(struct dp_async *a)
{
    if (a->hooks.request != NULL) {
        a->hooks.request(a->hooks.context);
    }
    hear(a, a->t->request);
}

/* ---- a trainer ---- */

static dp_status swap_job(void *arg, int answered)
{
    return dp_ps_messages_swap(&((struct dp_async *)arg)->messages, answered != 0);
}

static void pack_gradient(struct dp_async *a, bool last)
{
    const struct dp_trainer *t = a->t;
    float *grad = t->state.flat.grad;
    const float *loss = grad + dp_model_loss_at(t->model);

    for (int i = 0; i < a->messages.peers; i++) {
        struct head *head = dp_ps_messages_head(&a->messages, i);
        head->step = t->state.step;
        head->last = last;
        memcpy(head->request, a->request, sizeof(head->request));
        memcpy(head->scores[0], loss, sizeof(head->scores[0]));
        dp_ps_messages_pack(&a->messages, i, grad, sizeof(float));
    }
    memcpy(dp_ps_messages_extra(&a->messages, 0), grad + t->state.flat.trained,
           t->model->statistics * sizeof(float));
}

/* Receives new weights, and what the servers know. */
static dp_status take_answers(struct dp_async *a)
{
    bool enough = false; /* only the first server decides */

    for (int i = 0; i < a->messages.peers; i++) {
        const struct head *head = dp_ps_messages_head(&a->messages, i);
        hear(a, head->request);
        dp_ps_messages_unpack(&a->messages, i, a->t->state.flat.weights, a->messages.width);
    }
    memcpy(a->news, dp_ps_messages_head(&a->messages, 0), a->messages.head_bytes);
    a->end = a->news->end;
    return report_results(a, a->news->step, &enough);
}

static dp_status train_step(struct dp_async *a)
{
    DP_SPAN(DP_PHASE_STEP, (int64_t)a->t->state.step);
    struct dp_trainer *t = a->t;
    const bool last = t->state.step + 1 == a->end;

    DP_TRY(dp_step_begin(t));
    request(a);
    DP_TRY(dp_step_compute(t));
    pack_gradient(a, last);
    DP_TRY(dp_exchange_call(t->exchange, swap_job, a, !last));
    t->state.step++;
    return DP_OK;
}

static dp_status stepped(struct dp_async *a)
{
    return dp_trainer_serves(a->t) || a->hooks.stepped == NULL ? DP_OK
                                                               : a->hooks.stepped(a->hooks.context);
}

/* Trains until the last gradient, whose answer comes when ranks synchronise. */
static dp_status train(struct dp_async *a)
{
    while (a->t->state.step < a->end) {
        DP_TRY(train_step(a));
        if (a->t->state.step < a->end) {
            DP_TRY(stepped(a));
            DP_TRY(take_answers(a));
        }
    }
    return DP_OK;
}

/* ---- a server ---- */

/* Applies a mean gradient over the rows of trainer i, with its part of the learning rate: see
 * async.h. */
static dp_status update(struct dp_async *a, int i, uint64_t step)
{
    DP_SPAN(DP_PHASE_OPTIMIZER, i);
    struct dp_trainer *t = a->t;
    const struct dp_bucket_plan *plan = dp_exchange_plan(t->exchange);
    const size_t all = dp_input_global_rows(&t->input, step);
    const size_t rows = dp_row_range(all, i, t->trainers).count;
    const float *grad = dp_ps_messages_part(&a->messages, i);

    if (rows == 0) {
        return DP_OK;
    }
    t->state.step_params->lr =
        (float)(dp_optimizer_lr(&t->config->optimizer, step, t->schedule_steps) *
                ((double)rows / (double)all));
    t->state.step_params->factor = (float)((double)all / (double)rows);
    t->state.step_params->skip = 0;
    for (int b = 0; b < plan->count; b++) {
        if (!plan->buckets[b].exact) {
            DP_TRY(dp_bucket_update(t, b, grad + plan->buckets[b].owned_at, t->state.there));
        }
    }
    t->state.step_params->applied++;
    return DP_OK;
}

/* Adds its part of the results of its step. */
static dp_status add_result(struct dp_async *a, int i, const struct head *head)
{
    struct dp_trainer *t = a->t;
    const size_t at = head->step % a->window, statistics = t->model->statistics;

    memcpy(a->trainer_scores[at * (size_t)t->trainers + (size_t)i], head->scores[0],
           sizeof(head->scores[0]));
    return a->leads
               ? t->compute.stream->ops->add(t->compute.stream, a->statistics + at * statistics,
                                             dp_ps_messages_extra(&a->messages, i), statistics)
               : DP_OK;
}

/* Adds the results of steps that all trainers have now done, in the order of ranks, so that all
 * servers compute the same sums. */
static dp_status complete(struct dp_async *a, bool *enough)
{
    struct dp_trainer *t = a->t;
    const uint64_t done = dp_ssp_clock_slowest(&a->ssp_clock);
    const size_t statistics = t->model->statistics;

    for (uint64_t step = a->reported; step < done; step++) {
        const size_t at = step % a->window;
        float *score = a->news->scores[at], *sums = a->statistics + at * statistics;
        score[0] = score[1] = 0.0f;
        for (int i = 0; i < t->trainers; i++) {
            const float *theirs = a->trainer_scores[at * (size_t)t->trainers + (size_t)i];
            score[0] += theirs[0];
            score[1] += theirs[1];
        }
        if (a->leads) {
            DP_TRY(dp_model_absorb(t->model, t->compute.stream, t->state.flat.running, sums));
            DP_TRY(
                t->compute.stream->ops->zero(t->compute.stream, sums, statistics * sizeof(float)));
        }
        DP_TRY(report_results(a, step + 1, enough));
    }
    return DP_OK;
}

static dp_status answer_job(void *arg, int i)
{
    return dp_ps_messages_answer(&((struct dp_async *)arg)->messages, i);
}

/* Sends the current weights to each waiting trainer that is no longer too far ahead of the
 * slowest. */
static dp_status answer(struct dp_async *a)
{
    struct dp_trainer *t = a->t;

    for (int i = 0; i < t->trainers; i++) {
        struct head *head = dp_ps_messages_head(&a->messages, i);
        if (!dp_ssp_clock_may_go(&a->ssp_clock, i)) {
            continue;
        }
        a->news->step = a->reported;
        a->news->end = a->end;
        memcpy(a->news->request, a->request, sizeof(a->request));
        memcpy(head, a->news, a->messages.head_bytes);
        dp_ps_messages_pack(&a->messages, i, t->state.flat.weights, a->messages.width);
        dp_ssp_clock_go(&a->ssp_clock, i);
        DP_TRY(dp_exchange_call(t->exchange, answer_job, a, i));
    }
    return DP_OK;
}

static bool any_request(const struct dp_async *a)
{
    bool any = false;

    for (int i = 0; i < DP_REQUEST_COUNT; i++) {
        any = any || a->request[i];
    }
    return any;
}

/* Takes a gradient that has arrived. */
static dp_status take(struct dp_async *a, int i, bool *enough)
{
    const struct head *head = dp_ps_messages_head(&a->messages, i);
    const uint64_t step = a->ssp_clock.ssp_clock[i].step;

    if (head->step != step) {
        return DP_FAIL(DP_ERR_INTERNAL, "rank %d sends the gradient of step %llu, not %llu", i,
                       (unsigned long long)head->step, (unsigned long long)step);
    }
    hear(a, head->request);
    DP_TRY(update(a, i, step));
    DP_TRY(add_result(a, i, head));
    dp_ssp_clock_apply(&a->ssp_clock, i, head->last);
    DP_TRY(complete(a, enough));
    if (a->leads && (*enough || any_request(a)) && dp_ssp_clock_soonest(&a->ssp_clock) < a->end) {
        a->end = dp_ssp_clock_soonest(&a->ssp_clock);
    }
    return answer(a);
}

static dp_status begin_job(void *arg, int index)
{
    (void)index;
    return dp_ps_messages_begin(&((struct dp_async *)arg)->messages);
}

struct next {
    struct dp_async *async;
    int i;
};

static dp_status next_job(void *arg, int index)
{
    struct next *next = arg;

    (void)index;
    return dp_ps_messages_next(&next->async->messages, &next->i);
}

static dp_status serve(struct dp_async *a)
{
    struct next next = {a, 0};
    bool enough = false;

    dp_ssp_clock_begin(&a->ssp_clock, a->t->state.step);
    DP_TRY(dp_exchange_call(a->t->exchange, begin_job, a, 0));
    while (a->ssp_clock.ended < a->t->trainers) {
        request(a);
        DP_TRY(dp_exchange_call(a->t->exchange, next_job, &next, 0));
        DP_TRY(take(a, next.i, &enough));
    }
    return DP_OK;
}

/* ---- all ---- */

/* After all gradients have been applied, all ranks get the weights of all servers, and the news of
 * the first. */
static dp_status synchronise(struct dp_async *a)
{
    struct dp_trainer *t = a->t;
    struct dp_exchange *e = t->exchange;

    if (a->leads) {
        a->news->end = dp_ssp_clock_slowest(&a->ssp_clock);
        a->news->applied = t->state.step_params->applied;
        memcpy(a->news->request, a->request, sizeof(a->request));
    }
    DP_TRY(dp_exchange_broadcast(e, a->news, a->messages.head_bytes, t->trainers));
    DP_TRY(dp_exchange_broadcast(e, t->state.flat.running, t->model->statistics * sizeof(float),
                                 t->trainers));
    for (int b = 0; b < dp_exchange_plan(e)->count; b++) {
        DP_TRY(dp_exchange_plan(e)->buckets[b].exact ? DP_OK : dp_exchange_publish(e, b));
    }
    return dp_exchange_end(e);
}

dp_status dp_async_run(struct dp_async *a, uint64_t until, bool *requested)
{
    struct dp_trainer *t = a->t;
    const uint64_t begin = t->state.step, wire = t->group->wire_bytes;
    bool enough = false;

    a->reported = begin;
    a->end = until;
    memset(a->request, 0, sizeof(a->request));
    DP_TRY(dp_trainer_serves(t) ? serve(a) : train(a));
    DP_TRY(synchronise(a));
    t->state.step = a->news->end;
    t->state.batches_tracked += (int64_t)(t->state.step - begin);
    t->state.step_params->applied = a->news->applied;
    memcpy(requested, a->news->request, sizeof(a->request));
    DP_TRY(stepped(a));
    DP_TRY(report_results(a, t->state.step, &enough));
    t->wire_bytes += t->group->wire_bytes - wire;
    return DP_OK;
}

size_t dp_async_bins(const struct dp_async *a)
{
    return a->ssp_clock.bins;
}

dp_status dp_async_histogram(struct dp_async *a, uint64_t *counts)
{
    struct dp_exchange *e = a->t->exchange;
    const size_t bytes = a->ssp_clock.bins * sizeof(*counts);
    uint64_t *theirs = dp_zalloc(a->ssp_clock.bins, sizeof(*theirs));
    dp_status status = dp_exchange_agree(e, theirs != NULL ? DP_OK : DP_ERR_NOMEM);

    memset(counts, 0, bytes);
    for (int rank = a->t->trainers;
         status == DP_OK && theirs != NULL && rank < dp_exchange_group(e)->size; rank++) {
        memcpy(theirs, a->ssp_clock.histogram, bytes);
        status = dp_exchange_broadcast(e, theirs, bytes, rank);
        for (size_t i = 0; i < a->ssp_clock.bins; i++) {
            counts[i] += theirs[i];
        }
    }
    dp_free(theirs);
    return status == DP_ERR_NOMEM ? DP_FAIL(status, "staleness of gradients") : status;
}
