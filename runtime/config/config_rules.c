#include "runtime/config/config_rules.h"
#include "base/files/folder_list.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS_MOST = 1024 };

int dp_config_workers(const struct dp_config *config)
{
    const char *text = config->data.workers;
    char *end;
    long count;

    if (strcmp(text, "auto") == 0) {
        return 0;
    }
    count = strtol(text, &end, 10);
    return *text >= '1' && *text <= '9' && *end == '\0' && count <= WORKERS_MOST ? (int)count : -1;
}

/* ---- contradictions ---- */

static bool normalizes_by_half(const struct dp_config *config)
{
    const struct dp_normalize_config *normalize = &config->data.normalize;

    return (normalize->mean.count == 0) != (normalize->std.count == 0);
}

static bool is_for_channels(const struct dp_numbers *list, const struct dp_shape *input)
{
    const size_t channels = input->dims == 3 ? input->dim[2] : input->dim[0];

    return list->count <= 1 || (size_t)list->count == channels;
}

static bool has_other_means(const struct dp_config *config)
{
    return !is_for_channels(&config->data.normalize.mean, &config->model.input);
}

static bool has_other_stds(const struct dp_config *config)
{
    return !is_for_channels(&config->data.normalize.std, &config->model.input);
}

/* Whether a batch norm among the layers, or inside a residual, is synchronised. */
static bool any_sync(const struct dp_layer_spec *layers, int count)
{
    for (int i = 0; i < count; i++) {
        const struct dp_option *sync = dp_option_find(layers[i].type->plugin.options, "sync");
        if (sync != NULL && *(const bool *)((const char *)layers[i].options + sync->offset)) {
            return true;
        }
        if (any_sync(layers[i].body, layers[i].body_count) ||
            any_sync(layers[i].shortcut, layers[i].shortcut_count)) {
            return true;
        }
    }
    return false;
}

static bool is_sync_in_passes(const struct dp_config *config)
{
    return config->train.micro_batch > 0 &&
           any_sync(config->model.layers, config->model.layer_count);
}

static bool has_odd_workers(const struct dp_config *config)
{
    return dp_config_workers(config) < 0;
}

static bool has_odd_lanes(const struct dp_config *config)
{
    return (config->train.lanes & (config->train.lanes - 1)) != 0;
}

static bool has_more_lanes_than_rows(const struct dp_config *config)
{
    return config->train.lanes > config->train.global_batch;
}

static bool is_local(const struct dp_config *config)
{
    return config->train.local_steps > 1;
}

static bool is_local_in_lanes(const struct dp_config *config)
{
    return is_local(config) && config->train.lanes > 0;
}

static bool is_local_in_parts(const struct dp_config *config)
{
    return is_local(config) && strncmp(config->comm.strategy, "zero1", 5) == 0;
}

static bool is_local_scaled(const struct dp_config *config)
{
    return is_local(config) && config->train.precision == DP_PRECISION_FP16;
}

static bool is_local_unshared(const struct dp_config *config)
{
    return is_local(config) && strcmp(config->comm.strategy, "none") == 0;
}

static bool is_named(const char *text, const char *name)
{
    const size_t length = strlen(name);

    return strncmp(text, name, length) == 0 && (text[length] == '\0' || text[length] == ':');
}

static bool has_idle_servers(const struct dp_config *config)
{
    const char *strategy = config->comm.strategy;

    return config->comm.servers > 0 && !is_named(strategy, "auto") && !is_named(strategy, "ps");
}

static bool is_sync_with_servers(const struct dp_config *config)
{
    return config->comm.servers > 0 && any_sync(config->model.layers, config->model.layer_count);
}

static bool is_compressed_with_servers(const struct dp_config *config)
{
    return (config->comm.servers > 0 || is_named(config->comm.strategy, "ps")) &&
           strcmp(config->comm.compressor, "none") != 0;
}

static bool is_local_with_servers(const struct dp_config *config)
{
    return is_local(config) && (config->comm.servers > 0 || is_named(config->comm.strategy, "ps"));
}

static bool is_async_without_servers(const struct dp_config *config)
{
    return config->train.mode == DP_MODE_ASYNC && config->comm.servers == 0;
}

static bool is_stale_in_step(const struct dp_config *config)
{
    return config->train.mode == DP_MODE_SYNC && config->train.staleness > 0;
}

static bool is_stale_in_lanes(const struct dp_config *config)
{
    return dp_config_stale(config) && config->train.lanes > 0;
}

static bool is_stale_scaled(const struct dp_config *config)
{
    return dp_config_stale(config) && config->train.precision == DP_PRECISION_FP16;
}

static bool is_stale_clipped(const struct dp_config *config)
{
    return dp_config_stale(config) && config->optimizer.clip_norm > 0.0;
}

static bool is_stale_layerwise(const struct dp_config *config)
{
    return dp_config_stale(config) && dp_optimizer_of(&config->optimizer)->measure != NULL;
}

static bool is_stale_overlapped(const struct dp_config *config)
{
    return dp_config_stale(config) && config->comm.overlap == DP_OVERLAP_ON;
}

static bool is_compressed_in_local_steps(const struct dp_config *config)
{
    return is_local(config) && strcmp(config->comm.compressor, "none") != 0;
}

static bool is_compressed_in_lanes(const struct dp_config *config)
{
    return config->train.lanes > 0 && strcmp(config->comm.compressor, "none") != 0;
}

static bool is_unshared_for_evaluator(const struct dp_config *config)
{
    return config->train.eval_rank && is_named(config->comm.strategy, "none");
}

static bool shrinks_in_parts(const struct dp_config *config)
{
    const char *strategy = config->comm.strategy;

    return dp_config_shrinks(config) && (config->comm.servers > 0 || is_named(strategy, "none") ||
                                         is_named(strategy, "ps") || is_named(strategy, "zero1"));
}

static bool shrinks_with_helpers(const struct dp_config *config)
{
    return dp_config_shrinks(config) && (config->train.eval_rank || config->data.input_ranks > 0);
}

/* Their messages come when weights have changed already. */
static bool shrinks_in_mid_step(const struct dp_config *config)
{
    return dp_config_shrinks(config) &&
           (is_local(config) || config->train.mode == DP_MODE_ASYNC ||
            config->train.verify_sums > 0 || config->train.precision == DP_PRECISION_FP16);
}

static bool shrinks_with_residuals(const struct dp_config *config)
{
    const char *compressor = config->comm.compressor;

    return dp_config_shrinks(config) && strcmp(compressor, "none") != 0 &&
           !is_named(compressor, "fp16") && !is_named(compressor, "bf16");
}

static bool has_momentum_twice(const struct dp_config *config)
{
    const char *momentum = strstr(config->comm.compressor, "momentum=");
    const struct dp_plugin_choice *optimizer = &config->optimizer.chosen;
    const struct dp_option *own = dp_option_find(optimizer->plugin->options, "momentum");

    return momentum != NULL && strtod(strchr(momentum, '=') + 1, NULL) > 0.0 && own != NULL &&
           *(const double *)(const void *)((const char *)optimizer->state + own->offset) > 0.0;
}

static bool stops_without_answers(const struct dp_config *config)
{
    return config->train.loss == DP_LOSS_SQUARE && config->early_stop.patience > 0 &&
           config->early_stop.metric == DP_METRIC_TEST_ACCURACY;
}

static bool stops_without_errors(const struct dp_config *config)
{
    return config->train.loss != DP_LOSS_SQUARE && config->early_stop.patience > 0 &&
           config->early_stop.metric == DP_METRIC_TEST_ERROR;
}

static bool smooths_numbers(const struct dp_config *config)
{
    return config->train.loss != DP_LOSS_SOFTMAX && config->train.label_smoothing > 0;
}

static bool averages_in_parts(const struct dp_config *config)
{
    return config->train.ema > 0 &&
           (strncmp(config->comm.strategy, "zero1", 5) == 0 ||
            strncmp(config->comm.strategy, "ps", 2) == 0 || config->comm.servers > 0);
}

static bool averages_alone(const struct dp_config *config)
{
    return config->train.ema > 0 && is_local(config);
}

static bool averages_elsewhere(const struct dp_config *config)
{
    return config->train.ema > 0 && config->train.eval_rank;
}

static bool guesses_without_answers(const struct dp_config *config)
{
    return config->train.loss == DP_LOSS_SQUARE && config->failure_stop.chance_steps > 0;
}

/* Than shards. Generated samples may stand for these: --synthetic goes with what is for them. */
static bool reads_other_files(const struct dp_config *config)
{
    return strcmp(config->data.source, "records") != 0 &&
           strcmp(config->data.source, "synthetic") != 0;
}

static bool is_address(const char *dir)
{
    return strstr(dir, "://") != NULL;
}

static bool is_of_a_shell(const char *path)
{
    return path[0] == '~' && (path[1] == '/' || path[1] == '\0');
}

static bool reads_from_tilde(const struct dp_config *config)
{
    return is_of_a_shell(config->data.dir);
}

static bool copies_to_tilde(const struct dp_config *config)
{
    return is_of_a_shell(config->data.local_cache);
}

static bool fetches_other_files(const struct dp_config *config)
{
    return is_address(config->data.dir) && reads_other_files(config);
}

static bool lists_folders_of_files(const struct dp_config *config)
{
    return dp_folder_list_is(config->data.dir) && reads_other_files(config);
}

static bool lists_addresses(const struct dp_config *config)
{
    return dp_folder_list_is(config->data.dir) && is_address(config->data.dir);
}

static bool copies_other_files(const struct dp_config *config)
{
    return config->data.local_cache[0] != '\0' && reads_other_files(config);
}

/* Shards of a server have copies in any case. */
static bool limits_no_copies(const struct dp_config *config)
{
    return config->data.local_cache_mb > 0 &&
           (reads_other_files(config) ||
            (config->data.local_cache[0] == '\0' && !is_address(config->data.dir)));
}

#define NO_TILDE "the shell does not replace ~ there: write the whole path; in a shell also $HOME"

static const struct dp_config_rule refusals[] = {
    {"data.dir", reads_from_tilde, NO_TILDE},
    {"data.local_cache", copies_to_tilde, NO_TILDE},
    {"data.dir", fetches_other_files,
     "an address needs data.source records: pack the data set with ddp_data"},
    {"data.dir", lists_folders_of_files,
     "a list of folders needs data.source records: pack the data set with ddp_data; one folder "
     "that is named [...] is written ./[...]"},
    {"data.dir", lists_addresses, "an address cannot be in a list: give it alone"},
    {"data.local_cache", copies_other_files,
     "needs data.source records, whose shards it copies: pack the data set with ddp_data"},
    {"data.local_cache_mb", limits_no_copies,
     "needs data.source records, with data.local_cache or an address in data.dir"},
    {"data.normalize", normalizes_by_half, "mean and std must be given together"},
    {"data.normalize.mean", has_other_means,
     "expected one number, or one for each channel or feature of model.input"},
    {"data.normalize.std", has_other_stds,
     "expected one number, or one for each channel or feature of model.input"},
    {"data.workers", has_odd_workers, "expected auto, or a number of threads from 1 to 1024"},
    {"early_stop.metric", stops_without_answers,
     "with train.loss mse there is no accuracy: take test_mean_absolute_error, or test_loss"},
    {"early_stop.metric", stops_without_errors, "test_mean_absolute_error needs train.loss mse"},
    {"failure_stop.chance_steps", guesses_without_answers,
     "with train.loss mse there are no right answers"},
    {"train.label_smoothing", smooths_numbers, "needs train.loss softmax_cross_entropy"},
    {"train.ema", averages_in_parts,
     "cannot go with comm.strategy zero1 or servers, where no rank updates all weights"},
    {"train.ema", averages_alone,
     "cannot go with train.local_steps, in which each rank has weights of its own"},
    {"train.ema", averages_elsewhere,
     "cannot go with train.eval_rank, which gets the weights, not their average"},
    {"train.lanes", has_odd_lanes, "expected a power of two, or 0"},
    {"train.lanes", has_more_lanes_than_rows, "more lanes than train.global_batch has rows"},
    {"train.local_steps", is_local_in_lanes,
     "cannot go with train.lanes: what a rank learns alone depends on the number of ranks"},
    {"train.local_steps", is_local_in_parts,
     "cannot go with comm.strategy zero1, where no rank updates all weights"},
    {"train.local_steps", is_local_with_servers,
     "cannot go with servers: every rank updates all weights"},
    {"comm.servers", has_idle_servers, "needs comm.strategy ps, or auto"},
    {"comm.compressor", is_compressed_with_servers,
     "cannot go with servers, which get gradients as they are"},
    {"comm.servers", is_sync_with_servers,
     "cannot go with batchnorm {sync: true}, where all ranks wait for each other inside a layer"},
    {"train.local_steps", is_local_scaled,
     "cannot go with train.precision fp16: ranks must skip a step together"},
    {"train.mode", is_async_without_servers,
     "async needs comm.servers above 0, which apply gradients as they come"},
    {"train.staleness", is_stale_in_step, "needs train.mode async"},
    {"train.staleness", is_stale_in_lanes,
     "cannot go with train.lanes: gradients are applied in the order in which they come"},
    {"train.staleness", is_stale_clipped,
     "cannot go with optimizer.clip_norm, since no rank has the gradient of all ranks"},
    {"train.staleness", is_stale_layerwise,
     "cannot go with optimizer lars or lamb: no rank has the gradient of all ranks, of which they "
     "need norms"},
    {"train.staleness", is_stale_scaled,
     "cannot go with train.precision fp16: ranks must skip a step together"},
    {"train.staleness", is_stale_overlapped,
     "cannot go with comm.overlap on: between two steps a rank gets new weights"},
    {"train.local_steps", is_local_unshared, "averages nothing with comm.strategy none"},
    {"train.local_steps", is_compressed_in_local_steps,
     "cannot go with a comm.compressor: weights are averaged, not gradients"},
    {"train.eval_rank", is_unshared_for_evaluator,
     "cannot go with comm.strategy none, where every rank has weights of its own"},
    {"train.on_rank_failure", shrinks_in_parts,
     "shrink cannot go with comm.strategy zero1, ps or none, nor with servers: a part of the state "
     "would be lost with a rank"},
    {"train.on_rank_failure", shrinks_with_helpers,
     "shrink cannot go with train.eval_rank or data.input_ranks"},
    {"train.on_rank_failure", shrinks_in_mid_step,
     "shrink cannot go with train.local_steps, mode async, train.verify_sums or precision fp16: "
     "ranks are not at the same place when one dies"},
    {"train.on_rank_failure", shrinks_with_residuals,
     "shrink goes with comm.compressor none, fp16 and bf16 alone: the residuals of others would be "
     "lost with a rank"},
    {"train.micro_batch", is_sync_in_passes,
     "cannot go with batchnorm {sync: true}, since the number of passes differs between ranks"},
    {"comm.compressor", is_compressed_in_lanes,
     "cannot go with train.lanes: what is rounded or left out depends on the number of ranks"},
    {"comm.compressor", has_momentum_twice,
     "its momentum and optimizer.momentum would both count: set one of them to 0"},
};

enum { REFUSAL_COUNT = sizeof(refusals) / sizeof(refusals[0]) };

const struct dp_config_rule *dp_config_rule_of_config(const struct dp_config *config)
{
    for (int i = 0; i < REFUSAL_COUNT; i++) {
        if (refusals[i].applies(config)) {
            return &refusals[i];
        }
    }
    return NULL;
}
