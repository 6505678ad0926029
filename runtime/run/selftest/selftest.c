/*
 * selftest.c - the checks of a selftest, in an order: those that need another process come first.
 */
#include "runtime/run/selftest/selftest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "kernels/tensor.h"
#include "runtime/data/loader.h"
#include "runtime/run/dataset/load_dataset.h"
#include "runtime/run/place.h"
#include "runtime/run/selftest/device_check.h"
#include "runtime/run/selftest/gradient_check.h"
#include "runtime/run/selftest/rank_check.h"
#include "runtime/run/selftest/resume_check.h"
#include "runtime/run/selftest/sum_check.h"
#include "runtime/run/setup.h"

enum {
    BATCH_ROWS = 32,   /* of a global batch of the trainings: that is enough to differ */
    GRADIENT_ROWS = 4, /* finite differences compute some forwards for each tensor */
    DEVICE_ROWS = 8
};

static const char *const synthetic_settings[] = {"data.source=synthetic", "data.samples=1024",
                                                 "data.test_samples=64"};

/* Where the user's own data cannot be read, generated ones of the same shapes. problem: why. */
static dp_status load(struct dp_training *run, char *problem, size_t size)
{
    struct dp_log_capture capture;
    dp_status status;

    DP_TRY(dp_run_configure(&run->job));
    DP_TRY(dp_run_place(&run->job));
    dp_log_capture_begin(&capture, DP_LOG_WARN);
    status = dp_run_load_data(&run->job, &run->figures.progress);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    (void)snprintf(problem, size, "%s", dp_log_captured(&capture));
    return status;
}

static bool can_be_generated(dp_status status)
{
    return status == DP_ERR_NOINPUT || status == DP_ERR_DATA || status == DP_ERR_UNAVAILABLE;
}

/* A training that is never set up further, and its data. */
static dp_status open_job(struct dp_run_options *options, struct dp_world *world,
                          struct dp_training *run, struct dp_selftest *selftest)
{
    char problem[512], ignored[8];
    dp_status status;

    dp_run_init(run, options, world);
    status = load(run, problem, sizeof(problem));
    if (can_be_generated(status)) {
        for (size_t i = 0; i < sizeof(synthetic_settings) / sizeof(synthetic_settings[0]); i++) {
            options->sets[options->set_count++] = synthetic_settings[i];
        }
        selftest->synthetic = true;
        dp_run_teardown(run);
        dp_run_init(run, options, world);
        status = load(run, ignored, sizeof(ignored));
    }
    selftest->job = &run->job;
    DP_TRY(status);
    if (selftest->synthetic) {
        dp_selftest_line(selftest, true, "data", "generated, of the same shapes, since: %s",
                         problem);
    } else {
        dp_selftest_line(selftest, true, "data", "%zu rows of %s", run->job.data.train_count,
                         run->job.config->data.source);
    }
    return DP_OK;
}

/* Rows of the global batches of trainings. A lane is never without rows. */
static size_t batch_rows(const struct dp_run_job *job)
{
    const size_t lanes = (size_t)job->config->train.lanes;
    const size_t wanted = lanes > BATCH_ROWS ? lanes : BATCH_ROWS;

    return dp_smaller(dp_smaller(wanted, (size_t)job->config->train.global_batch),
                      job->data.train_count);
}

/* Copies the first rows of the first epoch, which a loader reads wherever they are. */
static dp_status take_rows(const struct dp_run_job *job, size_t count, uint8_t **images,
                           int32_t **labels)
{
    const size_t words = dp_model_label_words(job->model);
    const struct dp_loader_config config = {.images = job->data.train_images,
                                            .labels = job->data.train_labels,
                                            .samples = job->data.samples,
                                            .skips = job->data.skips,
                                            .count = job->data.train_count,
                                            .sample_bytes = job->data.sample_bytes,
                                            .label_words = words,
                                            .global_batch = count,
                                            .ranks = 1,
                                            .seed = (uint64_t)job->config->train.seed,
                                            .shuffle = job->config->data.shuffle != DP_SHUFFLE_OFF,
                                            .total_steps = 1,
                                            .depth = 1};
    struct dp_loader *loader = NULL;
    struct dp_batch batch;
    dp_status status;

    *images = dp_zalloc(count, job->data.sample_bytes);
    *labels = dp_zalloc(count, words * sizeof(**labels));
    if (*images == NULL || *labels == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu rows", count);
    }
    DP_TRY(dp_loader_create(&config, &loader));
    status = dp_loader_next(loader, &batch);
    if (status == DP_OK) {
        memcpy(*images, batch.images, count * job->data.sample_bytes);
        memcpy(*labels, batch.labels, count * words * sizeof(**labels));
    }
    dp_loader_destroy(loader);
    return status;
}

/* Rows of what device ref computes: fewer of a large model, whose forward takes it minutes. Batch
 * norm needs two. */
static size_t ref_rows(const struct dp_run_job *job)
{
    const double light = 8e9; /* operations of a forward */
    const size_t rows = (size_t)(light / fmax(job->model->flops, 1.0));

    return dp_smaller(dp_smaller(DEVICE_ROWS, rows > 2 ? rows : 2), job->data.train_count);
}

/* Of rank 0 alone. */
static dp_status check_model(struct dp_selftest *selftest)
{
    const size_t rows = ref_rows(selftest->job);
    uint8_t *images = NULL;
    int32_t *labels = NULL;
    dp_status status = take_rows(selftest->job, rows, &images, &labels);

    selftest->job->model->pairs = false; /* samples are taken as they are */
    selftest->rows = (struct dp_pass_rows){.images = images, .labels = labels, .count = rows};
    status =
        status == DP_OK ? dp_gradient_check(selftest, dp_smaller(GRADIENT_ROWS, rows)) : status;
    status = status == DP_OK ? dp_device_check(selftest, rows) : status;
    dp_free(labels);
    dp_free(images);
    return status;
}

static dp_status check_all(struct dp_selftest *selftest, const struct dp_run_options *options)
{
    const struct dp_run_job *job = selftest->job;
    struct dp_group *all = job->world->all;

    DP_TRY(dp_resume_check(selftest, options, batch_rows(job)));
    DP_TRY(dp_group_agree(all, all->rank == 0 ? check_model(selftest) : DP_OK));
    DP_TRY(dp_rank_check(selftest, batch_rows(job)));
    DP_TRY(dp_sum_check(selftest));
    return dp_group_broadcast(all, &selftest->failures, sizeof(selftest->failures), 0);
}

static dp_status verdict(const struct dp_selftest *selftest, const char *name)
{
    if (selftest->failures == 0) {
        return DP_OK;
    }
    return !dp_run_leads(selftest->job)
               ? DP_ERR_INTERNAL
               : DP_FAIL(DP_ERR_INTERNAL, "selftest of %s: %d of %d checks failed", name,
                         selftest->failures, selftest->checks);
}

dp_status dp_selftest_run(const struct dp_run_options *options, struct dp_world *world)
{
    struct dp_training *run = dp_zalloc(1, sizeof(*run));
    struct dp_run_options own = *options;
    struct dp_selftest selftest = {.job = NULL};
    dp_status status;

    if (run == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "selftest");
    }
    own.quiet = true;
    own.sets[own.set_count++] = "train.eval_rank=false"; /* all ranks train */
    own.sets[own.set_count++] = "data.input_ranks=0";
    own.sets[own.set_count++] = "train.on_rank_failure=stop"; /* there is one process */
    status = open_job(&own, world, run, &selftest);
    status = status == DP_OK ? check_all(&selftest, &own) : status;
    if (!dp_status_together(status)) { /* it may be one rank's alone */
        dp_world_abort(world, dp_status_exit(status));
    }
    status = status == DP_OK ? verdict(&selftest, options->config) : status;
    dp_run_teardown(run);
    dp_free(run);
    return status;
}
