#include "runtime/trainer/compute/compute.h"

#include "base/log.h"
#include "runtime/data/rows.h"

/* ---- passes, one after the other ---- */

static size_t my_rows(struct dp_lanes_share share, size_t rows)
{
    return dp_row_range(rows, share.rank, share.ranks).count;
}

static dp_status prepare_passes(const struct dp_compute *c, struct dp_lanes_share share,
                                size_t rows, bool training)
{
    return dp_micro_batch_prepare(&c->micro_batches, my_rows(share, rows), training);
}

static dp_status forget_nothing(const struct dp_compute *c)
{
    (void)c;
    return DP_OK;
}

static dp_status run_passes(const struct dp_compute *c, const struct dp_batch *batch,
                            const struct dp_pass_call *call)
{
    return dp_micro_batch_run(&c->micro_batches, batch, call);
}

static dp_status send_passes(const struct dp_compute *c, const struct dp_batch *next)
{
    return dp_micro_batch_send(&c->micro_batches, next);
}

static size_t count_passes(const struct dp_compute *c, size_t rows)
{
    return dp_micro_batch_evaluations(&c->micro_batches, my_rows(c->share, rows));
}

static dp_status evaluate_passes(const struct dp_compute *c, struct dp_test_rows *test,
                                 struct dp_range passes, const struct dp_pass_call *call,
                                 double (*sums)[DP_EVALUATION_SUMS])
{
    const struct dp_range rows =
        dp_row_range(dp_test_rows_count(test), c->share.rank, c->share.ranks);

    return dp_micro_batch_evaluate(&c->micro_batches, test, 0, rows, passes, call, sums[0]);
}

const struct dp_compute_mode dp_compute_micro_batches = {
    .prepare = prepare_passes,
    .forget = forget_nothing,
    .run = run_passes,
    .send = send_passes,
    .evaluations = count_passes,
    .evaluate = evaluate_passes,
};

/* ---- lanes ---- */

static dp_status prepare_lanes(const struct dp_compute *c, struct dp_lanes_share share, size_t rows,
                               bool training)
{
    return dp_lanes_prepare(c->lanes, share, rows, training);
}

static dp_status forget_lanes(const struct dp_compute *c)
{
    return dp_lanes_forget(c->lanes);
}

static dp_status run_lanes(const struct dp_compute *c, const struct dp_batch *batch,
                           const struct dp_pass_call *call)
{
    return dp_lanes_run(c->lanes, c->share, batch, call);
}

static size_t count_lane_passes(const struct dp_compute *c, size_t rows)
{
    return dp_lanes_evaluations(c->lanes, c->share, rows);
}

static dp_status evaluate_lanes(const struct dp_compute *c, struct dp_test_rows *test,
                                struct dp_range passes, const struct dp_pass_call *call,
                                double (*sums)[DP_EVALUATION_SUMS])
{
    return dp_lanes_evaluate(c->lanes, c->share, test, passes, call, sums);
}

const struct dp_compute_mode dp_compute_lanes = {
    .prepare = prepare_lanes,
    .forget = forget_lanes,
    .run = run_lanes,
    .evaluations = count_lane_passes,
    .evaluate = evaluate_lanes,
};

/* ---- servers, which have no rows ---- */

static dp_status prepare_nothing(const struct dp_compute *c, struct dp_lanes_share share,
                                 size_t rows, bool training)
{
    (void)c;
    (void)share;
    (void)rows;
    (void)training;
    return DP_OK;
}

static dp_status run_nothing(const struct dp_compute *c, const struct dp_batch *batch,
                             const struct dp_pass_call *call)
{
    const struct dp_model *model = c->micro_batches.model;
    const size_t tail = model->trained, count = dp_model_loss_at(model) + 2 - tail;
    (void)batch;

    DP_TRY(c->stream->ops->zero(c->stream, call->grad + tail, count * sizeof(float)));
    for (int i = model->tensor_count - 1; call->hooks->ready != NULL && i >= 0; i--) {
        DP_TRY(call->hooks->ready(call->hooks->context, i));
    }
    return DP_OK;
}

static size_t count_nothing(const struct dp_compute *c, size_t rows)
{
    (void)c;
    (void)rows;
    return 0;
}

static dp_status evaluate_nothing(const struct dp_compute *c, struct dp_test_rows *test,
                                  struct dp_range passes, const struct dp_pass_call *call,
                                  double (*sums)[DP_EVALUATION_SUMS])
{
    (void)c;
    (void)test;
    (void)passes;
    (void)call;
    (void)sums;
    return DP_OK;
}

const struct dp_compute_mode dp_compute_server = {
    .prepare = prepare_nothing,
    .forget = forget_nothing,
    .run = run_nothing,
    .evaluations = count_nothing,
    .evaluate = evaluate_nothing,
};

void dp_compute_drop_rows(const struct dp_compute *c)
{
    if (c->pass != NULL && dp_pass_drop_rows(c->pass) != DP_OK) {
        DP_DEBUG("batches are released while the device may still read them");
    }
}

void dp_compute_close(struct dp_compute *c)
{
    dp_graph_capture_destroy(c->capture);
    if (!c->borrowed) {
        dp_lanes_destroy(c->lanes);
        dp_pass_destroy(c->pass);
        if (c->stream != NULL) {
            c->stream->device->stream_destroy(c->stream);
        }
    }
    dp_normalize_fini(&c->normalize);
}
