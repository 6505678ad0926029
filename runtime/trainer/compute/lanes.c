#include "runtime/trainer/compute/lanes.h"

#include <stdatomic.h>

#include "base/mem.h"
#include "base/system/worker.h"
#include "base/trace.h"
#include "base/trace_ring.h"
#include "kernels/stream_trace.h"
#include "runtime/data/rows.h"
#include "runtime/trainer/compute/lane_sync.h"

enum { STACK = 12 }; /* levels of partial sums: up to 2^11 lanes */

/* What all workers do next. */
struct orders {
    bool evaluates; /* else it trains */
    struct dp_lanes_share share;
    const struct dp_batch *batch;       /* to train only */
    const struct dp_pass_call *call;    /* for both */
    struct dp_test_rows *test;          /* to evaluate only */
    struct dp_range passes;             /* of each lane */
    double (*sums)[DP_EVALUATION_SUMS]; /* [count] */
};

struct worker {
    struct dp_lanes *lanes;
    int index;
    struct dp_stream *stream;
    struct dp_micro_batches micro_batches; /* with a pass of its own */
    float *arrays;       /* owned; those of `stack` that are not the rank's gradient */
    float *stack[STACK]; /* partial sums; stack[0] of worker 0 is the rank's gradient */
    int lane;            /* the lane of its block that is being computed */
    atomic_int through;  /* the last tensor that is summed over this worker's lanes */
    struct dp_model_hooks hooks;
    struct dp_worker *thread; /* owned; worker 0 has none */
};

struct dp_lanes {
    struct dp_lanes_config config;
    int workers, block; /* how many; lanes of each */
    bool synchronised;
    struct worker *worker;          /* owned; [workers] */
    struct dp_lane_sync *lane_sync; /* owned */
    struct orders orders;
    int announce; /* the tensor that becomes ready next; below 0: none is left */
};

static int levels_of(const struct dp_lanes *l)
{
    return dp_lanes_extra_gradients(l->block, 1) + 1;
}

/* Elements of a gradient that lanes add up: parameters, statistics, loss, score. */
static size_t summed(const struct dp_lanes *l)
{
    return dp_model_loss_at(l->config.model) + 2;
}

/* ---- order between streams; on the CPU operations are done when they return ---- */

/* The first worker's stream waits for what all workers have queued. */
static dp_status gather_streams(const struct dp_lanes *l)
{
    for (int i = 1; i < l->workers; i++) {
        DP_TRY(l->config.device->order(l->worker[0].stream, l->worker[i].stream));
    }
    return DP_OK;
}

/* All workers' streams wait for `stream`. */
static dp_status spread_stream(const struct dp_lanes *l, struct dp_stream *stream)
{
    for (int i = 0; i < l->workers; i++) {
        DP_TRY(l->config.device->order(l->worker[i].stream, stream));
    }
    return DP_OK;
}

/* Work of others on the gradient waits for the first worker's stream. */
static dp_status hand_over(const struct dp_lanes *l)
{
    return l->config.device->order(l->config.stream, l->worker[0].stream);
}

/* ---- sums inside a layer ---- */

/* Sums in the tree over all lanes, then over the ranks; every lane gets the result. */
static dp_status sum_arrays(void *context, float *const *arrays, size_t count)
{
    const struct dp_lanes *l = context;
    struct dp_stream *stream = l->worker[0].stream;
    const struct dp_model_hooks *outer = l->orders.call->hooks;

    DP_TRY(gather_streams(l));
    for (int step = 1; step < l->workers; step *= 2) {
        for (int i = 0; i < l->workers; i += 2 * step) {
            DP_TRY(stream->ops->add(stream, arrays[i], arrays[i + step], count));
        }
    }
    if (outer->sum != NULL) {
        DP_TRY(hand_over(l));
        DP_TRY(outer->sum(outer->context, arrays[0], count));
        DP_TRY(l->config.device->order(stream, l->config.stream));
    }
    for (int i = 1; i < l->workers; i++) {
        DP_TRY(stream->ops->copy(stream, arrays[i], arrays[0], count * sizeof(float)));
    }
    return spread_stream(l, stream);
}

static dp_status sum(void *context, float *data, size_t count)
{
    struct worker *w = context;

    return dp_lane_sync_reduce(w->lanes->lane_sync, w->index, data, count);
}

/* ---- partial sums ---- */

/* This lane's elements are computed: adds those partial sums that are complete now. */
static dp_status close_levels(const struct worker *w, size_t begin, size_t count)
{
    int top = dp_lane_depth(w->lane);

    for (int i = dp_lane_merges(w->lane); i > 0; i--, top--) {
        DP_TRY(w->stream->ops->add(w->stream, w->stack[top - 1] + begin, w->stack[top] + begin,
                                   count));
    }
    return DP_OK;
}

/* Adds the workers' sums of these elements to the first one's. */
static dp_status join(const struct dp_lanes *l, size_t begin, size_t count)
{
    DP_TRY(gather_streams(l));
    for (int step = 1; step < l->workers; step *= 2) {
        for (int i = 0; i < l->workers; i += 2 * step) {
            struct dp_stream *stream = l->worker[0].stream;
            DP_TRY(stream->ops->add(stream, l->worker[i].stack[0] + begin,
                                    l->worker[i + step].stack[0] + begin, count));
        }
    }
    return DP_OK;
}

/* Sums the tensors that all workers have finished, and reports them as ready. */
static dp_status announce(struct dp_lanes *l)
{
    const struct dp_model_hooks *outer = l->orders.call->hooks;
    int through = 0;

    for (int i = 0; i < l->workers; i++) {
        const int mine = atomic_load_explicit(&l->worker[i].through, memory_order_acquire);
        through = mine > through ? mine : through;
    }
    for (; l->announce >= through; l->announce--) {
        const struct dp_tensor *tensor = &l->config.model->tensors[l->announce];
        DP_TRY(join(l, tensor->begin, tensor->count));
        if (outer->ready != NULL) {
            DP_TRY(hand_over(l));
            DP_TRY(outer->ready(outer->context, l->announce));
        }
    }
    return DP_OK;
}

/* Where lanes wait for each other inside layers, the order of sums and buckets would depend on
 * timing: then tensors become ready only after all lanes. */
static dp_status ready(void *context, int tensor)
{
    struct worker *w = context;
    struct dp_lanes *l = w->lanes;
    const struct dp_tensor *t = &l->config.model->tensors[tensor];

    DP_TRY(close_levels(w, t->begin, t->count));
    if (w->lane != l->block - 1) {
        return DP_OK;
    }
    atomic_store_explicit(&w->through, tensor, memory_order_release);
    return w->index == 0 && (l->workers == 1 || !l->synchronised) ? announce(l) : DP_OK;
}

/* ---- the work ---- */

static struct dp_range lane_rows(const struct dp_lanes *l, struct dp_lanes_share share, int lane,
                                 size_t rows)
{
    const int count = l->config.count;

    return dp_row_range(rows, share.rank * count + lane, share.ranks * count);
}

static dp_status run_lane(struct worker *w, const struct orders *o, int lane)
{
    const struct dp_lanes *l = w->lanes;
    const struct dp_range rows = lane_rows(l, o->share, lane, o->batch->global_rows);
    const size_t at = rows.begin - o->batch->first_row;
    const size_t tail = l->config.model->trained;
    struct dp_pass_call call = *o->call;
    struct dp_batch batch = *o->batch;

    w->lane = lane % l->block;
    batch.first_row = rows.begin;
    batch.rows = rows.count;
    batch.images += at * dp_model_sample_bytes(l->config.model);
    batch.labels += at * dp_model_train_words(l->config.model);
    call.grad = w->stack[dp_lane_depth(w->lane)];
    w->hooks.early = o->call->hooks->early;
    call.hooks = &w->hooks;
    DP_TRY(dp_micro_batch_run(&w->micro_batches, &batch, &call));
    return close_levels(w, tail, summed(l) - tail);
}

static dp_status evaluate_lane(struct worker *w, const struct orders *o, int lane)
{
    const struct dp_range rows = lane_rows(w->lanes, o->share, lane, dp_test_rows_count(o->test));

    return dp_micro_batch_evaluate(&w->micro_batches, o->test, w->index, rows, o->passes, o->call,
                                   o->sums[lane]);
}

/* Executes the orders for the lanes of one worker. */
static dp_status carry_out(void *context)
{
    struct worker *w = context;
    if (w->index > 0) {
        dp_trace_set_lane(DP_LANE_COMPUTE, w->index);
    }
    DP_SPAN(DP_PHASE_OTHER, w->index);
    const struct dp_lanes *l = w->lanes;
    dp_status status = DP_OK;

    dp_lane_sync_enter(l->lane_sync);
    for (int i = 0; i < l->block && status == DP_OK; i++) {
        const int lane = w->index * l->block + i;
        status = l->orders.evaluates ? evaluate_lane(w, &l->orders, lane)
                                     : run_lane(w, &l->orders, lane);
    }
    dp_lane_sync_leave(l->lane_sync, status != DP_OK);
    return status;
}

/* Gives orders to all workers, and executes the caller's part. */
static dp_status give_orders(struct dp_lanes *l, const struct orders *orders)
{
    dp_status cause, status;

    l->orders = *orders;
    for (int i = 1; i < l->workers; i++) {
        dp_worker_start(l->worker[i].thread);
    }
    cause = carry_out(&l->worker[0]);
    for (int i = 1; i < l->workers; i++) {
        status = dp_worker_wait(l->worker[i].thread);
        /* The status of the first worker that failed; one that only gave up counts last. */
        if (cause == DP_OK || (cause == DP_ERR_CANCELLED && status != DP_OK)) {
            cause = status;
        }
    }
    return cause;
}

dp_status dp_lanes_run(struct dp_lanes *l, struct dp_lanes_share share,
                       const struct dp_batch *batch, const struct dp_pass_call *call)
{
    DP_SPAN(DP_PHASE_BACKWARD, (int64_t)batch->first_row);
    const size_t tail = l->config.model->trained;
    const struct orders orders = {.share = share, .batch = batch, .call = call};

    l->worker[0].stack[0] = call->grad;
    l->announce = l->config.model->tensor_count - 1;
    for (int i = 0; i < l->workers; i++) {
        atomic_store_explicit(&l->worker[i].through, l->config.model->tensor_count,
                              memory_order_relaxed);
    }
    DP_TRY(spread_stream(l, l->config.stream));
    DP_TRY(give_orders(l, &orders));
    DP_TRY(announce(l));
    DP_TRY(join(l, tail, summed(l) - tail));
    return hand_over(l);
}

int dp_lanes_users(const struct dp_lanes *l)
{
    return l->workers;
}

size_t dp_lanes_evaluations(const struct dp_lanes *l, struct dp_lanes_share share, size_t rows)
{
    size_t most = 0;

    for (int lane = 0; lane < l->config.count; lane++) {
        const size_t count = dp_micro_batch_evaluations(&l->worker[lane / l->block].micro_batches,
                                                        lane_rows(l, share, lane, rows).count);
        most = count > most ? count : most;
    }
    return most;
}

dp_status dp_lanes_evaluate(struct dp_lanes *l, struct dp_lanes_share share,
                            struct dp_test_rows *test, struct dp_range passes,
                            const struct dp_pass_call *call, double (*sums)[DP_EVALUATION_SUMS])
{
    const struct orders orders = {.evaluates = true,
                                  .share = share,
                                  .call = call,
                                  .test = test,
                                  .passes = passes,
                                  .sums = sums};

    DP_TRY(spread_stream(l, l->config.stream));
    return give_orders(l, &orders);
}

dp_status dp_lanes_prepare(struct dp_lanes *l, struct dp_lanes_share share, size_t rows,
                           bool training)
{
    for (int lane = 0; lane < l->config.count; lane++) {
        const struct worker *w = &l->worker[lane / l->block];
        DP_TRY(dp_micro_batch_prepare(&w->micro_batches, lane_rows(l, share, lane, rows).count,
                                      training));
    }
    return DP_OK;
}

dp_status dp_lanes_forget(struct dp_lanes *l)
{
    for (int i = 0; i < l->workers; i++) {
        DP_TRY(l->config.device->forget(l->worker[i].stream));
    }
    return DP_OK;
}

struct dp_lanes_first dp_lanes_first(const struct dp_lanes *l, struct dp_lanes_share share,
                                     size_t global_rows)
{
    return (struct dp_lanes_first){
        .pass = l->worker[0].micro_batches.pass,
        .rows = lane_rows(l, share, l->block - 1, global_rows).count,
        .lanes = l->block,
    };
}

/* ---- making and releasing ---- */

static dp_status worker_open(struct worker *w)
{
    struct dp_lanes *l = w->lanes;
    const struct dp_lanes_config *c = &l->config;
    const size_t most =
        dp_micro_batch_most(dp_most_rows(c->global_batch, c->total), c->micro_batch);
    const size_t count = dp_round_up(summed(l), DP_BLOCK);
    const int first = w->index == 0 ? 1 : 0, levels = levels_of(l);
    const size_t bytes = (size_t)(levels - first) * count * sizeof(float);
    const struct dp_worker_config config = {
        .name = "dp-lane", .task = "computes a lane", .run = carry_out, .context = w};

    DP_TRY(c->device->stream_create(c->device, 1, &w->stream));
    dp_stream_set_lane(w->stream, DP_LANE_GPU_COMPUTE, w->index + 1);
    dp_stream_set_like(w->stream, c->stream);
    w->stream->algo_choices = c->stream->algo_choices; /* the main thread prepares all lanes */
    w->micro_batches = (struct dp_micro_batches){
        .model = c->model, .micro_batch = c->micro_batch, .normalize = c->normalize};
    DP_TRY(dp_pass_create(c->model, w->stream, most, true, &w->micro_batches.pass));
    w->arrays = c->device->alloc(DP_MEM_GRADIENTS, bytes);
    if (w->arrays == NULL) {
        return DP_FAIL(DP_ERR_NOMEM,
                       "partial sums of %d lanes need %zu MB; fewer train.lanes, or more ranks, "
                       "need less",
                       c->count, bytes >> 20);
    }
    for (int i = first; i < levels; i++) {
        w->stack[i] = w->arrays + (size_t)(i - first) * count;
    }
    return w->index > 0 ? dp_worker_create(&config, &w->thread) : DP_OK;
}

static void worker_close(struct worker *w)
{
    dp_pass_destroy(w->micro_batches.pass);
    w->lanes->config.device->release(w->arrays);
    if (w->stream != NULL) {
        w->stream->device->stream_destroy(w->stream);
    }
}

static dp_status workers_open(struct dp_lanes *l)
{
    l->worker = dp_zalloc((size_t)l->workers, sizeof(*l->worker));
    if (l->worker == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%d lanes", l->config.count);
    }
    DP_TRY(dp_lane_sync_create(l->workers, l->config.threads,
                               (struct dp_lane_sync_sum){sum_arrays, l}, &l->lane_sync));
    for (int i = 0; i < l->workers; i++) {
        struct worker *w = &l->worker[i];
        w->lanes = l;
        w->index = i;
        w->hooks = (struct dp_model_hooks){.context = w, .ready = ready, .sum = sum};
        DP_TRY(worker_open(w));
    }
    return DP_OK;
}

dp_status dp_lanes_create(const struct dp_lanes_config *config, struct dp_lanes **out)
{
    struct dp_lanes *l = dp_zalloc(1, sizeof(*l));
    dp_status status;

    if (l == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "lanes");
    }
    l->config = *config;
    l->synchronised = dp_lanes_synchronised(config->model);
    l->workers = dp_lanes_workers(config->model, config->count, config->threads);
    l->block = config->count / l->workers;
    status = workers_open(l);
    if (status != DP_OK) {
        dp_lanes_destroy(l);
        return status;
    }
    *out = l;
    return DP_OK;
}

void dp_lanes_destroy(struct dp_lanes *l)
{
    if (l == NULL) {
        return;
    }
    for (int i = 0; l->worker != NULL && i < l->workers; i++) {
        dp_worker_destroy(l->worker[i].thread);
        if (l->worker[i].lanes != NULL) {
            worker_close(&l->worker[i]);
        }
    }
    dp_lane_sync_destroy(l->lane_sync);
    dp_free(l->worker);
    dp_free(l);
}
