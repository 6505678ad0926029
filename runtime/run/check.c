/*
 * check.c - answers without training: the layer table of --check, the banner, and --dry-run.
 */
#include "runtime/run/check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "collectives/compressors/compression.h"
#include "collectives/compressors/compressor.h"
#include "collectives/exchange/strategy_select.h"
#include "collectives/gpu/gpu_peers.h"
#include "collectives/strategies/strategy.h"
#include "runtime/config/config_load.h"
#include "runtime/data/augment/augment.h"
#include "runtime/data/source.h"
#include "runtime/optim/optimizer.h"
#include "runtime/run/check_memory.h"
#include "runtime/run/fault_injection.h"
#include "runtime/run/run_model.h"
#include "runtime/run/topology.h"
#include "runtime/trainer/prepare/prepare.h"

extern char **environ;

/* "12.3 M": for counts of parameters and FLOPs. */
static const char *short_count(char text[32], double value)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    int unit = 0;

    while (value >= 9999.5 && unit < 4) {
        value /= 1000.0;
        unit++;
    }
    (void)snprintf(text, 32, value < 100.0 && unit > 0 ? "%.2f%s" : "%.0f%s", value, units[unit]);
    return text;
}

static void print_layer(const struct dp_model *m, const struct dp_node *node)
{
    char shape[96], params[32], flops[32], kind[64];
    size_t count = 0;

    for (int i = 0; i < node->plan.param_count; i++) {
        count += m->tensors[node->first_param + i].count;
    }
    (void)snprintf(kind, sizeof(kind), "%s%s", node->type->plugin.name,
                   node->act == DP_ACT_RELU ? "+relu" : "");
    printf("%-18s %-16s %-18s %12s %12s\n", node->path, kind,
           dp_shape_text(&node->plan.out, shape, sizeof(shape)), short_count(params, (double)count),
           short_count(flops, node->plan.flops));
}

static dp_status print_check(const struct dp_run_options *options, const struct dp_config *c,
                             struct dp_model *m, const struct dp_device *device)
{
    char text[96], params[32], flops[32];

    dp_text_line(stdout, "%s: input %s, %zu %s%s", c->name,
                 dp_shape_text(&c->model.input, text, sizeof(text)), m->classes,
                 m->loss == DP_LOSS_SOFTMAX ? "classes" : "output",
                 m->loss == DP_LOSS_SOFTMAX ? "" : dp_plural(m->classes));
    printf("\n%-18s %-16s %-18s %12s %12s\n", "layer", "kind", "output of a sample", "parameters",
           "FLOPs");
    for (int i = 0; i < m->node_count; i++) {
        if (m->nodes[i].owner <= i) { /* a node with a later owner is a part of that layer */
            print_layer(m, &m->nodes[i]);
        }
    }
    printf("%-18s %-16s %-18s %12s %12s   forward, per sample\n", "total", "", "",
           short_count(params, (double)m->parameters), short_count(flops, m->flops));
    return dp_run_check_memory(options, c, m, device);
}

/* On pictures of bytes. */
static dp_status check_augment(const struct dp_config *config)
{
    const struct dp_shape *input = &config->model.input;
    const bool picture = input->dims == 3;
    const struct dp_sample_shape shape = {.height = picture ? (int)input->dim[0] : 0,
                                          .width = picture ? (int)input->dim[1] : 0,
                                          .channels = picture ? (int)input->dim[2] : 0,
                                          .count = dp_shape_count(input),
                                          .element = DP_ELEMENT_BYTE};
    struct dp_augment *augment = NULL;
    char problem[256], where[256];
    const dp_status status =
        dp_augment_create(config->data.augment, &shape, 0, &augment, problem, sizeof(problem));

    dp_augment_destroy(augment);
    return status == DP_OK
               ? DP_OK
               : DP_FAIL(status, "%s: %s",
                         dp_config_where(config, "data.augment", where, sizeof(where)), problem);
}

dp_status dp_run_check_names(const struct dp_config *config)
{
    const struct {
        const char *key, *text;
        const struct dp_plugin_family *family;
        bool may_be_auto;
    } names[] = {
        {"data.source", config->data.source, &dp_sources, false},
        {"comm.strategy", config->comm.strategy, NULL, true},
        {"comm.compressor", config->comm.compressor, &dp_compressors, false},
        {"device.name", config->device.name, &dp_devices, true},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct dp_plugin *plugin;
        char problem[256], where[256];
        void *state = NULL;
        dp_status status;

        if (names[i].may_be_auto && strcmp(names[i].text, "auto") == 0) {
            continue;
        }
        if (names[i].family == &dp_devices && dp_device_left_out(names[i].text)) {
            continue; /* no mistake in the configuration; dp_device_find() reports what to do */
        }
        status = names[i].family == NULL
                     ? dp_strategy_select_check(names[i].text, config->train.lanes > 0, problem,
                                                sizeof(problem))
                     : dp_plugin_create(names[i].family, names[i].text, &plugin, &state, problem,
                                        sizeof(problem));
        if (status != DP_OK) {
            return DP_FAIL(status, "%s: %s",
                           dp_config_where(config, names[i].key, where, sizeof(where)), problem);
        }
        dp_free(state);
    }
    return check_augment(config);
}

dp_status dp_run_check(const struct dp_run_options *options)
{
    struct dp_config *config = NULL;
    const struct dp_device *device = NULL;
    struct dp_model *model = NULL;
    char *text = NULL;
    dp_status status;

    DP_TRY_GOTO(
        dp_config_resolve(options->config, environ, options->sets, options->set_count, &text),
        status, done);
    DP_TRY_GOTO(dp_config_parse(text, options->config, &config), status, done);
    DP_TRY_GOTO(dp_run_check_names(config), status, done);
    DP_TRY_GOTO(dp_run_make_model(config, &model), status, done);
    DP_TRY_GOTO(dp_device_find(config->device.name, &device), status, done);
    status = print_check(options, config, model, device);

done:
    dp_model_destroy(model);
    dp_config_destroy(config);
    dp_free(text);
    return status;
}

static void describe_plan(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(dp_trainer_exchange(job->trainer));

    for (int b = 0; b < plan->count; b++) {
        const struct dp_bucket *bucket = &plan->buckets[b];
        dp_progress_line(progress, "  bucket %d: %.3f MB, %s%s%s", b,
                         (double)bucket->range.count * 4.0 / 1048576.0,
                         bucket->exact ? "the tail" : bucket->tensors[0].name,
                         bucket->tensor_count > 1 ? " to " : "",
                         bucket->tensor_count > 1 ? bucket->tensors[bucket->tensor_count - 1].name
                                                  : "");
    }
}

static void describe_compressor(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_exchange *e = dp_trainer_exchange(job->trainer);
    const double mib = 1048576.0;
    uint64_t with, without;

    if (!dp_exchange_compressed_wire(e, &with, &without)) {
        return;
    }
    dp_progress_line(
        progress,
        with < without   ? "compressor %s: rank 0 sends %.4g MiB of gradients a step, not %.4g"
        : with > without ? "compressor %s: rank 0 sends %.4g MiB of gradients a step, MORE than "
                           "the %.4g without it on so many ranks"
                         : "compressor %s: rank 0 sends %.4g MiB of gradients a step, as much as "
                           "the %.4g without it",
        job->config->comm.compressor, (double)with / mib, (double)without / mib);
}

/* A learning rate that is not the one in the configuration. */
static void describe_rate(const struct dp_optimizer_config *c, struct dp_progress *progress)
{
    static const char *const names[] = {"", "linear", "sqrt"};

    if (c->scale_lr != DP_SCALE_LR_NONE) {
        dp_progress_line(progress,
                         "learning rate %g: optimizer.lr %g of batch %d, scaled (%s) to %d",
                         c->lr * dp_optimizer_lr_factor(c), c->lr, c->base_batch,
                         names[c->scale_lr], c->global_batch);
    }
}

/* Which engine computes convolutions, where there is a choice of them. */
static void describe_convolutions(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_model *model = job->model;
    const char *text = NULL;
    int count = 0;

    for (int i = 0; i < model->node_count; i++) {
        count += strcmp(model->nodes[i].type->plugin.name, "conv2d") == 0 ? 1 : 0;
    }
    if (count > 0 &&
        dp_device_find_conv(job->device, (enum dp_conv_engine)job->config->device.conv, &text) ==
            DP_OK &&
        text != NULL) {
        dp_progress_line(progress, "convolutions by %s", text);
    }
}

/* What computes products and convolutions, where that was measured. */
static void describe_choices(const struct dp_run_job *job, struct dp_progress *progress)
{
    if (job->algo_choices != NULL) {
        const struct dp_algo_choices_count count = dp_algo_choices_count(job->algo_choices);
        if (count.used > 0) {
            dp_progress_line(progress,
                             "algorithms of products and convolutions: %d measured now, %d known",
                             count.fresh, count.used - count.fresh);
        }
    }
}

/* What is special about how the ranks train together. */
static void describe_kind(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_config *c = job->config;
    const bool several = job->world->train->size > 1;

    if (c->train.lanes > 0) {
        dp_progress_line(progress,
                         "%d lane%s, %d a rank: the same bits on any power of two ranks up to %d",
                         c->train.lanes, dp_plural(c->train.lanes),
                         c->train.lanes / dp_trainer_ranks(job->trainer), c->train.lanes);
    }
    if (c->comm.servers > 0) {
        dp_progress_line(progress, "the last %d of the ranks serve%s: %d train", c->comm.servers,
                         c->comm.servers == 1 ? "s" : "", dp_trainer_ranks(job->trainer));
    }
    if (job->world->roles.count[DP_ROLE_READ] > 0) {
        const int readers = job->world->roles.count[DP_ROLE_READ];
        dp_progress_line(progress, "%d rank%s, from rank %d on, read%s for the others", readers,
                         dp_plural(readers), dp_role_first(&job->world->roles, DP_ROLE_READ),
                         readers == 1 ? "s" : "");
    }
    if (job->world->roles.count[DP_ROLE_EVALUATE] > 0) {
        dp_progress_line(progress, "rank %d evaluates, while the others train on",
                         dp_role_first(&job->world->roles, DP_ROLE_EVALUATE));
    }
    if (dp_config_stale(c)) {
        dp_progress_line(progress,
                         "ranks train at their own pace, at most %d step%s ahead of the slowest; "
                         "runs do not repeat bit for bit",
                         c->train.staleness, dp_plural(c->train.staleness));
    }
    if (c->train.local_steps > 1 && several) {
        dp_progress_line(progress, "ranks train alone, and average their weights every %d steps",
                         c->train.local_steps);
    }
    if (dp_trainer_holds_back(job->trainer) && job->async == NULL) {
        dp_progress_line(
            progress, "fp16 with a compressor: ranks agree that gradients are finite before they "
                      "are sent, so nothing overlaps");
    }
    if (job->device->replay != NULL) {
        const char *why_not = dp_trainer_unrecorded(job->trainer);
        dp_progress_line(progress, "steps are %s%s",
                         why_not == NULL ? "recorded once, then replayed" : "not recorded: ",
                         why_not == NULL ? "" : why_not);
    }
}

/* A build for GPUs with device.name auto says so where none is used. */
static void describe_fallback(const struct dp_run_job *job, struct dp_progress *progress)
{
    const bool automatic = strcmp(job->config->device.name, "auto") == 0;
    const char *why_not;
    const struct dp_device *other = automatic ? dp_device_passed_over(job->device, &why_not) : NULL;

    if (other != NULL) {
        dp_progress_line(progress, "computing on %s, not %s: %s", job->device->plugin.name,
                         other->plugin.name, why_not);
    }
}

/* "device cpu (avx2)", "device cuda (NVIDIA H200)" */
static const char *device_kind(const struct dp_run_job *job, char kind[DP_UNIT_LABEL])
{
    const char *model = strchr(job->place.gpu, '(');

    if (model != NULL) {
        (void)snprintf(kind, DP_UNIT_LABEL, "%s", model);
    } else {
        (void)snprintf(kind, DP_UNIT_LABEL, "(%s)", job->machine->isa);
    }
    return kind;
}

static void describe_faults(const struct dp_run_job *job)
{
    if (job->faults != NULL) {
        DP_WARN("this run breaks something on purpose: " DP_FAULT_VARIABLE "=%s", job->fault_text);
    }
    if (dp_fault_injection_is_of_all(job->faults, job->trainer)) {
        DP_WARN(DP_FAULT_VARIABLE
                ": the ranks share one copy of the weights (%s): a flip is of all, "
                "and they do not differ; under --set comm.strategy=ring each has its own",
                dp_exchange_label(dp_trainer_exchange(job->trainer)));
    }
}

/* Whether it is worth a line what messages go by: on one node it is shared memory, as a rule. */
static bool tells_fabric(const struct dp_run_job *job)
{
    const struct dp_group *group = job->world->all;
    const char *fabric = job->world->fabric;

    return group->size > 1 && fabric[0] != '\0' &&
           (group->nodes > 1 || job->options->dry_run || strcmp(fabric, "shared memory") != 0);
}

void dp_run_describe(const struct dp_run_job *job, struct dp_progress *progress)
{
    const struct dp_group *group = job->world->train;
    const char *why = job->plan.why[0] != '\0' ? job->plan.why
                                               : dp_exchange_why(dp_trainer_exchange(job->trainer));
    const struct dp_config *c = job->config;
    static const char *const overlaps[] = {"auto (measured in the first steps)", "on", "off"};
    const bool tf32 = c->train.precision == DP_PRECISION_TF32;
    const char *overlap = group->size == 1     ? "off (one rank)"
                          : dp_config_stale(c) ? "off (asynchronous)"
                                               : overlaps[c->comm.overlap];
    char samples[DP_GROUPED_BYTES], gpus[80], kind[DP_UNIT_LABEL];

    dp_progress_line(progress,
                     "lockstep %s: %s on %d rank%s, %d node%s, %d thread%s a rank; device %s %s; "
                     "%s; %s",
                     DP_VERSION, c->name, group->size, dp_plural(group->size), group->nodes,
                     dp_plural(group->nodes), job->threads, dp_plural(job->threads),
                     job->device->plugin.name, device_kind(job, kind),
                     dp_device_arithmetic(job->device, dp_trainer_flat(job->trainer)->type, tf32),
                     job->world->library);
    describe_fallback(job, progress);
    dp_progress_line(
        progress, "data %s: %s training rows, global batch %d, %llu step%s an epoch, %llu step%s",
        c->data.source, dp_grouped_count(samples, job->data.train_count), c->train.global_batch,
        (unsigned long long)job->steps_per_epoch, dp_plural(job->steps_per_epoch),
        (unsigned long long)job->total_steps, dp_plural(job->total_steps));
    dp_gpu_peers_describe(job->world->all, gpus, sizeof(gpus));
    if (gpus[0] != '\0') {
        dp_progress_line(progress, "%s: they take turns, and share its memory", gpus);
    }
    describe_rate(&c->optimizer, progress);
    describe_convolutions(job, progress);
    describe_choices(job, progress);
    describe_kind(job, progress);
    if (job->recompute[0] != '\0') {
        dp_progress_line(progress, "activations computed again in backward: %s", job->recompute);
    }
    dp_progress_line(
        progress, "sharing by %s%s%s%s: %d bucket%s, overlap %s",
        dp_exchange_label(dp_trainer_exchange(job->trainer)), why[0] == '\0' ? "" : " (", why,
        why[0] == '\0' ? "" : ")", dp_exchange_plan(dp_trainer_exchange(job->trainer))->count,
        dp_plural(dp_exchange_plan(dp_trainer_exchange(job->trainer))->count), overlap);
    describe_compressor(job, progress);
    if (tells_fabric(job)) {
        dp_progress_line(progress, "messages by %s", job->world->fabric);
    }
    describe_faults(job);
    if (job->options->dry_run) {
        dp_run_draw_topology(job, progress);
        describe_plan(job, progress);
    }
}
