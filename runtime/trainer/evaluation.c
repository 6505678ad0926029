#include "runtime/trainer/evaluation.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/trainer_parts.h"

/* Adds what this rank's test rows come to, for each of its lanes, to sums [count]; of their passes,
 * only those in `passes`. */
static dp_status evaluate_mine(struct dp_trainer *t, struct dp_range passes,
                               double (*sums)[DP_EVALUATION_SUMS])
{
    const struct dp_flat *f = &t->state.flat;
    const void *average = f->type == DP_TYPE_F32 ? f->average : t->state.judged;
    const struct dp_pass_call call = {.weights = f->average != NULL ? average : f->weights,
                                      .running = f->running,
                                      .batch_rows =
                                          dp_trainer_rows(t, t->input.data->test_count).count};

    return t->compute.mode->evaluate(&t->compute, t->input.test, passes, &call, sums);
}

/* The average of the weights in the compute type, where there is one. */
static dp_status round_average(struct dp_trainer *t)
{
    const struct dp_flat *f = &t->state.flat;
    struct dp_stream *s = t->compute.stream;

    return t->state.judged == NULL
               ? DP_OK
               : s->ops->narrow(s, t->state.judged, f->average, f->trained, f->type);
}

/* What a rank reports to the others after a round of an evaluation. */
struct eval_round {
    double seconds;    /* that the round took */
    bool asked;        /* whether it was asked to stop */
    bool more;         /* whether passes are left */
    dp_status failure; /* of its test rows, which is not reported yet */
};

size_t dp_evaluation_round(size_t passes, double seconds)
{
    const double wanted_s = 0.25;
    const double fitting = (double)passes * wanted_s / (seconds > 1e-9 ? seconds : 1e-9);
    const double most = 8.0 * (double)passes; /* its time may be off */

    return (size_t)(fitting < 1.0 ? 1.0 : fitting < most ? fitting : most);
}

/* Sets *passes to those of the next round; none: all are done. Their number depends on the time
 * that the slowest rank took for the last round, which all ranks know. */
static dp_status next_round(const struct eval_round *all, int ranks, struct dp_range *passes)
{
    double slowest_s = 0.0;
    bool more = false;

    for (int i = 0; i < ranks; i++) {
        slowest_s = all[i].seconds > slowest_s ? all[i].seconds : slowest_s;
        more = more || all[i].more;
    }
    for (int i = 0; more && i < ranks; i++) {
        if (all[i].asked) {
            return DP_STOPPED;
        }
    }
    passes->begin += passes->count;
    passes->count = more ? dp_evaluation_round(passes->count, slowest_s) : 0;
    return DP_OK;
}

/* The first rank whose rows cannot be read says why. Nobody leaves before it has. */
static dp_status judge_rows(struct dp_trainer *t, struct eval_round *all)
{
    dp_status cause = DP_OK;
    const char *error;

    for (int i = 0; i < t->group->size && cause == DP_OK; i++) {
        cause = all[i].failure;
        if (cause != DP_OK && i == t->group->rank) {
            (void)!dp_test_rows_failure(t->input.test, &error);
            dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", error);
        }
    }
    if (cause != DP_OK) {
        const struct eval_round mine = all[t->group->rank];
        DP_TRY(dp_exchange_gather(t->exchange, &mine, sizeof(mine), all));
    }
    return cause;
}

static dp_status evaluate_rounds(struct dp_trainer *t, double (*sums)[DP_EVALUATION_SUMS])
{
    struct eval_round mine, *all = dp_zalloc((size_t)t->group->size, sizeof(*all));
    const size_t count = t->compute.mode->evaluations(&t->compute, t->input.data->test_count);
    struct dp_range passes = {0, 1};
    dp_status status = DP_OK;
    const char *error;

    if (all == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "evaluation of %d ranks", t->group->size);
    }
    memset(&mine, 0, sizeof(mine));
    while (passes.count > 0 && status == DP_OK) {
        const uint64_t begin_ns = dp_now_ns();
        status = evaluate_mine(t, passes, sums);
        mine.seconds = (double)(dp_now_ns() - begin_ns) / 1e9;
        mine.asked = dp_stop_asked(t->stop) != DP_STOP_NONE;
        mine.more = passes.begin + passes.count < count;
        mine.failure = dp_test_rows_failure(t->input.test, &error);
        if (status == DP_OK || mine.failure != DP_OK) {
            status = dp_exchange_gather(t->exchange, &mine, sizeof(mine), all);
            status = status == DP_OK ? judge_rows(t, all) : status;
        }
        if (status == DP_OK) {
            status = next_round(all, t->group->size, &passes);
        }
    }
    dp_free(all);
    return status;
}

struct dp_evaluation dp_evaluation_of(const struct dp_model *model, const double *sum, double rows)
{
    const bool answers = model->loss != DP_LOSS_SQUARE;
    const double unknown = (double)NAN, score = sum[DP_SUM_SCORE] / rows;

    return (struct dp_evaluation){
        .loss = sum[DP_SUM_LOSS] / rows,
        .accuracy = answers ? score : unknown,
        .top5 = dp_model_counts_top(model) ? sum[DP_SUM_TOP] / rows : unknown,
        .error = answers ? unknown : score,
    };
}

dp_status dp_trainer_evaluate(struct dp_trainer *t, struct dp_evaluation *out)
{
    DP_SPAN(DP_PHASE_EVALUATE, (int64_t)t->state.step);
    const int total = t->config->train.lanes;
    const size_t lanes = total > 0 ? (size_t)(total / t->trainers) : 1; /* of a rank */
    const size_t all = lanes * (size_t)t->group->size;
    double(*sums)[DP_EVALUATION_SUMS] = dp_zalloc(lanes + all, sizeof(*sums)); /* mine; of all */
    double sum[DP_EVALUATION_SUMS] = {0.0};
    dp_status status;

    if (sums == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "evaluation of %d ranks", t->group->size);
    }
    status = round_average(t);
    status = status == DP_OK ? evaluate_rounds(t, sums) : status;
    if (status == DP_OK) {
        status = dp_exchange_gather(t->exchange, sums, lanes * sizeof(*sums), sums + lanes);
    }
    for (size_t i = 0; i < all; i++) { /* lane by lane: the same bits on any ranks */
        for (int k = 0; k < DP_EVALUATION_SUMS; k++) {
            sum[k] += sums[lanes + i][k];
        }
    }
    dp_free(sums);
    DP_TRY(status);
    *out = dp_evaluation_of(t->model, sum, (double)t->input.data->test_count);
    return DP_OK;
}
