#include "runtime/trainer/prepare/prepare.h"

#include "collectives/exchange/exchange_calls.h"
#include "kernels/stream_trace.h"
#include "runtime/trainer/prepare/algo_agreement.h"
#include "runtime/trainer/trainer_parts.h"

static dp_status make_lanes(struct dp_compute *c, const struct dp_compute_plan *plan)
{
    const struct dp_train_config *train = &plan->config->train;
    const struct dp_lanes_config config = {
        .model = plan->model,
        .device = plan->device,
        .stream = c->stream,
        .normalize = &c->normalize,
        .total = train->lanes,
        .count = train->lanes / plan->ranks,
        .threads = plan->threads,
        .global_batch = plan->global_batch,
        .micro_batch = (size_t)train->micro_batch,
    };

    if (train->lanes % plan->ranks != 0) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "train.lanes: %d lanes cannot be shared evenly by %d ranks; run on a power "
                       "of two of them, up to %d",
                       train->lanes, plan->ranks, train->lanes);
    }
    return dp_lanes_create(&config, &c->lanes);
}

dp_status dp_prepare_stream(struct dp_compute *c, const struct dp_compute_plan *plan)
{
    const struct dp_config *config = plan->config;
    const char *engine;

    DP_TRY(dp_device_find_conv(plan->device, (enum dp_conv_engine)config->device.conv, &engine));
    DP_TRY(plan->device->stream_create(plan->device, plan->threads, &c->stream));
    dp_stream_set_lane(c->stream, DP_LANE_GPU_COMPUTE, 0);
    c->stream->algo_choices = c->algo_choices;
    c->stream->conv = (enum dp_conv_engine)config->device.conv;
    c->stream->tf32 = config->train.precision == DP_PRECISION_TF32;
    dp_stream_set_type(c->stream, plan->type);
    return DP_OK;
}

dp_status dp_prepare_passes(struct dp_compute *c, const struct dp_compute_plan *plan)
{
    const size_t most = dp_most_rows(plan->global_batch, plan->ranks);
    const size_t micro_batch = (size_t)plan->config->train.micro_batch;

    if (plan->config->train.lanes > 0) {
        return make_lanes(c, plan);
    }
    DP_TRY(dp_pass_create(plan->model, c->stream, dp_micro_batch_most(most, micro_batch),
                          plan->trains, &c->pass));
    return plan->trains ? dp_pass_prepare_ahead(c->pass) : DP_OK;
}

const struct dp_compute_mode *dp_prepare_mode(const struct dp_config *config)
{
    return config->train.lanes > 0 ? &dp_compute_lanes : &dp_compute_micro_batches;
}

/* Passes or lanes, for the most rows that any rank can have; servers have none. */
static dp_status make_passes(struct dp_trainer *t, int threads)
{
    const struct dp_compute_plan plan = {.config = t->config,
                                         .model = t->model,
                                         .device = t->device,
                                         .type = t->state.flat.type,
                                         .ranks = t->trainers,
                                         .threads = threads,
                                         .global_batch = t->input.global_batch,
                                         .trains = true};

    DP_TRY(dp_prepare_stream(&t->compute, &plan));
    return dp_trainer_serves(t) ? DP_OK : dp_prepare_passes(&t->compute, &plan);
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
    return t->compute.hooks.sum != NULL && dp_lanes_synchronised(t->model)
               ? "synchronised batch norm waits for the other ranks in between"
               : NULL;
}

static bool hands_over(const void *exchange, int tensor)
{
    return dp_exchange_hands_over(exchange, tensor);
}

/* Only whole batches are recorded; others are rare. */
static dp_status make_capture(struct dp_trainer *t)
{
    const char *why_not = dp_trainer_unrecorded(t);
    const size_t rows = dp_trainer_rows(t, t->input.global_batch).count;
    const struct dp_graph_capture_config config = {
        .stream = t->compute.stream,
        .rows = t->input.global_batch,
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
    return why_not != NULL ? DP_OK : dp_graph_capture_create(&config, &t->compute.capture);
}

/* Prepares for all row counts that this rank can have: full batches, the short last one of an
 * epoch, the baseline's, and evaluation's. */
static dp_status prepare_all(const struct dp_trainer *t)
{
    const struct dp_compute *c = &t->compute;
    const struct dp_input *in = &t->input;
    const size_t most = dp_most_rows(in->global_batch, t->trainers);
    const size_t count = in->data->train_count, rest = count % in->global_batch;
    const struct dp_lanes_share alone = {0, 1};

    if (count >= in->global_batch) {
        DP_TRY(c->mode->prepare(c, c->share, in->global_batch, true));
        DP_TRY(c->mode->prepare(c, alone, most, true));
    }
    if (rest != 0 && !in->drop_last) {
        DP_TRY(c->mode->prepare(c, c->share, rest, true));
    }
    return c->borrowed ? DP_OK : c->mode->prepare(c, c->share, in->data->test_count, false);
}

static dp_status make_compute(struct dp_trainer *t, int threads)
{
    struct dp_compute *c = &t->compute;

    c->mode = dp_trainer_serves(t) ? &dp_compute_server : dp_prepare_mode(t->config);
    c->share = (struct dp_lanes_share){t->group->rank, t->trainers};
    if (!c->borrowed) {
        DP_TRY(make_passes(t, threads));
    }
    dp_exchange_follow(t->exchange, c->stream, t->state.flat.weights);
    DP_TRY(dp_normalize_place(&c->normalize, c->stream));
    DP_TRY(dp_trainer_serves(t) ? DP_OK : make_capture(t));
    c->micro_batches =
        (struct dp_micro_batches){.model = t->model,
                                  .pass = c->pass,
                                  .micro_batch = (size_t)t->config->train.micro_batch,
                                  .normalize = &c->normalize,
                                  .capture = c->capture};
    return DP_OK;
}

/* Prepares again, with the choices that ranks have agreed on. */
static dp_status prepare_anew(const struct dp_trainer *t)
{
    DP_TRY(t->compute.mode->forget(&t->compute));
    DP_TRY(t->device->forget(t->compute.stream));
    return prepare_all(t);
}

dp_status dp_prepare_compute(struct dp_trainer *t, int threads)
{
    const dp_status made = make_compute(t, threads);
    bool changed = false;

    if (t->compute.algo_choices == NULL) {
        return made == DP_OK ? prepare_all(t) : made;
    }
    /* Measuring uses memory for a while: it begins after all ranks of a GPU have allocated
     * theirs. */
    const dp_status worst = dp_exchange_agree(t->exchange, made);

    DP_TRY(made != DP_OK ? made : worst);
    DP_TRY(dp_algo_agreement_reach(t->exchange, prepare_all(t), t->compute.algo_choices, &changed));
    return changed ? prepare_anew(t) : DP_OK;
}
