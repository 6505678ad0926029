#include "runtime/data/loader.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/thread.h"
#include "base/trace.h"
#include "runtime/data/augment/augment.h"
#include "runtime/data/permute.h"
#include "runtime/data/rows.h"

struct slot {
    struct dp_batch batch;
    uint8_t *images; /* within the loader's memory; [dp_most_rows(), sample_bytes] */
    int32_t *labels; /* likewise; [dp_most_rows(), label_words] */
};

/* Slots are a ring: batch k, counted from first_step, lies in slot k % depth. */
struct dp_loader {
    struct dp_loader_config config;
    uint64_t steps_per_epoch;
    struct slot *slots; /* owned; [config.depth] */
    uint8_t *memory;    /* owned; images and labels of all slots; pinned where there is a device */

    uint64_t taken; /* batches given out so far; only the caller of dp_loader_next() looks */

    pthread_mutex_t mutex; /* protects the next three */
    uint64_t filled;       /* batches prepared so far */
    uint64_t released;     /* batches that nobody reads any more */
    bool stopping;
    pthread_cond_t was_filled, was_released; /* or stopping */
    pthread_t thread;
    bool has_thread;
};

/* Batches that the loader gives out in all. */
static uint64_t steps_in_all(const struct dp_loader_config *c)
{
    return c->total_steps > c->first_step ? c->total_steps - c->first_step : 0;
}

/* Writes the batch of `step` into `slot`. */
static void fill(const struct dp_loader *loader, struct slot *slot, uint64_t step)
{
    const struct dp_loader_config *c = &loader->config;
    const uint64_t index = step % loader->steps_per_epoch;
    const uint64_t epoch = step / loader->steps_per_epoch;
    const size_t global_rows = dp_global_rows(c->count, c->global_batch, index);
    const struct dp_range range = dp_row_range(global_rows, c->rank, c->ranks);
    const uint64_t first = index * c->global_batch + range.begin;
    struct dp_permutation permutation;

    DP_SPAN(DP_PHASE_LOAD, (int64_t)step);
    dp_permutation_init(&permutation, c->seed, (uint32_t)epoch, c->count);
    for (size_t i = 0; i < range.count; i++) {
        const uint64_t row = c->shuffle ? dp_permutation_at(&permutation, first + i) : first + i;
        const uint8_t *image = c->images + row * c->sample_bytes;
        uint8_t *out = slot->images + i * c->sample_bytes;

        if (c->augment != NULL) {
            dp_augment_sample(c->augment, epoch, row, image, out);
        } else {
            memcpy(out, image, c->sample_bytes);
        }
        memcpy(slot->labels + i * c->label_words, c->labels + row * c->label_words,
               c->label_words * sizeof(*slot->labels));
    }
    slot->batch = (struct dp_batch){.step = step,
                                    .epoch = epoch,
                                    .global_rows = global_rows,
                                    .first_row = range.begin,
                                    .rows = range.count,
                                    .images = slot->images,
                                    .labels = slot->labels};
}

/* Waits for a slot to fill; false: there is nothing left to do. */
static bool await_slot(struct dp_loader *loader, uint64_t done)
{
    bool stopping;

    (void)pthread_mutex_lock(&loader->mutex);
    while (!loader->stopping && done - loader->released == (uint64_t)loader->config.depth) {
        (void)pthread_cond_wait(&loader->was_released, &loader->mutex);
    }
    stopping = loader->stopping;
    (void)pthread_mutex_unlock(&loader->mutex);
    return !stopping;
}

static void *loader_run(void *arg)
{
    struct dp_loader *loader = arg;
    const struct dp_loader_config *c = &loader->config;
    const uint64_t steps = steps_in_all(c);

    (void)prctl(PR_SET_NAME, "dp-loader", 0, 0, 0);
    for (uint64_t done = 0; done < steps && await_slot(loader, done); done++) {
        fill(loader, &loader->slots[done % (uint64_t)c->depth], c->first_step + done);
        (void)pthread_mutex_lock(&loader->mutex);
        loader->filled = done + 1;
        (void)pthread_cond_signal(&loader->was_filled);
        (void)pthread_mutex_unlock(&loader->mutex);
    }
    return NULL;
}

/* Refuses what a user can cause; the rest would be a mistake of ours. */
static dp_status check(const struct dp_loader_config *c)
{
    assert(c->global_batch > 0 && c->ranks > 0 && c->rank >= 0 && c->rank < c->ranks);
    assert(c->depth >= 0);
    if (c->count == 0) {
        return DP_FAIL(DP_ERR_DATA, "the training data has no rows");
    }
    if (dp_steps_per_epoch(c->count, c->global_batch, c->drop_last) == 0) {
        return DP_FAIL(DP_ERR_CONFIG,
                       "train.global_batch is %zu, but there are only %zu row%s to train on, and "
                       "data.drop_last leaves out batches that are not full: lower the one or "
                       "switch off the other",
                       c->global_batch, c->count, dp_plural(c->count));
    }
    return DP_OK;
}

/* Memory of all slots: false when there is not enough. One block, since a page can be pinned only
 * once. */
static bool slots_alloc(struct dp_loader *loader)
{
    const struct dp_loader_config *c = &loader->config;
    const size_t largest = c->global_batch < c->count ? c->global_batch : c->count;
    const size_t rows = dp_most_rows(largest, c->ranks), depth = (size_t)c->depth;
    const size_t images = dp_round_up(depth * rows * c->sample_bytes, DP_MEM_ALIGN);
    const size_t words = rows * c->label_words;
    const size_t bytes = images + depth * words * sizeof(int32_t);

    loader->slots = dp_zalloc(depth, sizeof(*loader->slots));
    loader->memory = dp_mem_arena(DP_MEM_DATA, bytes);
    if (loader->slots == NULL || loader->memory == NULL) {
        return false;
    }
    for (size_t i = 0; i < depth; i++) {
        loader->slots[i].images = loader->memory + i * rows * c->sample_bytes;
        loader->slots[i].labels = (int32_t *)(void *)(loader->memory + images) + i * words;
    }
    if (c->device != NULL) {
        c->device->pin(loader->memory, bytes);
    }
    return true;
}

static dp_status thread_start(struct dp_loader *loader)
{
    DP_TRY(dp_thread_start(&loader->thread, loader_run, loader, "dp-loader", "loads batches"));
    loader->has_thread = true;
    return DP_OK;
}

dp_status dp_loader_create(const struct dp_loader_config *config, struct dp_loader **out)
{
    struct dp_loader *loader;
    dp_status status;

    DP_TRY(check(config));
    loader = dp_zalloc(1, sizeof(*loader));
    if (loader == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "loader");
    }
    /* With default attributes these three only fail for want of memory, which Linux never needs. */
    (void)pthread_mutex_init(&loader->mutex, NULL);
    (void)pthread_cond_init(&loader->was_filled, NULL);
    (void)pthread_cond_init(&loader->was_released, NULL);
    loader->config = *config;
    if (config->label_words == 0) {
        loader->config.label_words = 1;
    }
    if (config->depth == 0) {
        loader->config.depth = DP_LOADER_DEPTH;
    }
    if (config->cached) {
        loader->config.depth = 1; /* filled here, once: there is nothing to do for a thread */
    }
    loader->steps_per_epoch =
        dp_steps_per_epoch(config->count, config->global_batch, config->drop_last);
    if (!slots_alloc(loader)) {
        dp_loader_destroy(loader);
        return DP_FAIL(DP_ERR_NOMEM, "loader of batches of %zu rows of %zu bytes over %d ranks",
                       config->global_batch, config->sample_bytes, config->ranks);
    }
    if (config->cached) {
        fill(loader, &loader->slots[0], 0);
    } else {
        DP_TRY_GOTO(thread_start(loader), status, failed);
    }
    *out = loader;
    return DP_OK;

failed:
    dp_loader_destroy(loader);
    return status;
}

dp_status dp_loader_next(struct dp_loader *loader, struct dp_batch *out)
{
    const struct dp_loader_config *c = &loader->config;
    const uint64_t k = loader->taken;

    if (k == steps_in_all(c)) {
        return DP_FAIL(DP_ERR_ARG, "no batch is left: the run ends before step %llu",
                       (unsigned long long)c->total_steps);
    }
    loader->taken = k + 1;
    if (c->cached) {
        *out = loader->slots[0].batch;
        out->step = c->first_step + k;
        out->epoch = out->step / loader->steps_per_epoch;
        return DP_OK;
    }
    (void)pthread_mutex_lock(&loader->mutex);
    loader->released = k; /* the caller is done with all batches before this one */
    (void)pthread_cond_signal(&loader->was_released);
    while (loader->filled <= k) {
        (void)pthread_cond_wait(&loader->was_filled, &loader->mutex);
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    *out = loader->slots[k % (uint64_t)c->depth].batch;
    return DP_OK;
}

bool dp_loader_peek(struct dp_loader *loader, struct dp_batch *out)
{
    const struct dp_loader_config *c = &loader->config;
    const uint64_t k = loader->taken;
    bool filled = c->cached;

    if (k == steps_in_all(c)) {
        return false;
    }
    if (!c->cached) {
        (void)pthread_mutex_lock(&loader->mutex);
        filled = loader->filled > k;
        (void)pthread_mutex_unlock(&loader->mutex);
    }
    if (filled) {
        *out = loader->slots[c->cached ? 0 : k % (uint64_t)c->depth].batch;
        out->step = c->first_step + k;
        out->epoch = out->step / loader->steps_per_epoch;
    }
    return filled;
}

static void thread_join(struct dp_loader *loader)
{
    (void)pthread_mutex_lock(&loader->mutex);
    loader->stopping = true;
    (void)pthread_cond_signal(&loader->was_released);
    (void)pthread_mutex_unlock(&loader->mutex);
    (void)pthread_join(loader->thread, NULL);
}

void dp_loader_destroy(struct dp_loader *loader)
{
    if (loader == NULL) {
        return;
    }
    if (loader->has_thread) {
        thread_join(loader);
    }
    if (loader->memory != NULL && loader->config.device != NULL) {
        loader->config.device->unpin(loader->memory);
    }
    dp_free(loader->memory);
    dp_free(loader->slots);
    (void)pthread_cond_destroy(&loader->was_released);
    (void)pthread_cond_destroy(&loader->was_filled);
    (void)pthread_mutex_destroy(&loader->mutex);
    dp_free(loader);
}
