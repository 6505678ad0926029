/*
 * prepare.c - what a trainer computes with: a stream, passes or lanes on it, and the graph capture,
 * prepared for all row counts before the first step. Where algorithms are measured then, ranks
 * agree on them here.
 */
#include "runtime/trainer/algo_agreement.h"
#include "runtime/trainer/trainer.h"

/* Prepares for this rank's part of a batch (or test set) of so many rows. */
static dp_status prepare(const struct dp_trainer *t, size_t rows, bool training)
{
    const size_t mine = dp_trainer_rows(t, rows).count;

    return t->lanes != NULL ? dp_lanes_prepare(t->lanes, dp_trainer_share(t), rows, training)
                            : dp_micro_batch_prepare(&t->parts, mine, training);
}

static dp_status make_lanes(struct dp_trainer *t, int threads)
{
    const struct dp_train_config *c = &t->config->train;
    const int ranks = t->trainers;
    const struct dp_lanes_config config = {
        .model = t->model,
        .device = t->device,
        .stream = t->stream,
        .normalize = &t->normalize,
        .total = c->lanes,
        .count = c->lanes / ranks,
        .threads = threads,
        .global_batch = t->global_batch,
        .micro_batch = (size_t)c->micro_batch,
    };

    if (c->lanes % ranks != 0) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "train.lanes: %d lanes cannot be shared evenly by %d ranks; run on a power "
                       "of two of them, up to %d",
                       c->lanes, ranks, c->lanes);
    }
    return dp_lanes_create(&config, &t->lanes);
}

/* Memory to compute in, for at most as many rows as any rank can have. */
static dp_status make_passes(struct dp_trainer *t, int threads)
{
    const struct dp_train_config *c = &t->config->train;
    const size_t most = dp_most_rows(t->global_batch, t->trainers);
    const char *engine;

    DP_TRY(dp_device_find_conv(t->device, (enum dp_conv_engine)t->config->device.conv, &engine));
    DP_TRY(t->device->stream_create(t->device, threads, &t->stream));
    t->stream->algo_choices = t->algo_choices;
    t->stream->conv = (enum dp_conv_engine)t->config->device.conv;
    t->stream->tf32 = c->precision == DP_PRECISION_TF32;
    dp_stream_set_type(t->stream, t->flat.type);
    if (dp_trainer_serves(t)) {
        return DP_OK;
    }
    if (c->lanes > 0) {
        return make_lanes(t, threads);
    }
    return dp_pass_create(t->model, t->stream, dp_micro_batch_most(most, (size_t)c->micro_batch),
                          true, &t->pass);
}

const char *dp_trainer_unrecorded(const struct dp_trainer *t)
{
    if (t->device->replay == NULL) {
        return "this device queues nothing";
    }
    if (t->config->device.graph == DP_GRAPH_OFF) {
        return "device.graph is off";
    }
    if (t->config->train.lanes > 0) {
        return "lanes (train.lanes) are computed side by side";
    }
    return t->hooks.sum != NULL && dp_lanes_synchronised(t->model)
               ? "synchronised batch norm waits for the other ranks in between"
               : NULL;
}

static bool hands_over(const void *exchange, int tensor)
{
    return dp_exchange_hands_over(exchange, tensor);
}

/* Whole batches are recorded; others are rare. */
static dp_status make_tape(struct dp_trainer *t)
{
    const char *why_not = dp_trainer_unrecorded(t);
    const size_t rows = dp_trainer_rows(t, t->global_batch).count;
    const struct dp_graph_capture_config config = {
        .stream = t->stream,
        .rows = t->global_batch,
        .passes = (int)dp_micro_batch_count(rows, (size_t)t->config->train.micro_batch),
        .tensors = t->model->tensor_count,
        .buckets = dp_exchange_plan(t->exchange)->count,
        .must = t->config->device.graph == DP_GRAPH_ON,
        .hands_over = hands_over,
        .context = t->exchange,
    };

    if (why_not != NULL && config.must) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "device.graph is 'on', but steps cannot be recorded: %s; set it to 'auto'",
                       why_not);
    }
    return why_not != NULL ? DP_OK : dp_graph_capture_create(&config, &t->capture);
}

/* All row counts that this rank can have: full batches, the short last one of an epoch, the
 * baseline's, and evaluation's. */
static dp_status prepare_all(const struct dp_trainer *t)
{
    const size_t most = dp_most_rows(t->global_batch, t->trainers);
    const size_t count = t->data->train_count, rest = count % t->global_batch;
    const struct dp_lanes_share alone = {0, 1};

    if (dp_trainer_serves(t)) {
        return DP_OK;
    }
    if (count >= t->global_batch) {
        DP_TRY(prepare(t, t->global_batch, true));
        DP_TRY(t->lanes != NULL ? dp_lanes_prepare(t->lanes, alone, most, true)
                                : dp_micro_batch_prepare(&t->parts, most, true));
    }
    if (rest != 0 && !t->config->data.drop_last) {
        DP_TRY(prepare(t, rest, true));
    }
    return t->lent ? DP_OK : prepare(t, t->data->test_count, false);
}

static dp_status make_parts(struct dp_trainer *t, int threads)
{
    if (!t->lent) {
        DP_TRY(make_passes(t, threads));
    }
    dp_exchange_follow(t->exchange, t->stream, t->flat.weights);
    DP_TRY(dp_normalize_place(&t->normalize, t->stream));
    if (dp_trainer_serves(t)) {
        return DP_OK;
    }
    DP_TRY(make_tape(t));
    t->parts = (struct dp_micro_batches){.model = t->model,
                                         .pass = t->pass,
                                         .micro_batch = (size_t)t->config->train.micro_batch,
                                         .normalize = &t->normalize,
                                         .capture = t->capture};
    return DP_OK;
}

/* With the choices that ranks have agreed on. */
static dp_status prepare_anew(const struct dp_trainer *t)
{
    if (t->lanes != NULL) {
        DP_TRY(dp_lanes_forget(t->lanes));
    }
    DP_TRY(t->device->forget(t->stream));
    return prepare_all(t);
}

dp_status dp_trainer_prepare(struct dp_trainer *t, int threads)
{
    const dp_status made = make_parts(t, threads);
    bool changed = false;

    if (t->algo_choices == NULL) {
        return made == DP_OK ? prepare_all(t) : made;
    }
    /* What is measured on takes memory for a while: not before all ranks of a GPU have theirs. */
    const dp_status worst = dp_exchange_agree(t->exchange, made);

    DP_TRY(made != DP_OK ? made : worst);
    DP_TRY(dp_algo_agreement_reach(t->exchange, prepare_all(t), t->algo_choices, &changed));
    return changed ? prepare_anew(t) : DP_OK;
}
