#include "runtime/trainer/trainer.h"

#include "base/log.h"
#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_print.h"
#include "runtime/trainer/prepare/memory_check.h"
#include "runtime/trainer/prepare/prepare.h"
#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update/deferred_update.h"
#include "runtime/trainer/update/update_rule.h"
#include "runtime/trainer/update/verify_sums.h"

static size_t hook_deferred(void *trainer, int tensor)
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

/* fp16 needs a scaled loss, and all ranks must notice its overflow. */
static bool is_scaled(const struct dp_trainer *t)
{
    return t->config->train.precision == DP_PRECISION_FP16;
}

/* What a compressor keeps for later steps must not be of a skipped step, nor depend on the loss
 * scale. So gradients are sent after all ranks have agreed that theirs are finite. */
static bool holds_back(const struct dp_trainer *t)
{
    return is_scaled(t) && dp_exchange_compression(t->exchange) != NULL;
}

/* The longest sum over ranks within a step, in elements: of synchronised layers, of the gradient's
 * squares (and the weights') where each rank has only a part of it, and of the flags of overflow.c,
 * one per layer or tensor. */
static size_t widest_sum(const struct dp_trainer *t)
{
    const struct dp_model *model = t->model;
    const bool sees_all = t->config->optimizer.clip_norm > 0.0 || is_scaled(t);
    size_t most = t->state.optimizer->measure != NULL ? 2 * model->trained / DP_BLOCK
                  : sees_all                          ? model->trained / DP_BLOCK
                                                      : 0;

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

/* The value of a key, which must be the same on all ranks. */
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
        .strategy = t->compute.borrowed ? "none" : c->strategy,
        .recalled = c->recalled && !t->compute.borrowed,
        .servers = t->group->size - t->trainers,
        .whole = t->config->train.local_steps > 1 || t->config->train.ema > 0.0 ||
                 t->config->train.verify_sums > 0 || dp_config_shrinks(t->config),
        .deferred = dp_deferred_update_possible(t),
        .ordered = t->config->train.lanes > 0 && !t->compute.borrowed,
        .compressor = t->compute.borrowed ? NULL : c->compressor,
        .step_params = t->state.step_params,
        .seed = (uint64_t)t->config->train.seed,
        .bucket_bytes = (size_t)(c->bucket_mb * 1048576.0),
        .first_bucket_bytes = (size_t)(c->first_bucket_mb * 1048576.0),
        .run = c->overlap == DP_OVERLAP_ON ? DP_RUN_ON_THREAD : DP_RUN_AT_WAIT,
        .scratch_count = widest_sum(t),
        .checked = c->checksum && !t->compute.borrowed,
        .tail_made = t->model->statistics + 2,
        .device = t->device,
        .threads = threads,
        .items = items,
        .item_count = sizeof(items) / sizeof(items[0]),
    };

    DP_TRY(dp_exchange_create(t->group, &config, &t->state.flat, &t->exchange));
    t->compute.hooks = (struct dp_model_hooks){
        .context = t,
        .ready = holds_back(t) ? NULL : hook_ready,
        .sum = t->group->size > 1 ? hook_sum : NULL,
        .needs = dp_deferred_update_need,
        .deferred = hook_deferred,
        /* A rank that is ahead writes its part of a shared copy as soon as the sum has arrived. */
        .early = !dp_exchange_has_one_copy(t->exchange),
    };
    return DP_OK;
}

/* Checked before anything is allocated, where it can be predicted. */
static dp_status check_device(const struct dp_trainer *t)
{
    const struct dp_memory_plan plan = {
        .config = t->config,
        .model = t->model,
        .device = t->device,
        .trainers = t->trainers,
        .threads = 1,
    };

    return t->device->room == NULL || t->compute.borrowed
               ? DP_OK
               : dp_memory_check_gpus(&plan, t->group, t->device, !dp_trainer_serves(t));
}

static dp_status make_replicas(struct dp_trainer *t)
{
    const struct dp_train_config *c = &t->config->train;
    const struct dp_replica_check_config config = {
        .exchange = t->exchange,
        .flat = &t->state.host->flat,
        .host_state = t->state.host,
        .model = t->model,
        .slots = t->state.optimizer->slots,
        .every = (uint64_t)c->check_every,
        .restore = c->on_divergence == DP_DIVERGENCE_RESTORE,
    };

    return dp_replica_check_create(&config, &t->modes.replica_check);
}

static dp_status make_test_rows(struct dp_trainer *t, int threads)
{
    return t->compute.borrowed || dp_trainer_serves(t)
               ? DP_OK
               : dp_dataset_test_rows(t->input.data, dp_model_label_words(t->model),
                                      dp_compute_users(&t->compute), threads, &t->input.test);
}

static dp_status make_loader(struct dp_trainer *t, const struct dp_trainer_config *c)
{
    struct dp_loader_config config;

    if (dp_trainer_serves(t) || c->others_read) {
        return DP_OK;
    }
    DP_TRY(dp_dataset_augment(t->input.data, t->config, &t->input.augment));
    config = dp_dataset_loader(t->input.data, t->config, t->model, t->input.augment, t->device,
                               c->threads);
    config.global_batch = t->input.global_batch;
    config.rank = t->group->rank;
    config.ranks = t->trainers;
    config.cached = c->cached_input;
    config.first_step = c->first_step;
    config.total_steps = c->total_steps;
    config.device = t->device->host_memory ? NULL : t->device;
    return dp_loader_create(&config, &t->input.loader);
}

static dp_status trainer_open(struct dp_trainer *t, const struct dp_trainer_config *c)
{
    const struct dp_normalize_config *normalize = &t->config->data.normalize;

    if (t->trainers < 1) {
        return DP_FAIL(DP_ERR_CONFIG, "comm.servers: of %d ranks, %d servers leave none to train",
                       t->group->size, t->config->comm.servers);
    }
    if (t->group->size > DP_STEP_SCALARS_RANKS_MAX) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "more than %d ranks", DP_STEP_SCALARS_RANKS_MAX);
    }
    DP_TRY(dp_normalize_init(
        &t->compute.normalize,
        dp_normalize_channels(&t->model->values[0].shape, &normalize->mean, &normalize->std),
        t->model->float_samples ? 1.0 : 255.0, &normalize->mean, &normalize->std));
    dp_model_state_open(&t->state, t->config, t->model);
    DP_TRY(check_device(t));
    DP_TRY(dp_model_state_allocate_params(&t->state, t->device));
    DP_TRY(make_exchange(t, c->threads));
    DP_TRY(dp_model_state_allocate(&t->state, t->model, t->device, t->config->train.ema > 0.0));
    DP_TRY(dp_prepare_compute(t, c->threads));
    DP_TRY(dp_host_state_create(&t->state.flat, t->model->statistics, t->compute.stream,
                                &t->state.host));
    DP_TRY(make_replicas(t));
    DP_TRY(dp_verify_sums_create(t, &t->modes.verify_sums));
    dp_loss_scaler_init(&t->state.scaler, is_scaled(t));
    if (t->config->optimizer.clip_norm > 0.0 || t->state.scaler.on) {
        DP_TRY(dp_grad_norm_create(&t->state.flat, t->config->optimizer.clip_norm,
                                   t->state.scaler.on, t->compute.stream, &t->modes.grad_norm));
    }
    DP_TRY(dp_param_groups_create(&t->state.flat, t->state.optimizer, t->state.optimizer_options,
                                  t->compute.stream, &t->modes.groups));
    t->modes.rule = dp_update_rule_choose(t);
    t->compute.micro_batches.after = t->modes.rule->after_backward;
    t->compute.micro_batches.after_context = t;
    DP_TRY(make_test_rows(t, c->threads));
    return make_loader(t, c);
}

/* After the exchange exists each rank continues alone. All ranks learn of a failure, so that none
 * waits: returns `status`, or that of another rank. */
static dp_status agree(const struct dp_trainer *t, dp_status status)
{
    const dp_status worst = t->exchange != NULL ? dp_exchange_agree(t->exchange, status) : status;

    return status != DP_OK ? status : worst;
}

dp_status dp_trainer_create(const struct dp_trainer_config *config, struct dp_trainer **out)
{
    struct dp_trainer *t = dp_zalloc(1, sizeof(*t));
    const struct dp_trainer *lender = config->lender;
    dp_status status;

    if (t == NULL) {
        dp_group_leave(config->group, DP_ERR_NOMEM);
        return DP_FAIL(DP_ERR_NOMEM, "trainer");
    }
    t->config = config->config;
    t->model = config->model;
    t->device = config->device;
    t->group = config->group;
    t->trainers = t->group->size - (lender == NULL ? t->config->comm.servers : 0);
    t->schedule_steps = config->schedule_steps;
    t->input = (struct dp_input){.data = config->data,
                                 .global_batch = config->global_batch > 0
                                                     ? config->global_batch
                                                     : (size_t)t->config->train.global_batch,
                                 .drop_last = t->config->data.drop_last,
                                 .speaker = config->speaker,
                                 .cached = config->cached_input};
    t->compute.algo_choices = config->algo_choices;
    if (lender != NULL) {
        t->compute.borrowed = true;
        t->compute.pass = lender->compute.pass;
        t->compute.lanes = lender->compute.lanes;
        t->compute.stream = lender->compute.stream;
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
    dp_param_groups_destroy(t->modes.groups);
    dp_grad_norm_destroy(t->modes.grad_norm);
    dp_verify_sums_destroy(t->modes.verify_sums);
    dp_replica_check_destroy(t->modes.replica_check);
    dp_host_state_destroy(t->state.host);
    dp_exchange_destroy(t->exchange);
    dp_compute_drop_rows(&t->compute);
    dp_loader_destroy(t->input.loader);
    dp_test_rows_destroy(t->input.test);
    dp_augment_destroy(t->input.augment);
    dp_compute_close(&t->compute);
    dp_model_state_close(&t->state, t->device);
    dp_free(t);
}

/* The rows of the last batch as a data set; where this rank has none, or reads them itself, all. */
static const struct dp_dataset *lent_data(struct dp_trainer *t)
{
    const struct dp_batch *batch = &t->input.batch;

    if (t->input.receiver == NULL || batch->rows == 0) {
        return t->input.data;
    }
    t->input.lent = *t->input.data;
    t->input.lent.train_images = batch->images;
    t->input.lent.train_labels = batch->labels;
    t->input.lent.train_prints = NULL;
    t->input.lent.train_count = batch->rows;
    t->input.lent.samples = NULL;
    t->input.lent.made = true;
    return &t->input.lent;
}

struct dp_trainer_config dp_trainer_lend(struct dp_trainer *t)
{
    const size_t ranks = (size_t)t->trainers;

    return (struct dp_trainer_config){
        .config = t->config,
        .model = t->model,
        .device = t->device,
        .data = lent_data(t),
        .cached_input = t->input.receiver != NULL,
        .global_batch = (t->input.global_batch + ranks - 1) / ranks,
        .schedule_steps = t->schedule_steps,
        .lender = t,
    };
}

/* ---- questions ---- */

struct dp_exchange *dp_trainer_exchange(const struct dp_trainer *t)
{
    return t->exchange;
}

struct dp_group *dp_trainer_group(const struct dp_trainer *t)
{
    return t->group;
}

const struct dp_model *dp_trainer_model(const struct dp_trainer *t)
{
    return t->model;
}

const struct dp_config *dp_trainer_configuration(const struct dp_trainer *t)
{
    return t->config;
}

const struct dp_dataset *dp_trainer_data(const struct dp_trainer *t)
{
    return t->input.data;
}

const struct dp_flat *dp_trainer_flat(const struct dp_trainer *t)
{
    return &t->state.flat;
}

const struct dp_flat *dp_trainer_host_flat(const struct dp_trainer *t)
{
    return &t->state.host->flat;
}

const struct dp_step_params *dp_trainer_step_params(const struct dp_trainer *t)
{
    return t->state.step_params;
}

dp_status dp_trainer_input_failure(const struct dp_trainer *t, const struct dp_log_error **error)
{
    *error = &t->input.error;
    return t->input.failure;
}

struct dp_loader_report dp_trainer_input(const struct dp_trainer *t)
{
    struct dp_loader_report report = {0};

    if (t->input.loader != NULL) {
        dp_loader_report(t->input.loader, &report);
    }
    return report;
}

struct dp_stream *dp_trainer_stream(const struct dp_trainer *t)
{
    return t->compute.stream;
}

const struct dp_loss_scaler *dp_trainer_loss_scaler(const struct dp_trainer *t)
{
    return &t->state.scaler;
}

uint64_t dp_trainer_steps(const struct dp_trainer *t)
{
    return t->state.step;
}

int dp_trainer_ranks(const struct dp_trainer *t)
{
    return t->trainers;
}

uint64_t dp_trainer_wire_bytes(const struct dp_trainer *t)
{
    return t->wire_bytes;
}

int64_t dp_trainer_restored(const struct dp_trainer *t)
{
    return t->modes.replica_check->restored;
}

const struct dp_batch *dp_trainer_batch(const struct dp_trainer *t)
{
    return &t->input.batch;
}

bool dp_trainer_unaveraged(const struct dp_trainer *t)
{
    return t->modes.unaveraged;
}

bool dp_trainer_holds_back(const struct dp_trainer *t)
{
    return t->compute.hooks.ready == NULL;
}

const struct dp_stop *dp_trainer_stop(const struct dp_trainer *t)
{
    return t->stop;
}

void dp_trainer_next_batch(struct dp_trainer *t)
{
    dp_input_try(&t->input, t->state.step);
}

/* ---- settings ---- */

void dp_trainer_set_request(struct dp_trainer *t, enum dp_request request, bool on)
{
    t->request[request] = on;
}

void dp_trainer_on_bucket(struct dp_trainer *t, dp_bucket_hook *hook, void *context)
{
    t->modes.on_bucket = hook;
    t->modes.on_bucket_context = context;
}

void dp_trainer_set_receiver(struct dp_trainer *t, struct dp_batch_receiver *receiver)
{
    t->input.receiver = receiver;
}

void dp_trainer_set_stop(struct dp_trainer *t, const struct dp_stop *stop)
{
    t->stop = stop;
}

void dp_trainer_set_async_copy(struct dp_trainer *t, enum dp_async_copy_use use,
                               struct dp_async_copy *copy)
{
    t->modes.async_copies[use] = copy;
}

void dp_trainer_finish_copies(const struct dp_trainer *t)
{
    dp_modes_finish_copies(&t->modes);
}
