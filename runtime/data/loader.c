#include "runtime/data/loader.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/thread.h"
#include "base/trace.h"
#include "base/trace_ring.h"
#include "runtime/data/permute.h"
#include "runtime/data/rows.h"
#include "runtime/data/stream/pace.h"
#include "runtime/data/stream/row_maker.h"
#include "runtime/data/window.h"

enum { ERROR_BYTES = 1024, TAKEN_BYTES = 32768 /* of rows in memory, at once */ };

struct slot {
    struct dp_batch batch;
    struct dp_permutation permutation; /* of its epoch */
    struct dp_window_order windows;    /* of its epoch, where rows are shuffled in windows */
    uint64_t first;                    /* this rank's first position in the epoch */
    size_t left;                       /* rows that are not written yet */
    uint8_t *images;         /* within the loader's memory; [dp_most_rows(), sample_bytes] */
    int32_t *labels;         /* likewise; [dp_most_rows(), batch_words] */
    dp_status status;        /* of its first bad row, */
    size_t bad_row;          /* which row that is, */
    char error[ERROR_BYTES]; /* and what there is to say about it */
};

struct worker {
    struct dp_loader *loader;
    int index;
    struct dp_row_maker *maker; /* owned */
    pthread_t thread;
    bool started;
};

/* Slots are a ring: batch k, counted from first_step, lies in slot k % depth. */
struct dp_loader {
    struct dp_loader_config config;
    uint64_t steps_per_epoch;
    size_t taken_at_once; /* rows */
    struct slot *slots;   /* owned; [config.depth] */
    uint8_t *memory; /* owned; images and labels of all slots; pinned where there is a device */
    struct worker *workers; /* owned; [pace.most] */

    uint64_t taken;    /* batches given out so far; only the caller of dp_loader_next() looks */
    uint64_t given_ns; /* when the last one was */

    pthread_mutex_t mutex; /* protects all that follows, and of slots what is not rows */
    uint64_t begun;        /* batches that are being filled, or are filled: this many */
    size_t next_row;       /* of the last of them: the first that nobody has taken */
    uint64_t filled;       /* batches prepared so far */
    uint64_t released;     /* batches that nobody reads any more */
    bool stopping;
    struct dp_pace pace;
    struct dp_stage_times times;
    uint64_t work_ns, noted_ns; /* of all threads so far; of that, what the pace knows */
    uint64_t wait_ns;
    pthread_cond_t was_filled, has_work; /* or stopping */
};

/* Batches that the loader gives out in all. */
static uint64_t steps_in_all(const struct dp_loader_config *c)
{
    return c->total_steps > c->first_step ? c->total_steps - c->first_step : 0;
}

static struct slot *slot_of(const struct dp_loader *loader, uint64_t k)
{
    return &loader->slots[k % (uint64_t)loader->config.depth];
}

/* ---- filling ---- */

/* What is known of a batch before its rows. */
static void begin_batch(const struct dp_loader *loader, struct slot *slot, uint64_t step)
{
    const struct dp_loader_config *c = &loader->config;
    const uint64_t index = step % loader->steps_per_epoch;
    const uint64_t epoch = step / loader->steps_per_epoch;
    const size_t global_rows = dp_global_rows(c->count, c->global_batch, index);
    const struct dp_range range = dp_row_range(global_rows, c->rank, c->ranks);

    dp_permutation_init(&slot->permutation, c->seed, (uint32_t)epoch, c->count);
    dp_window_order_init(&slot->windows, c->seed, (uint32_t)epoch, c->count,
                         c->window > 0 ? c->window : c->count);
    slot->first = index * c->global_batch + range.begin;
    slot->left = range.count;
    slot->status = DP_OK;
    slot->batch = (struct dp_batch){.step = step,
                                    .epoch = epoch,
                                    .global_rows = global_rows,
                                    .first_row = range.begin,
                                    .rows = range.count,
                                    .images = slot->images,
                                    .labels = slot->labels};
}

/* Rows of a batch that one thread makes. */
struct ticket {
    struct slot *slot;
    size_t row, count;
    size_t skipped;
    dp_status status; /* of its first bad row */
    size_t bad_row;
};

static uint64_t sample_at(const struct dp_loader *loader, const struct slot *slot, size_t row)
{
    const uint64_t at = slot->first + row;

    return !loader->config.shuffle     ? at
           : loader->config.window > 0 ? dp_window_order_at(&slot->windows, at)
                                       : dp_permutation_at(&slot->permutation, at);
}

static void make_rows(const struct dp_loader *loader, struct dp_row_maker *maker, struct ticket *t)
{
    const struct dp_loader_config *c = &loader->config;
    const struct slot *slot = t->slot;
    uint64_t next = t->count > 0 ? sample_at(loader, slot, t->row) : 0;

    DP_SPAN(DP_PHASE_LOAD, (int64_t)slot->batch.step);
    for (size_t i = t->row; i < t->row + t->count && t->status == DP_OK; i++) {
        const uint64_t row = next;
        next = sample_at(loader, slot, i + 1 < t->row + t->count ? i + 1 : i);
        dp_row_maker_expect(maker, next);
        t->status =
            dp_row_maker_make(maker, slot->batch.epoch, row, slot->images + i * c->sample_bytes,
                              slot->labels + i * c->batch_words, &t->skipped);
        t->bad_row = i; /* if it is the last one */
    }
}

/* The next rows that nobody makes, if a slot is free for them. */
static bool take_ticket(struct dp_loader *loader, struct ticket *ticket)
{
    const uint64_t steps = steps_in_all(&loader->config);
    struct slot *slot;

    while (loader->begun == 0 ||
           loader->next_row == slot_of(loader, loader->begun - 1)->batch.rows) {
        if (loader->begun == steps ||
            loader->begun - loader->released == (uint64_t)loader->config.depth) {
            return false;
        }
        slot = slot_of(loader, loader->begun);
        begin_batch(loader, slot, loader->config.first_step + loader->begun);
        loader->begun++;
        loader->next_row = 0;
        if (slot->batch.rows == 0) {
            break; /* a ticket without rows completes it */
        }
    }
    slot = slot_of(loader, loader->begun - 1);
    const size_t left = slot->batch.rows - loader->next_row;
    *ticket = (struct ticket){.slot = slot, .row = loader->next_row, .status = DP_OK};
    ticket->count = left < loader->taken_at_once ? left : loader->taken_at_once;
    loader->next_row += ticket->count;
    return true;
}

/* Of several bad rows of a batch the first one counts. */
static void note_bad(struct slot *slot, const struct ticket *ticket, const char *error)
{
    if (slot->status == DP_OK || ticket->bad_row < slot->bad_row) {
        slot->status = ticket->status;
        slot->bad_row = ticket->bad_row;
        (void)snprintf(slot->error, sizeof(slot->error), "%s", error);
    }
}

static void end_ticket(struct dp_loader *loader, const struct ticket *ticket, const char *error)
{
    struct slot *slot = ticket->slot;

    slot->left -= ticket->count;
    slot->batch.skipped += ticket->skipped;
    if (ticket->status != DP_OK) {
        note_bad(slot, ticket, error);
    }
    while (loader->filled < loader->begun && slot_of(loader, loader->filled)->left == 0) {
        loader->filled++;
        (void)pthread_cond_signal(&loader->was_filled);
    }
}

/* Makes the rows of a ticket, with the mutex unlocked. */
static void work(struct dp_loader *loader, struct dp_row_maker *maker, struct ticket *ticket)
{
    const uint64_t begin_ns = dp_now_ns();
    struct dp_log_capture capture;
    struct dp_stage_times times;
    uint64_t ns;

    (void)pthread_mutex_unlock(&loader->mutex);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    make_rows(loader, maker, ticket);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_row_maker_take_times(maker, &times);
    ns = dp_now_ns() - begin_ns;
    times.ns[DP_STAGE_AUGMENT] = loader->config.images != NULL ? ns : times.ns[DP_STAGE_AUGMENT];
    (void)pthread_mutex_lock(&loader->mutex);
    loader->work_ns += ns;
    dp_stage_times_add(&loader->times, &times);
    end_ticket(loader, ticket, dp_log_captured(&capture));
}

static void *worker_run(void *arg)
{
    const struct worker *worker = arg;
    struct dp_loader *loader = worker->loader;
    struct ticket ticket;

    dp_trace_set_lane(DP_LANE_INPUT, worker->index);
    (void)pthread_mutex_lock(&loader->mutex);
    while (!loader->stopping) {
        if (worker->index < loader->pace.active && take_ticket(loader, &ticket)) {
            work(loader, worker->maker, &ticket);
        } else {
            (void)pthread_cond_wait(&loader->has_work, &loader->mutex);
        }
    }
    (void)pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* The one batch of --cached-input, by the caller. */
static dp_status fill_here(struct dp_loader *loader)
{
    struct slot *slot = &loader->slots[0];
    struct ticket ticket = {.slot = slot, .status = DP_OK};

    begin_batch(loader, slot, 0);
    ticket.count = slot->batch.rows;
    make_rows(loader, loader->workers[0].maker, &ticket);
    return ticket.status;
}

/* ---- making and releasing ---- */

static dp_status check(const struct dp_loader_config *c)
{
    if (c->count == 0) {
        return DP_FAIL(DP_ERR_DATA, "no rows to train on");
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
    const size_t words = rows * c->batch_words, bytes = images + depth * words * sizeof(int32_t);

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

static dp_status make_makers(struct dp_loader *loader)
{
    const struct dp_loader_config *c = &loader->config;
    const struct dp_row_maker_config config = {
        .images = c->images,
        .labels = c->labels,
        .prints = c->prints,
        .count = c->count,
        .sample_bytes = c->sample_bytes,
        .label_words = c->label_words,
        .pairs = c->batch_words > c->label_words,
        .samples = c->samples,
        .skips = c->skips,
        .augment = c->augment,
    };

    for (int i = 0; i < loader->pace.most; i++) {
        loader->workers[i] = (struct worker){.loader = loader, .index = i};
        DP_TRY(dp_row_maker_create(&config, &loader->workers[i].maker));
    }
    return DP_OK;
}

static dp_status start_threads(struct dp_loader *loader)
{
    for (int i = 0; i < loader->pace.most; i++) {
        struct worker *worker = &loader->workers[i];
        DP_TRY(dp_thread_start(&worker->thread, worker_run, worker, "dp-loader", "loads batches"));
        worker->started = true;
    }
    return DP_OK;
}

static dp_status open_loader(struct dp_loader *loader)
{
    const struct dp_loader_config *c = &loader->config;

    loader->workers = dp_zalloc((size_t)loader->pace.most, sizeof(*loader->workers));
    if (loader->workers == NULL || !slots_alloc(loader)) {
        return DP_FAIL(DP_ERR_NOMEM, "loader of batches of %zu rows of %zu bytes over %d ranks",
                       c->global_batch, c->sample_bytes, c->ranks);
    }
    DP_TRY(make_makers(loader));
    return c->cached ? fill_here(loader) : start_threads(loader);
}

/* What the configuration leaves open. */
static void choose(struct dp_loader *loader)
{
    struct dp_loader_config *c = &loader->config;
    const size_t fitting = TAKEN_BYTES / c->sample_bytes;
    const int most = c->workers > 0 ? c->workers : c->workers_most;

    c->label_words = c->label_words == 0 ? 1 : c->label_words;
    c->batch_words = c->batch_words == 0 ? c->label_words : c->batch_words;
    c->depth = c->depth == 0 ? DP_LOADER_DEPTH : c->depth;
    if (c->cached) {
        c->depth = 1; /* filled here, once: there is nothing to do for a thread */
    }
    loader->pace.most = c->cached || most < 1 ? 1 : most;
    loader->pace.active = c->workers > 0 || c->device != NULL ? loader->pace.most : 1;
    loader->taken_at_once = fitting > 1 ? fitting : 1;
    loader->steps_per_epoch = dp_steps_per_epoch(c->count, c->global_batch, c->drop_last);
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
    (void)pthread_cond_init(&loader->has_work, NULL);
    loader->config = *config;
    choose(loader);
    status = open_loader(loader);
    if (status != DP_OK) {
        dp_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return DP_OK;
}

static void end_threads(struct dp_loader *loader)
{
    (void)pthread_mutex_lock(&loader->mutex);
    loader->stopping = true;
    (void)pthread_cond_broadcast(&loader->has_work);
    (void)pthread_mutex_unlock(&loader->mutex);
    for (int i = 0; loader->workers != NULL && i < loader->pace.most; i++) {
        if (loader->workers[i].started) {
            (void)pthread_join(loader->workers[i].thread, NULL);
        }
        dp_row_maker_destroy(loader->workers[i].maker);
    }
}

void dp_loader_destroy(struct dp_loader *loader)
{
    if (loader == NULL) {
        return;
    }
    end_threads(loader);
    if (loader->memory != NULL && loader->config.device != NULL) {
        loader->config.device->unpin(loader->memory);
    }
    dp_free(loader->memory);
    dp_free(loader->slots);
    dp_free(loader->workers);
    (void)pthread_cond_destroy(&loader->has_work);
    (void)pthread_cond_destroy(&loader->was_filled);
    (void)pthread_mutex_destroy(&loader->mutex);
    dp_free(loader);
}

/* ---- giving out ---- */

/* How many threads are to work from now on. */
static void keep_pace(struct dp_loader *loader, uint64_t wait_ns, uint64_t step_ns)
{
    const int before = loader->pace.active;

    if (loader->config.workers == 0) {
        (void)dp_pace_note(&loader->pace, wait_ns, step_ns, loader->work_ns - loader->noted_ns);
        loader->noted_ns = loader->work_ns;
    }
    if (loader->pace.active > before) {
        (void)pthread_cond_broadcast(&loader->has_work);
    }
}

/* Waits for batch k, and lets go of those before. */
static void await(struct dp_loader *loader, uint64_t k)
{
    const uint64_t begin_ns = dp_now_ns();
    const uint64_t step_ns = loader->given_ns > 0 ? begin_ns - loader->given_ns : 0;

    (void)pthread_mutex_lock(&loader->mutex);
    loader->released = k; /* the caller is done with all batches before this one */
    (void)pthread_cond_broadcast(&loader->has_work);
    while (loader->filled <= k) {
        (void)pthread_cond_wait(&loader->was_filled, &loader->mutex);
    }
    loader->given_ns = dp_now_ns();
    loader->wait_ns += loader->given_ns - begin_ns;
    if (k >= (uint64_t)loader->config.depth) { /* before, threads are ahead of nobody */
        keep_pace(loader, loader->given_ns - begin_ns, step_ns);
    }
    (void)pthread_mutex_unlock(&loader->mutex);
}

dp_status dp_loader_next(struct dp_loader *loader, struct dp_batch *out)
{
    const struct dp_loader_config *c = &loader->config;
    const uint64_t k = loader->taken;
    const struct slot *slot = slot_of(loader, k);

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
    await(loader, k);
    *out = slot->batch;
    if (slot->status != DP_OK) {
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", slot->error);
    }
    return slot->status;
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
        filled = loader->filled > k && slot_of(loader, k)->status == DP_OK;
        (void)pthread_mutex_unlock(&loader->mutex);
    }
    if (filled) {
        *out = slot_of(loader, c->cached ? 0 : k)->batch;
        out->step = c->first_step + k;
        out->epoch = out->step / loader->steps_per_epoch;
    }
    return filled;
}

void dp_loader_report(struct dp_loader *loader, struct dp_loader_report *out)
{
    (void)pthread_mutex_lock(&loader->mutex);
    *out = (struct dp_loader_report){
        .stages = loader->times, .wait_ns = loader->wait_ns, .workers = loader->pace.active};
    (void)pthread_mutex_unlock(&loader->mutex);
}
