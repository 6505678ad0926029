#include "runtime/data/stream/test_rows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/system/worker.h"
#include "runtime/data/row_print.h"
#include "runtime/data/sample_reader.h"

enum { ERROR_BYTES = 1024 };

/* One that reads: a user's own thread, or a helper's. */
struct hand {
    struct dp_test_rows *rows;
    struct dp_sample_reader *reader; /* owned */
    struct dp_worker *helper;        /* owned; NULL: a user's own thread */
};

/* What a user has taken. */
struct taken {
    struct dp_buffer images, labels;
};

struct dp_test_rows {
    struct dp_test_rows_config config;
    struct hand *hands;  /* owned; [hand_count]; NULL: rows lie in memory */
    struct taken *taken; /* owned; [users] */
    int hand_count;
    /* What helpers read now. */
    size_t first, count;
    atomic_size_t next;
    pthread_mutex_t mutex; /* of the lines that follow */
    size_t bad_row;        /* the first one so far; SIZE_MAX: none */
    dp_status failure;     /* why, and what is to be said */
    char error[ERROR_BYTES];
};

/* ---- reading ---- */

static void keep_failure(struct dp_test_rows *r, size_t row, dp_status status, const char *error)
{
    (void)pthread_mutex_lock(&r->mutex);
    if (row < r->bad_row) {
        r->bad_row = row;
        r->failure = status;
        (void)snprintf(r->error, sizeof(r->error), "%s", error);
    }
    (void)pthread_mutex_unlock(&r->mutex);
}

static dp_status read_row(struct hand *hand, size_t row, uint8_t *image, int32_t *label)
{
    const struct dp_test_rows_config *c = &hand->rows->config;
    struct dp_log_capture capture;
    size_t skipped = 0;
    dp_status status;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = c->skips ? dp_sample_reader_read_good(hand->reader, DP_SET_TEST, row, image, label,
                                                   &skipped)
                      : dp_sample_reader_read(hand->reader, DP_SET_TEST, row, image, label);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (status != DP_OK) {
        keep_failure(hand->rows, row, status, dp_log_captured(&capture));
    }
    return status;
}

/* Reads row after row of the first user's, until none is left. */
static dp_status read_along(void *context)
{
    struct hand *hand = context;
    struct dp_test_rows *r = hand->rows;
    const struct dp_test_rows_config *c = &r->config;
    dp_status status = DP_OK;
    size_t i;

    while (status == DP_OK && (i = atomic_fetch_add(&r->next, 1)) < r->count) {
        status =
            read_row(hand, r->first + i, (uint8_t *)r->taken->images.data + i * c->sample_bytes,
                     (int32_t *)r->taken->labels.data + i * c->label_words);
    }
    return status;
}

/* By all hands. */
static dp_status read_together(struct dp_test_rows *r, size_t first, size_t count)
{
    dp_status status, cause;

    r->first = first;
    r->count = count;
    atomic_store(&r->next, 0);
    for (int i = 1; i < r->hand_count; i++) {
        dp_worker_start(r->hands[i].helper);
    }
    cause = read_along(&r->hands[0]);
    for (int i = 1; i < r->hand_count; i++) {
        status = dp_worker_wait(r->hands[i].helper);
        cause = cause == DP_OK ? status : cause;
    }
    return cause;
}

static dp_status read_alone(struct dp_test_rows *r, int user, size_t first, size_t count)
{
    const struct dp_test_rows_config *c = &r->config;
    uint8_t *images = r->taken[user].images.data;
    int32_t *labels = r->taken[user].labels.data;

    for (size_t i = 0; i < count; i++) {
        DP_TRY(read_row(&r->hands[user], first + i, images + i * c->sample_bytes,
                        labels + i * c->label_words));
    }
    return DP_OK;
}

dp_status dp_test_rows_get(struct dp_test_rows *r, int user, size_t first, size_t count,
                           const uint8_t **images, const int32_t **labels)
{
    const struct dp_test_rows_config *c = &r->config;
    struct taken *taken;

    if (r->hands == NULL) {
        const struct dp_row_prints rows = {c->images,       c->labels,      c->count,
                                           c->sample_bytes, c->label_words, c->prints};
        DP_TRY(dp_row_prints_check(&rows, DP_SET_TEST, first, count));
        *images = c->images + first * c->sample_bytes;
        *labels = c->labels + first * c->label_words;
        return DP_OK;
    }
    taken = &r->taken[user];
    if (!dp_buffer_reserve(&taken->images, count * c->sample_bytes) ||
        !dp_buffer_reserve(&taken->labels, count * c->label_words * sizeof(int32_t))) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu test rows of %zu bytes", count, c->sample_bytes);
    }
    DP_TRY(c->users > 1 ? read_alone(r, user, first, count) : read_together(r, first, count));
    *images = taken->images.data;
    *labels = taken->labels.data;
    return DP_OK;
}

dp_status dp_test_rows_failure(const struct dp_test_rows *r, const char **error)
{
    *error = r != NULL ? r->error : "";
    return r != NULL ? r->failure : DP_OK;
}

size_t dp_test_rows_count(const struct dp_test_rows *r)
{
    return r->config.count;
}

/* ---- making and releasing ---- */

static dp_status make_hands(struct dp_test_rows *r)
{
    const struct dp_test_rows_config *c = &r->config;

    r->hand_count = c->users > 1 ? c->users : c->threads;
    r->hands = dp_zalloc((size_t)r->hand_count, sizeof(*r->hands));
    r->taken = dp_zalloc((size_t)c->users, sizeof(*r->taken));
    if (r->hands == NULL || r->taken == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "readers of test rows");
    }
    for (int i = 0; i < r->hand_count; i++) {
        struct hand *hand = &r->hands[i];
        const struct dp_worker_config config = {
            .name = "dp-decode", .task = "reads test rows", .run = read_along, .context = hand};
        hand->rows = r;
        DP_TRY(dp_sample_reader_create(c->samples, &hand->reader));
        dp_sample_reader_pass(hand->reader, true);
        if (c->users == 1 && i > 0) {
            DP_TRY(dp_worker_create(&config, &hand->helper));
        }
    }
    return DP_OK;
}

dp_status dp_test_rows_create(const struct dp_test_rows_config *config, struct dp_test_rows **out)
{
    struct dp_test_rows *r = dp_zalloc(1, sizeof(*r));
    dp_status status;

    if (r == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "test rows");
    }
    r->config = *config;
    r->bad_row = SIZE_MAX;
    (void)pthread_mutex_init(&r->mutex, NULL);
    status = config->images != NULL ? DP_OK : make_hands(r);
    if (status != DP_OK) {
        dp_test_rows_destroy(r);
        return status;
    }
    *out = r;
    return DP_OK;
}

void dp_test_rows_destroy(struct dp_test_rows *r)
{
    if (r == NULL) {
        return;
    }
    for (int i = 0; r->hands != NULL && i < r->hand_count; i++) {
        dp_worker_destroy(r->hands[i].helper);
        dp_sample_reader_destroy(r->hands[i].reader);
    }
    for (int i = 0; r->taken != NULL && i < r->config.users; i++) {
        dp_buffer_release(&r->taken[i].images);
        dp_buffer_release(&r->taken[i].labels);
    }
    (void)pthread_mutex_destroy(&r->mutex);
    dp_free(r->hands);
    dp_free(r->taken);
    dp_free(r);
}
