#include "runtime/data/load_samples.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/thread.h"
#include "base/trace.h"
#include "runtime/data/sample_reader.h"

enum {
    TAKEN_AT_ONCE = 16,    /* samples; neighbours often come from one block of a file */
    WARNINGS_MOST = 5,     /* of one rank */
    REPORT_NS = 500000000, /* between two calls of `progress` */
    ERROR_BYTES = 1024
};

/* What the threads of a rank share. */
struct crew {
    const struct dp_load_job *job;
    size_t train, all; /* samples to train on; of both sets */
    pthread_mutex_t mutex;
    dp_status status; /* of the first bad sample, by place, and what there is to say about it */
    size_t place;
    char error[ERROR_BYTES];
    int warnings;
    char warned[ERROR_BYTES]; /* the last one */
};

struct hand {
    struct crew *crew;
    struct dp_sample_reader *reader; /* owned */
    pthread_t thread;
    bool started, reports;
    uint64_t reported_ns;
};

/* ---- bad samples ---- */

/* Keeps the smaller of both; 0 is none. */
static void lower(atomic_size_t *value, size_t place)
{
    size_t seen = atomic_load(value);

    while ((seen == 0 || place < seen) && !atomic_compare_exchange_weak(value, &seen, place)) {
    }
}

static void note_error(struct crew *crew, dp_status status, size_t place, const char *error)
{
    (void)pthread_mutex_lock(&crew->mutex);
    if (crew->place == 0 || place < crew->place) {
        crew->place = place;
        crew->status = status;
        (void)snprintf(crew->error, sizeof(crew->error), "%s", error);
    }
    (void)pthread_mutex_unlock(&crew->mutex);
    lower(&crew->job->state->first_bad, place);
}

static void mark_bad(struct crew *crew, size_t at, const char *error)
{
    crew->job->bad[at] = 1;
    atomic_fetch_add(&crew->job->state->bad, 1);
    (void)pthread_mutex_lock(&crew->mutex);
    /* All samples of a damaged block are bad for one reason. */
    if (crew->warnings < WARNINGS_MOST && strcmp(crew->warned, error) != 0) {
        (void)snprintf(crew->warned, sizeof(crew->warned), "%s", error);
        crew->warnings++;
        DP_WARN("%s; another one stands in its place%s", error,
                crew->warnings == WARNINGS_MOST ? ", and so it may be for others, without a word"
                                                : "");
    }
    (void)pthread_mutex_unlock(&crew->mutex);
}

/* ---- the work of a thread ---- */

static dp_status read_one(const struct hand *hand, size_t at)
{
    const struct crew *crew = hand->crew;
    const struct dp_load_job *job = crew->job;
    const enum dp_set set = at < crew->train ? DP_SET_TRAIN : DP_SET_TEST;
    const size_t i = set == DP_SET_TRAIN ? at : at - crew->train;
    const struct dp_samples_info *info = dp_samples_info(job->samples);
    const size_t bytes = dp_shape_bytes(&info->shape);

    return dp_sample_reader_read(hand->reader, set, i, job->out[set] + i * bytes,
                                 job->labels[set] + i * dp_label_words(info));
}

static void report(struct hand *hand)
{
    const struct dp_load_job *job = hand->crew->job;

    if (hand->reports && dp_now_ns() - hand->reported_ns >= REPORT_NS) {
        hand->reported_ns = dp_now_ns();
        job->progress(job->context, atomic_load(&job->state->done), hand->crew->all);
    }
}

/* Samples before the first bad one are read nevertheless: one of them may be bad, too, and then it
 * is the first. */
static bool goes_on(const struct dp_load_state *state, size_t at)
{
    const size_t first_bad = atomic_load(&state->first_bad);

    return first_bad == 0 || at + 1 < first_bad;
}

/* One sample. */
static void take_one(struct hand *hand, size_t at)
{
    struct crew *crew = hand->crew;
    struct dp_log_capture capture;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = read_one(hand, at);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (status == DP_ERR_DATA && crew->job->bad != NULL) {
        mark_bad(crew, at, dp_log_captured(&capture));
    } else if (status != DP_OK) {
        note_error(crew, status, at + 1, dp_log_captured(&capture));
        return;
    }
    atomic_fetch_add(&crew->job->state->done, 1);
    dp_trace_beat();
    report(hand);
}

static void work(struct hand *hand)
{
    const size_t all = hand->crew->all;
    struct dp_load_state *state = hand->crew->job->state;
    size_t begin;

    do {
        begin = atomic_fetch_add(&state->next, TAKEN_AT_ONCE);
        for (size_t at = begin; at < all && at < begin + TAKEN_AT_ONCE; at++) {
            if (!goes_on(state, at)) {
                return;
            }
            take_one(hand, at);
        }
    } while (begin + TAKEN_AT_ONCE < all);
}

static void *work_aside(void *arg)
{
    work(arg);
    return NULL;
}

/* ---- the threads of a rank ---- */

static dp_status start(struct crew *crew, struct hand *hands, int count)
{
    for (int i = 0; i < count; i++) {
        hands[i].crew = crew;
        hands[i].reports = i == 0 && crew->job->progress != NULL;
        hands[i].reported_ns = dp_now_ns();
        DP_TRY(dp_sample_reader_create(crew->job->samples, &hands[i].reader));
    }
    for (int i = 1; i < count; i++) { /* the first one is this thread */
        DP_TRY(
            dp_thread_start(&hands[i].thread, work_aside, &hands[i], "dp-decode", "loads samples"));
        hands[i].started = true;
    }
    return DP_OK;
}

dp_status dp_load_samples(const struct dp_load_job *job, size_t *place)
{
    const struct dp_samples_info *info = dp_samples_info(job->samples);
    struct crew crew = {.job = job,
                        .train = info->count[DP_SET_TRAIN],
                        .all = info->count[DP_SET_TRAIN] + info->count[DP_SET_TEST],
                        .status = DP_OK};
    struct hand *hands = dp_zalloc((size_t)job->threads, sizeof(*hands));
    dp_status status;

    *place = 0;
    if (hands == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "threads that load samples");
    }
    (void)pthread_mutex_init(&crew.mutex, NULL);
    status = start(&crew, hands, job->threads);
    if (status == DP_OK) {
        work(&hands[0]);
    } else {
        lower(&job->state->first_bad, 1); /* the others need not go on */
        *place = 1;
    }
    for (int i = 0; i < job->threads; i++) {
        if (hands[i].started) {
            (void)pthread_join(hands[i].thread, NULL);
        }
        dp_sample_reader_destroy(hands[i].reader);
    }
    (void)pthread_mutex_destroy(&crew.mutex);
    dp_free(hands);
    if (status == DP_OK && crew.status != DP_OK) {
        status = crew.status;
        *place = crew.place;
        dp_log(DP_LOG_ERROR, __FILE__, __LINE__, "%s", crew.error);
    }
    return status;
}

/* The next sample from `at` on that is not bad, round and round; `count`: there is none. */
static size_t next_good(const uint8_t *bad, size_t at, size_t count)
{
    for (size_t k = 1; k < count; k++) {
        if (bad[(at + k) % count] == 0) {
            return (at + k) % count;
        }
    }
    return count;
}

bool dp_load_replace(const struct dp_load_job *job)
{
    const struct dp_samples_info *info = dp_samples_info(job->samples);
    const size_t bytes = dp_shape_bytes(&info->shape), words = dp_label_words(info);
    const uint8_t *bad = job->bad;

    for (int set = 0; set < DP_SETS; set++) {
        const size_t count = info->count[set];
        for (size_t at = 0; at < count; at++) {
            const size_t from = bad[at] != 0 ? next_good(bad, at, count) : at;
            if (from == count) {
                return false;
            }
            if (from != at) {
                memcpy(job->out[set] + at * bytes, job->out[set] + from * bytes, bytes);
                memcpy(job->labels[set] + at * words, job->labels[set] + from * words,
                       words * sizeof(int32_t));
            }
        }
        bad += count;
    }
    return true;
}
