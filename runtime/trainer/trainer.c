#include "runtime/trainer/trainer.h"

#include <string.h>

#include "base/log.h"
#include "base/trace.h"
#include "runtime/config/config_print.h"
#include "runtime/data/rows.h"
#include "runtime/trainer/memory_check.h"

static size_t hook_late(void *trainer, int tensor)
{
    return dp_exchange_deferred_part(((struct dp_trainer *)trainer)->exchange, tensor);
}

static dp_status hook_ready(void *trainer, int tensor)
{
    return dp_exchange_ready(((struct dp_trainer *)trainer)->exchange, tensor);
}

static dp_status hook_sum(void *trainer, float *data, size_t count)
{
    return dp_exchange_sum(((struct dp_trainer *)trainer)->exchange, data, count);
}

/* Halves need a scaled loss, whose overflow all ranks must see. */
static bool is_scaled(const struct dp_trainer *t)
{
    return t->config->train.precision == DP_PRECISION_FP16;
}

/* What a compressor keeps for later steps must neither be of a step that is skipped nor depend on
 * the loss scale: gradients are sent when all ranks have agreed that theirs are finite. */
static bool holds_back(const struct dp_trainer *t)
{
    return is_scaled(t) && dp_exchange_compression(t->exchange) != NULL;
}

/* The widest sum over ranks within a step, in elements: of synchronised layers, of the squares of
 * the gradient where each rank sees only a part of it, and of the flags of overflow.c, one a layer
 * or a tensor. */
static size_t widest_sum(const struct dp_trainer *t)
{
    const struct dp_model *model = t->model;
    const bool gated = t->config->optimizer.clip_norm > 0.0 || is_scaled(t);
    size_t most = gated ? model->trained / DP_BLOCK : 0;

    if (is_scaled(t)) { /* a tensor is a block at least */
        most = most > (size_t)model->node_count ? most : (size_t)model->node_count;
    }
    for (int i = 0; i < model->node_count; i++) {
        const struct dp_layer_plan *plan = &model->nodes[i].plan;
        if (plan->synchronised && plan->statistics > most) {
            most = plan->statistics;
        }
    }
    return most;
}

static dp_status open_optimizer(struct dp_trainer *t)
{
    const struct dp_plugin *plugin;
    char problem[256];
    const dp_status status = dp_plugin_create(&dp_optimizers, t->config->optimizer.name, &plugin,
                                              &t->optimizer_state, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, "optimizer.name: %s", problem);
    }
    t->optimizer = (const struct dp_optimizer *)plugin;
    return t->optimizer->open(t->optimizer_state, &t->config->optimizer);
}

/* Memory for all that the exchange has not brought along. */
static dp_status make_flat(struct dp_trainer *t)
{
    const struct dp_model *m = t->model;
    struct dp_flat *f = &t->flat;
    const size_t bytes = m->trained * dp_type_bytes(f->type), owned = f->owned * sizeof(float);

    if (f->weights == NULL) {
        f->weights = t->weights = t->device->alloc(DP_MEM_WEIGHTS, bytes);
    }
    f->running = t->device->alloc(DP_MEM_WEIGHTS, m->statistics * sizeof(float));
    t->there =
        t->device->host_memory ? t->step_params : t->device->alloc(DP_MEM_OTHER, sizeof(*t->there));
    if (f->type != DP_TYPE_F32) {
        t->masters = t->device->alloc(DP_MEM_WEIGHTS, owned);
    }
    f->master = f->type == DP_TYPE_F32 ? f->weights : t->masters;
    if (f->weights == NULL || f->master == NULL || f->running == NULL || t->there == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "weights need %zu MB", (bytes + owned) >> 20);
    }
    for (int i = 0; i < 2 && t->optimizer->slots[i] != NULL; i++) {
        f->slots[i] = t->device->alloc(DP_MEM_OPTIMIZER, owned);
        if (f->slots[i] == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "optimizer state needs %zu MB more", owned >> 20);
        }
    }
    return DP_OK;
}

/* The value of a key, which ranks must have alike. */
static struct dp_consistency_item key_claim(const struct dp_trainer *t, const char *key)
{
    char text[DP_OPTION_PRINTED];

    dp_config_value(t->config, key, text, sizeof(text));
    return dp_consistency_text(key, text);
}

static dp_status make_exchange(struct dp_trainer *t, int threads)
{
    const struct dp_comm_config *c = &t->config->comm;
    const struct dp_consistency_item items[] = {
        key_claim(t, "train.precision"),
        key_claim(t, "train.global_batch"),
        key_claim(t, "train.seed"),
    };
    const struct dp_exchange_config config = {
        .strategy = t->lent ? "none" : c->strategy,
        .recalled = c->recalled && !t->lent,
        .servers = t->group->size - t->trainers,
        .whole = t->config->train.local_steps > 1,
        .deferred = dp_deferred_update_possible(t),
        .ordered = t->config->train.lanes > 0 && !t->lent,
        .compressor = t->lent ? NULL : c->compressor,
        .step_params = t->step_params,
        .seed = (uint64_t)t->config->train.seed,
        .bucket_bytes = (size_t)(c->bucket_mb * 1048576.0),
        .first_bucket_bytes = (size_t)(c->first_bucket_mb * 1048576.0),
        .run = c->overlap == DP_OVERLAP_ON ? DP_RUN_ON_THREAD : DP_RUN_AT_WAIT,
        .scratch_count = widest_sum(t),
        .tail_made = t->model->statistics + 2,
        .device = t->device,
        .threads = threads,
        .items = items,
        .item_count = sizeof(items) / sizeof(items[0]),
    };

    if (t->step_params == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "knobs");
    }
    t->flat.type = dp_precision_type(t->config->train.precision);
    t->flat.tensors = t->model->tensors;
    t->flat.tensor_count = t->model->tensor_count;
    t->flat.trained = t->model->trained;
    t->flat.total =
        t->model->trained + dp_round_up(t->model->statistics + DP_STEP_SCALARS_COUNT, DP_BLOCK);
    DP_TRY(dp_exchange_create(t->group, &config, &t->flat, &t->exchange));
    t->hooks = (struct dp_model_hooks){
        .context = t,
        .ready = holds_back(t) ? NULL : hook_ready,
        .sum = t->group->size > 1 ? hook_sum : NULL,
        .needs = dp_deferred_update_need,
        .deferred = hook_late,
        /* Of one copy a rank that is ahead writes its part as soon as the sum is there. */
        .early = !dp_exchange_has_one_copy(t->exchange),
    };
    return DP_OK;
}

/* Before anything is allocated, where that can be foreseen. */
static dp_status check_device(const struct dp_trainer *t)
{
    const struct dp_memory_plan plan = {
        .config = t->config,
        .model = t->model,
        .device = t->device,
        .trainers = t->trainers,
        .threads = 1,
        .slots = dp_memory_plan_slots(t->config->optimizer.name),
    };

    return t->device->room == NULL || t->lent
               ? DP_OK
               : dp_memory_check_gpus(&plan, t->group, t->device, !dp_trainer_serves(t));
}

static dp_status make_replicas(struct dp_trainer *t)
{
    const struct dp_train_config *c = &t->config->train;
    const struct dp_replica_check_config config = {
        .exchange = t->exchange,
        .flat = &t->host_state->flat,
        .host_state = t->host_state,
        .model = t->model,
        .slots = t->optimizer->slots,
        .every = (uint64_t)c->check_every,
        .restore = c->on_divergence == DP_DIVERGENCE_RESTORE,
    };

    return dp_replica_check_create(&config, &t->replica_check);
}

static dp_status make_loader(struct dp_trainer *t, const struct dp_trainer_config *c)
{
    const struct dp_loader_config config = {
        .images = t->data->train_images,
        .labels = t->data->train_labels,
        .count = t->data->train_count,
        .sample_bytes = t->data->sample_bytes,
        .global_batch = t->global_batch,
        .rank = t->group->rank,
        .ranks = t->trainers,
        .seed = (uint64_t)t->config->train.seed,
        .shuffle = t->config->data.shuffle != DP_SHUFFLE_OFF,
        .drop_last = t->config->data.drop_last,
        .cached = c->cached_input,
        .first_step = c->first_step,
        .total_steps = c->total_steps,
    };

    return dp_trainer_serves(t) ? DP_OK : dp_loader_create(&config, &t->loader);
}

static dp_status trainer_open(struct dp_trainer *t, const struct dp_trainer_config *c)
{
    const struct dp_data_config *data = &t->config->data;
    const size_t channels = t->model->values[0].shape.dim[t->model->values[0].shape.dims - 1];

    if (t->trainers < 1) {
        return DP_FAIL(DP_ERR_CONFIG, "comm.servers: of %d ranks, %d servers leave none to train",
                       t->group->size, t->config->comm.servers);
    }
    if (t->group->size > DP_STEP_SCALARS_RANKS_MAX) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "more than %d ranks", DP_STEP_SCALARS_RANKS_MAX);
    }
    DP_TRY(dp_normalize_init(&t->normalize, t->model->values[0].shape.dims == 3 ? channels : 1,
                             &data->normalize.mean, &data->normalize.std));
    DP_TRY(open_optimizer(t));
    DP_TRY(check_device(t));
    t->step_params = t->device->alloc_host(DP_MEM_OTHER, sizeof(*t->step_params));
    DP_TRY(make_exchange(t, c->threads));
    DP_TRY(make_flat(t));
    DP_TRY(dp_trainer_prepare(t, c->threads));
    DP_TRY(dp_host_state_create(&t->flat, t->model->statistics, t->stream, &t->host_state));
    DP_TRY(make_replicas(t));
    dp_loss_scaler_init(&t->scaler, is_scaled(t));
    if (t->config->optimizer.clip_norm > 0.0 || t->scaler.on) {
        DP_TRY(dp_grad_norm_create(&t->flat, t->config->optimizer.clip_norm, t->scaler.on,
                                   t->stream, &t->grad_norm));
    }
    return make_loader(t, c);
}

/* Behind the exchange each rank goes on by itself, and what befalls one there all learn, so that
 * none waits for it: status, or another rank's. */
static dp_status agree(const struct dp_trainer *t, dp_status status)
{
    const dp_status worst = t->exchange != NULL ? dp_exchange_agree(t->exchange, status) : status;

    return status != DP_OK ? status : worst;
}

dp_status dp_trainer_create(const struct dp_trainer_config *config, struct dp_trainer **out)
{
    struct dp_trainer *t = dp_zalloc(1, sizeof(*t));
    dp_status status;

    if (t == NULL) {
        dp_group_leave(config->group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "trainer");
    }
    t->config = config->config;
    t->model = config->model;
    t->device = config->device;
    t->data = config->data;
    t->group = config->group;
    t->global_batch = config->global_batch;
    t->trainers = t->group->size - (config->lender == NULL ? t->config->comm.servers : 0);
    t->algo_choices = config->algo_choices;
    t->cached_input = config->cached_input;
    t->schedule_steps = config->schedule_steps;
    if (config->lender != NULL) {
        t->lent = true;
        t->pass = config->lender->pass;
        t->lanes = config->lender->lanes;
        t->stream = config->lender->stream;
    }
    status = agree(t, trainer_open(t, config));
    if (status != DP_OK) {
        dp_group_leave(t->group, status);
        dp_trainer_destroy(t);
        return status;
    }
    *out = t;
    return DP_OK;
}

void dp_trainer_destroy(struct dp_trainer *t)
{
    if (t == NULL) {
        return;
    }
    dp_loader_destroy(t->loader);
    dp_grad_norm_destroy(t->grad_norm);
    dp_replica_check_destroy(t->replica_check);
    dp_host_state_destroy(t->host_state);
    dp_exchange_destroy(t->exchange);
    dp_graph_capture_destroy(t->capture);
    if (!t->lent) {
        dp_lanes_destroy(t->lanes);
        dp_pass_destroy(t->pass);
        if (t->stream != NULL) {
            t->device->stream_destroy(t->stream);
        }
    }
    for (int i = 0; i < 2; i++) {
        t->device->release(t->flat.slots[i]);
    }
    t->device->release(t->there != t->step_params ? t->there : NULL);
    t->device->release_host(t->step_params);
    t->device->release(t->flat.running);
    t->device->release(t->masters);
    t->device->release(t->weights);
    dp_free(t->optimizer_state);
    dp_normalize_fini(&t->normalize);
    dp_free(t);
}

static uint64_t steps_per_epoch(const struct dp_trainer *t)
{
    return dp_steps_per_epoch(t->data->train_count, t->global_batch, t->config->data.drop_last);
}

size_t dp_trainer_global_rows(const struct dp_trainer *t, uint64_t step)
{
    return dp_global_rows(t->data->train_count, t->global_batch,
                          t->cached_input ? 0 : step % steps_per_epoch(t));
}

/* Servers need none of the data, only to know how many rows the batch has. */
static struct dp_batch batch_of_server(const struct dp_trainer *t)
{
    const size_t rows = dp_trainer_global_rows(t, t->step);

    return (struct dp_batch){.step = t->step,
                             .epoch = t->step / steps_per_epoch(t),
                             .global_rows = rows,
                             .first_row = rows};
}

dp_status dp_trainer_batch(struct dp_trainer *t)
{
    if (dp_trainer_serves(t)) {
        t->batch = batch_of_server(t);
        return DP_OK;
    }
    return dp_loader_next(t->loader, &t->batch);
}

/* A server brings nothing but its votes. */
static dp_status bring_nothing(struct dp_trainer *t)
{
    const size_t tail = t->flat.trained, count = dp_model_loss_at(t->model) + 2 - tail;

    DP_TRY(t->stream->ops->zero(t->stream, t->flat.grad + tail, count * sizeof(float)));
    for (int i = t->model->tensor_count - 1; i >= 0; i--) {
        DP_TRY(hook_ready(t, i));
    }
    return DP_OK;
}

dp_status dp_trainer_compute(struct dp_trainer *t)
{
    const struct dp_pass_call call = {
        .seed = (uint64_t)t->config->train.seed,
        .weights = t->flat.weights,
        .running = t->flat.running,
        .grad = t->flat.grad,
        .step_params = t->there,
        .hooks = &t->hooks,
    };

    if (dp_trainer_serves(t)) {
        return bring_nothing(t);
    }
    return t->lanes != NULL ? dp_lanes_run(t->lanes, dp_trainer_share(t), &t->batch, &call)
                            : dp_micro_batch_run(&t->parts, &t->batch, &call);
}
