#include "runtime/trainer/prepare/memory_plan.h"

#include <string.h>

#include "base/log.h"
#include "collectives/compressors/compression.h"
#include "collectives/core/bucket.h"
#include "models/pass/pass.h"
#include "runtime/data/loader.h"
#include "runtime/data/rows.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/param_groups.h"
#include "runtime/trainer/compute/lane_plan.h"
#include "runtime/trainer/compute/micro_batch.h"
#include "runtime/trainer/input/batch_link.h"
#include "runtime/trainer/step_scalars.h"

/* What MPI, oneDNN and OpenBLAS allocate for a rank: 14 to 47 MB, measured. Their code is not
 * counted, which ranks share and the system can load again. */
enum { LIBRARY_BYTES = 24 << 20 };

struct dp_share dp_share_of(const struct dp_config *c, const struct dp_model *m, int trainers,
                            size_t micro_batch, int threads)
{
    const int total = c->train.lanes, count = total / trainers;
    struct dp_share share = {1, 0, 1};

    share.rows = dp_micro_batch_most(
        dp_most_rows((size_t)c->train.global_batch, total > 0 ? total : trainers), micro_batch);
    if (total > 0) {
        share.passes = (size_t)dp_lanes_workers(m, count, threads);
        share.gradients += (size_t)dp_lanes_extra_gradients(count, (int)share.passes);
    }
    return share;
}

/* Arrays of state of the optimizer, and the average of the weights. */
static size_t slots(const struct dp_memory_plan *plan)
{
    const char *const *names = dp_optimizer_of(&plan->config->optimizer)->slots;

    return (size_t)(names[0] != NULL) + (size_t)(names[1] != NULL) +
           (size_t)(plan->config->train.ema > 0.0);
}

/* Factors of parameters, whole on every rank that updates. */
static size_t groups(const struct dp_memory_plan *plan)
{
    const struct dp_optimizer_config *c = &plan->config->optimizer;

    return dp_param_groups_bytes(dp_optimizer_of(c), c->chosen.state, plan->model->trained,
                                 plan->model->tensor_count);
}

static int rank_count(const struct dp_memory_plan *plan)
{
    return plan->trainers + plan->config->comm.servers;
}

static bool begins(const char *text, const char *name)
{
    return strncmp(text, name, strlen(name)) == 0;
}

/* Whether ranks of one host share memory under `auto`; what it chooses depends on that. */
static bool auto_shares(const struct dp_memory_plan *plan)
{
    return begins(plan->config->comm.strategy, "auto") && plan->one_node &&
           plan->device->host_memory && plan->config->comm.servers == 0 &&
           plan->config->train.local_steps <= 1;
}

static bool is_zero1(const struct dp_memory_plan *plan)
{
    return begins(plan->config->comm.strategy, "zero1") || auto_shares(plan);
}

/* One copy of the weights for all ranks of a host (exchange.c). */
static bool has_one_copy(const struct dp_memory_plan *plan)
{
    const char *text = plan->config->comm.strategy;

    return (is_zero1(plan) || begins(text, "ps")) && plan->one_node && plan->device->host_memory &&
           rank_count(plan) > 1 && plan->config->comm.servers == 0 &&
           (strstr(text, "over=") == NULL || strstr(text, "over=shm") != NULL);
}

/* Elements that a rank that trains has of an array that is divided among its owners. */
static size_t owned(const struct dp_memory_plan *plan)
{
    const bool serves = begins(plan->config->comm.strategy, "ps");

    if (plan->config->comm.servers > 0) {
        return 0;
    }
    return plan->model->trained / (size_t)(serves || is_zero1(plan) ? plan->trainers : 1);
}

/* The same for a server. */
static size_t served(const struct dp_memory_plan *plan)
{
    const int servers = plan->config->comm.servers;

    return servers > 0 ? plan->model->trained / (size_t)servers : 0;
}

/* What a compressor keeps between steps; a rank alone has no compressor. */
static struct dp_compression_size remembered(const struct dp_memory_plan *plan)
{
    const struct dp_model *m = plan->model;

    return rank_count(plan) > 1 ? dp_compression_measure(plan->config->comm.compressor, m->tensors,
                                                         m->tensor_count, m->trained)
                                : (struct dp_compression_size){0, 0};
}

/* Bytes for what a compressor sends; 0, without a word, where there is no memory to find out: a
 * prediction ends no run. */
static size_t sent(const struct dp_memory_plan *plan)
{
    const struct dp_comm_config *c = &plan->config->comm;
    const struct dp_model *m = plan->model;
    const struct dp_bucket_sizes sizes = {
        .first_count = (size_t)(c->first_bucket_mb * 1048576.0) / sizeof(float),
        .max_count = (size_t)(c->bucket_mb * 1048576.0) / sizeof(float)};
    struct dp_bucket_plan *buckets = NULL;
    struct dp_log_capture problem;
    size_t bytes = 0;

    dp_log_capture_begin(&problem, DP_LOG_ERROR);
    /* Cut like the trainer's (trainer.c). */
    if (rank_count(plan) > 1 &&
        dp_bucket_plan_create(m->tensors, m->tensor_count, m->trained,
                              m->trained + dp_step_scalars_tail(m->statistics), &sizes,
                              &buckets) == DP_OK) {
        bytes = dp_compression_codes(c->compressor, buckets, rank_count(plan));
    }
    dp_log_capture_end(&problem, DP_LOG_DROP);
    dp_bucket_plan_destroy(buckets);
    return bytes;
}

/* A lane is computed by one thread; without lanes each thread has tiles. */
static struct dp_tiles tiles(const struct dp_memory_plan *plan)
{
    const bool lanes = plan->config->train.lanes > 0;

    return dp_tiles_of(plan->device, lanes ? 1 : plan->threads);
}

/* Of all passes of a rank. */
static size_t activations(const struct dp_memory_plan *plan, const struct dp_share *share,
                          bool trains)
{
    const struct dp_model *m = plan->model;
    const enum dp_type type = dp_precision_type(plan->config->train.precision);
    /* With labels; without lanes also the next batch's. Not needed by a device that reads the
     * host's memory. */
    const size_t labels =
        (plan->config->train.lanes > 0 ? 1 : 2) * dp_model_train_words(m) * sizeof(int32_t);
    const size_t input =
        plan->device->host_memory ? 0 : share->rows * (dp_model_sample_bytes(m) + labels);

    return share->passes * (dp_model_activation_bytes(m, type, share->rows, tiles(plan), trains) +
                            input + dp_pass_band_bytes(m, tiles(plan), trains));
}

size_t dp_memory_plan_activations(const struct dp_memory_plan *plan, size_t micro_batch)
{
    const struct dp_share share =
        dp_share_of(plan->config, plan->model, plan->trainers, micro_batch, plan->threads);

    return activations(plan, &share, true);
}

void dp_memory_plan_device(const struct dp_memory_plan *plan, size_t micro_batch,
                           size_t bytes[DP_MEM_PURPOSE_COUNT])
{
    const struct dp_model *m = plan->model;
    const enum dp_type type = dp_precision_type(plan->config->train.precision);
    const struct dp_share share = dp_share_of(plan->config, m, plan->trainers, micro_batch, 1);
    const struct dp_compression_size kept = remembered(plan);
    const size_t part = owned(plan) * sizeof(float);

    memset(bytes, 0, DP_MEM_PURPOSE_COUNT * sizeof(*bytes));
    bytes[DP_MEM_WEIGHTS] = m->trained * dp_type_bytes(type) + (type == DP_TYPE_F32 ? 0 : part);
    bytes[DP_MEM_GRADIENTS] = share.gradients * m->trained * sizeof(float);
    bytes[DP_MEM_OPTIMIZER] = slots(plan) * part + groups(plan);
    bytes[DP_MEM_RESIDUALS] = (kept.residuals + kept.warm) * sizeof(float);
    bytes[DP_MEM_COMM] = sent(plan);
    bytes[DP_MEM_ACTIVATIONS] = activations(plan, &share, true);
}

/* Whole arrays, and the residuals of each rank. */
static size_t snapshot(const struct dp_memory_plan *plan)
{
    const struct dp_model *m = plan->model;
    const struct dp_compression_size kept = remembered(plan);

    return ((1 + slots(plan)) * m->trained + m->statistics +
            (size_t)rank_count(plan) * kept.residuals + kept.warm) *
           sizeof(float);
}

/* Narrow types are computed in float32, piece by piece, on a stream per pass. */
static size_t workspace(const struct dp_memory_plan *plan, const struct dp_share *share)
{
    const bool narrow = dp_precision_type(plan->config->train.precision) != DP_TYPE_F32;

    return narrow && plan->device->reserve != NULL
               ? share->passes * dp_pass_reserved(plan->model, share->rows, tiles(plan)) *
                     sizeof(float)
               : 0;
}

/* Adds what ranks need that evaluate for the others, and rank 0, which sends them weights. Lanes
 * have what training needs. */
static void add_evaluators(const struct dp_memory_plan *plan, const struct dp_memory_ranks *ranks,
                           const struct dp_share *share, size_t bytes[DP_MEM_PURPOSE_COUNT])
{
    const struct dp_model *m = plan->model;
    const size_t count = (size_t)ranks->evaluators;
    const size_t weights =
        m->trained * dp_type_bytes(dp_precision_type(plan->config->train.precision));
    const bool lanes = plan->config->train.lanes > 0;

    bytes[DP_MEM_WEIGHTS] += count * weights;
    bytes[DP_MEM_GRADIENTS] += count * (share->gradients - 1) * m->trained * sizeof(float);
    bytes[DP_MEM_ACTIVATIONS] += count * activations(plan, share, lanes);
    bytes[DP_MEM_WORKSPACE] += count * workspace(plan, share);
    bytes[DP_MEM_OTHER] +=
        count * LIBRARY_BYTES + (plan->config->train.eval_rank && ranks->leads ? weights : 0);
}

/* What the loader's threads work in where they read samples, or change them. */
static size_t loading(const struct dp_memory_plan *plan)
{
    const int asked = dp_config_workers(plan->config);
    const size_t workers = (size_t)(plan->cached_input ? 1 : asked > 0 ? asked : plan->threads);
    const size_t sample = dp_round_up(dp_model_sample_bytes(plan->model), DP_MEM_ALIGN);

    return workers * plan->reader_bytes + (plan->cached_input ? 0 : plan->shared_bytes) +
           (plan->config->data.augment[0] != '\0' ? (2 * workers + 2) * sample : 0);
}

/* The rows of a pass that each user of the test set reads, and what the threads work in that do
 * (stream/test_rows.h); a rank that evaluates for others has as many. */
static size_t tests(const struct dp_memory_plan *plan, const struct dp_share *share)
{
    const size_t most = dp_most_rows(plan->read_tests, plan->trainers);
    const size_t row =
        dp_model_sample_bytes(plan->model) + dp_model_label_words(plan->model) * sizeof(int32_t);

    const size_t hands = share->passes > 1 ? share->passes : (size_t)plan->threads;

    return plan->read_tests > 0 ? share->passes * (share->rows < most ? share->rows : most) * row +
                                      hands * plan->reader_bytes
                                : 0;
}

/* The batches that a rank that trains keeps, and one that reads for others. */
static size_t batches(const struct dp_memory_plan *plan, size_t *reader)
{
    const size_t batch = (size_t)plan->config->train.global_batch;
    const size_t most =
        plan->train_count > 0 && plan->train_count < batch ? plan->train_count : batch;

    const size_t row =
        dp_model_sample_bytes(plan->model) + dp_model_train_words(plan->model) * sizeof(int32_t);
    const size_t read = plan->cached_input ? 1 : DP_LOADER_DEPTH;
    const int readers = plan->config->data.input_ranks;
    const size_t kept = readers > 0 ? DP_BATCH_LINK_DEPTH : read;

    *reader = readers > 0 ? (read + kept) * dp_most_rows(most, readers) * row + loading(plan) : 0;
    return kept * dp_most_rows(most, plan->trainers) * row + (readers > 0 ? 0 : loading(plan));
}

void dp_memory_plan_host(const struct dp_memory_plan *plan, const struct dp_memory_ranks *ranks,
                         size_t micro_batch, size_t bytes[DP_MEM_PURPOSE_COUNT])
{
    const struct dp_model *m = plan->model;
    const enum dp_type type = dp_precision_type(plan->config->train.precision);
    const struct dp_share share =
        dp_share_of(plan->config, m, plan->trainers, micro_batch, plan->threads);
    const struct dp_compression_size kept = remembered(plan);
    const size_t train = (size_t)ranks->trainers, all = train + (size_t)ranks->servers;
    const size_t part =
        (train * owned(plan) + (size_t)ranks->servers * served(plan)) * sizeof(float);
    const size_t copies = has_one_copy(plan) ? ranks->first : all;
    size_t reader_batches;
    const size_t trainer_batches = batches(plan, &reader_batches);

    memset(bytes, 0, DP_MEM_PURPOSE_COUNT * sizeof(*bytes));
    bytes[DP_MEM_WEIGHTS] =
        copies * m->trained * dp_type_bytes(type) + (type == DP_TYPE_F32 ? 0 : part);
    bytes[DP_MEM_GRADIENTS] =
        all * (m->trained + dp_step_scalars_tail(m->statistics)) * sizeof(float);
    bytes[DP_MEM_OPTIMIZER] = slots(plan) * part + all * groups(plan);
    bytes[DP_MEM_RESIDUALS] = all * (kept.residuals + kept.warm) * sizeof(float);
    bytes[DP_MEM_COMM] = all * sent(plan);
    bytes[DP_MEM_DATA] = (ranks->first ? plan->data_bytes : 0) + train * trainer_batches +
                         (size_t)ranks->readers * reader_batches +
                         (train + (size_t)ranks->evaluators) * tests(plan, &share);
    bytes[DP_MEM_CHECKPOINT] = plan->saves && ranks->leads ? snapshot(plan) : 0;
    bytes[DP_MEM_OTHER] = (all + (size_t)ranks->readers) * LIBRARY_BYTES;
    if (plan->device->host_memory) {
        bytes[DP_MEM_GRADIENTS] += train * (share.gradients - 1) * m->trained * sizeof(float);
        bytes[DP_MEM_ACTIVATIONS] = train * activations(plan, &share, true);
        bytes[DP_MEM_WORKSPACE] = train * workspace(plan, &share);
        add_evaluators(plan, ranks, &share, bytes);
    }
}

size_t dp_memory_plan_state(const struct dp_memory_plan *plan)
{
    const bool narrow = dp_precision_type(plan->config->train.precision) != DP_TYPE_F32;

    return plan->model->trained * (dp_type_bytes(dp_precision_type(plan->config->train.precision)) +
                                   sizeof(float) * (1 + slots(plan) + (narrow ? 1 : 0)));
}

size_t dp_memory_plan_sum(const size_t bytes[DP_MEM_PURPOSE_COUNT])
{
    size_t total = 0;

    for (int i = 0; i < DP_MEM_PURPOSE_COUNT; i++) {
        total += bytes[i];
    }
    return total;
}
