#include "runtime/trainer/evaluation.h"

#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/trainer_parts.h"

/* Adds losses and correct answers of this rank's test rows, for each of its lanes, to sums
 * [count][2]; of their passes, only those in `passes`. */
static dp_status evaluate_mine(struct dp_trainer *t, struct dp_range passes, double (*sums)[2])
{
    const struct dp_dataset *data = t->input.data;
    const struct dp_pass_call call = {.weights = t->state.flat.weights,
                                      .running = t->state.flat.running,
                                      .step_params = t->state.there,
                                      .batch_rows = dp_trainer_rows(t, data->test_count).count,
                                      .seed = (uint64_t)t->config->train.seed};

    return t->compute.mode->evaluate(&t->compute, data, passes, &call, sums);
}

/* What a rank reports to the others after a round of an evaluation. */
struct eval_round {
    double seconds; /* that the round took */
    bool asked;     /* whether it was asked to stop */
    bool more;      /* whether passes are left */
};

/* Sets *passes to those of the next round; none: all are done. Their number depends on the time
 * that the slowest rank took for the last round, which all ranks know. */
static dp_status next_round(const struct eval_round *all, int ranks, struct dp_range *passes)
{
    const double wanted_s = 0.25;
    double slowest_s = 1e-9;
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
    const double fitting = (double)passes->count * wanted_s / slowest_s;
    const double most = 8.0 * (double)passes->count; /* its time may be off */
    passes->count = !more ? 0 : (size_t)(fitting < 1.0 ? 1.0 : fitting < most ? fitting : most);
    return DP_OK;
}

static dp_status evaluate_rounds(struct dp_trainer *t, double (*sums)[2])
{
    struct eval_round mine, *all = dp_zalloc((size_t)t->group->size, sizeof(*all));
    const size_t count = t->compute.mode->evaluations(&t->compute, t->input.data->test_count);
    struct dp_range passes = {0, 1};
    dp_status status = DP_OK;

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
        if (status == DP_OK) {
            status = dp_exchange_gather(t->exchange, &mine, sizeof(mine), all);
        }
        if (status == DP_OK) {
            status = next_round(all, t->group->size, &passes);
        }
    }
    dp_free(all);
    return status;
}

dp_status dp_trainer_evaluate(struct dp_trainer *t, struct dp_evaluation *out)
{
    DP_SPAN(DP_PHASE_EVALUATE, (int64_t)t->state.step);
    const int total = t->config->train.lanes;
    const size_t lanes = total > 0 ? (size_t)(total / t->trainers) : 1; /* of a rank */
    const size_t all = lanes * (size_t)t->group->size;
    double(*sums)[2] = dp_zalloc(lanes + all, sizeof(*sums)); /* of this rank; of all ranks */
    double sum[2] = {0.0, 0.0};
    dp_status status;

    if (sums == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "evaluation of %d ranks", t->group->size);
    }
    status = evaluate_rounds(t, sums);
    if (status == DP_OK) {
        status = dp_exchange_gather(t->exchange, sums, lanes * sizeof(*sums), sums + lanes);
    }
    for (size_t i = 0; i < all; i++) { /* lane by lane: the same bits on any ranks */
        sum[0] += sums[lanes + i][0];
        sum[1] += sums[lanes + i][1];
    }
    dp_free(sums);
    DP_TRY(status);
    out->loss = sum[0] / (double)t->input.data->test_count;
    out->accuracy = sum[1] / (double)t->input.data->test_count;
    return DP_OK;
}
