#include "runtime/data/stream/raw_cache.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/thread.h"

enum { TAKEN_AT_ONCE = 16 /* units; neighbours lie together */ };

/* In front of the index: the first unit that nobody has taken. */
struct head {
    atomic_size_t measured, read;
};

/* [units + 1]: where each begins; before dp_raw_cache_place(): the sizes of all from the second on
 */
static uint64_t *places_of(void *index)
{
    return (uint64_t *)(void *)((struct head *)index + 1);
}

/* [units] */
static uint8_t *there_of(void *index, size_t units)
{
    return (uint8_t *)(places_of(index) + units + 1);
}

size_t dp_raw_cache_index_bytes(size_t units)
{
    return sizeof(struct head) + (units + 1) * sizeof(uint64_t) + units;
}

/* ---- several threads ---- */

struct work {
    const struct dp_samples *samples;
    void *index;
    uint8_t *bytes; /* NULL: units are measured */
    size_t units;
};

static void measure_one(const struct work *work, size_t u)
{
    places_of(work->index)[u + 1] = dp_samples_unit_bytes(work->samples, u);
}

static void read_one(const struct work *work, size_t u)
{
    const uint64_t *at = places_of(work->index);
    const size_t size = (size_t)(at[u + 1] - at[u]);
    struct dp_log_capture capture;

    if (size == 0) {
        return;
    }
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    there_of(work->index, work->units)[u] =
        dp_samples_read_unit(work->samples, u, size, work->bytes + at[u]) == DP_OK;
    dp_log_capture_end(&capture, DP_LOG_DROP);
}

static void *work_on(void *arg)
{
    const struct work *work = arg;
    struct head *head = work->index;
    atomic_size_t *next = work->bytes == NULL ? &head->measured : &head->read;
    size_t begin;

    while ((begin = atomic_fetch_add(next, TAKEN_AT_ONCE)) < work->units) {
        for (size_t u = begin; u < work->units && u < begin + TAKEN_AT_ONCE; u++) {
            if (work->bytes == NULL) {
                measure_one(work, u);
            } else {
                read_one(work, u);
            }
        }
    }
    return NULL;
}

static dp_status work_together(struct work *work, int threads)
{
    pthread_t *others = dp_zalloc((size_t)threads, sizeof(*others));
    dp_status status = others != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "threads that read");
    int started = 0;

    while (status == DP_OK && started < threads - 1) {
        status =
            dp_thread_start(&others[started], work_on, work, "dp-decode", "reads the data set");
        started += status == DP_OK;
    }
    if (status == DP_OK) {
        (void)work_on(work);
    }
    for (int i = 0; i < started; i++) {
        (void)pthread_join(others[i], NULL);
    }
    dp_free(others);
    return status;
}

/* ---- the two passes ---- */

dp_status dp_raw_cache_measure(const struct dp_samples *samples, void *index, int threads)
{
    struct work work = {samples, index, NULL, dp_samples_info(samples)->units};

    return work_together(&work, threads);
}

size_t dp_raw_cache_place(void *index, size_t units)
{
    uint64_t *at = places_of(index);

    for (size_t u = 0; u < units; u++) {
        at[u + 1] += at[u];
    }
    return (size_t)at[units];
}

size_t dp_raw_cache_bytes(const void *index, size_t units)
{
    const uint64_t *at = (const uint64_t *)(const void *)((const struct head *)index + 1);

    return (size_t)at[units];
}

dp_status dp_raw_cache_read(const struct dp_samples *samples, void *index, uint8_t *bytes,
                            int threads)
{
    struct work work = {samples, index, bytes, dp_samples_info(samples)->units};

    return work_together(&work, threads);
}

void dp_raw_cache_use(struct dp_samples *samples, const void *index, const uint8_t *bytes)
{
    const uint64_t *at = (const uint64_t *)(const void *)((const struct head *)index + 1);
    const size_t units = dp_samples_info(samples)->units;

    dp_samples_keep(samples, bytes, at, (const uint8_t *)(at + units + 1));
}
