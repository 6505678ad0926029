#include "runtime/trainer/compute/input.h"

#include "base/log.h"
#include "runtime/config/config_load.h"
#include "runtime/data/rows.h"

dp_status dp_dataset_test_rows(const struct dp_dataset *data, size_t label_words, int users,
                               int threads, struct dp_test_rows **out)
{
    const struct dp_test_rows_config config = {
        .images = data->test_images,
        .labels = data->test_labels,
        .prints = data->test_prints,
        .count = data->test_count,
        .sample_bytes = data->sample_bytes,
        .label_words = label_words,
        .samples = data->samples,
        .skips = data->skips,
        .users = users,
        .threads = threads,
    };

    return dp_test_rows_create(&config, out);
}

dp_status dp_dataset_augment(const struct dp_dataset *data, const struct dp_config *config,
                             struct dp_augment **out)
{
    char problem[256], where[256];
    const dp_status status =
        dp_augment_create(data->made ? "" : config->data.augment, &data->shape,
                          (uint64_t)config->train.seed, out, problem, sizeof(problem));

    return status == DP_OK
               ? DP_OK
               : DP_FAIL(status, "%s: %s",
                         dp_config_where(config, "data.augment", where, sizeof(where)), problem);
}

struct dp_loader_config dp_dataset_loader(const struct dp_dataset *data,
                                          const struct dp_config *config,
                                          const struct dp_model *model,
                                          const struct dp_augment *augment,
                                          const struct dp_device *device, int threads)
{
    /* A copy alone keeps up with any step of a processor. A GPU can take more than a thread copies:
     * 3.5 GB/s for layers 8192 wide. */
    const bool simple = data->train_images != NULL && augment == NULL && device->host_memory;

    return (struct dp_loader_config){
        .images = data->train_images,
        .labels = data->train_labels,
        .prints = data->train_prints,
        .count = data->train_count,
        .sample_bytes = data->sample_bytes,
        .label_words = data->made ? dp_model_train_words(model) : dp_model_label_words(model),
        .batch_words = dp_model_train_words(model),
        .seed = (uint64_t)config->train.seed,
        .shuffle = config->data.shuffle != DP_SHUFFLE_OFF,
        .window = config->data.shuffle == DP_SHUFFLE_WINDOW ? (size_t)config->data.window : 0,
        .drop_last = config->data.drop_last,
        .augment = augment,
        .samples = data->samples,
        .skips = data->skips,
        .workers = dp_config_workers(config),
        .workers_most = simple ? 1 : threads,
    };
}

static uint64_t steps_per_epoch(const struct dp_input *in)
{
    return dp_steps_per_epoch(in->data->train_count, in->global_batch, in->drop_last);
}

size_t dp_input_global_rows(const struct dp_input *in, uint64_t step)
{
    return dp_global_rows(in->data->train_count, in->global_batch,
                          in->cached ? 0 : step % steps_per_epoch(in));
}

static struct dp_batch batch_of_server(const struct dp_input *in, uint64_t step)
{
    const size_t rows = dp_input_global_rows(in, step);

    return (struct dp_batch){
        .step = step, .epoch = step / steps_per_epoch(in), .global_rows = rows, .first_row = rows};
}

/* Keeps in in->error what is to be said of a failure. */
static dp_status next_kept(struct dp_input *in)
{
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = in->receiver != NULL ? dp_batch_receiver_next(in->receiver, &in->batch, &in->error)
                                  : dp_loader_next(in->loader, &in->batch);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (status != DP_OK && *dp_log_captured(&capture) != '\0') {
        dp_log_keep_error(&capture, &in->error);
    }
    return status;
}

void dp_input_try(struct dp_input *in, uint64_t step)
{
    if (in->receiver == NULL && in->loader == NULL) {
        in->batch = batch_of_server(in, step);
        in->failure = DP_OK;
    } else {
        in->failure = next_kept(in);
    }
}

dp_status dp_input_next(struct dp_input *in, uint64_t step)
{
    const struct dp_input_speaker *speaker = &in->speaker;

    dp_input_try(in, step);
    if (in->failure != DP_OK && *in->error.text != '\0' &&
        (speaker->begins == NULL || speaker->begins(speaker->context))) {
        dp_log_error_of(&in->error);
        if (speaker->ends != NULL) {
            speaker->ends(speaker->context);
        }
    }
    return in->failure;
}

bool dp_input_peek(const struct dp_input *in, struct dp_batch *next)
{
    if (in->receiver != NULL) {
        return dp_batch_receiver_peek(in->receiver, next);
    }
    return in->loader != NULL && dp_loader_peek(in->loader, next);
}
