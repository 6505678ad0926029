#include "runtime/run/dataset/guest_hosts.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/core/consistency.h"
#include "runtime/data/sample_reader.h"

enum { PIECE = 1 << 20 /* bytes of rows in a message */ };

static int first_reader(const struct dp_run_job *job)
{
    return dp_role_first(&job->world->roles, DP_ROLE_READ);
}

static bool is_first_reader(const struct dp_run_job *job)
{
    return job->world->all->rank == first_reader(job);
}

/* Whether a node has a rank of that role. */
static bool node_has(const struct dp_run_job *job, int node, enum dp_role role)
{
    const struct dp_group *all = job->world->all;

    for (int i = 0; i < all->size; i++) {
        if (all->node_of[i] == node && dp_role_of(&job->world->roles, i) == role) {
            return true;
        }
    }
    return false;
}

static int own_node(const struct dp_run_job *job)
{
    return job->world->all->node_of[job->world->all->rank];
}

bool dp_guest_may_be(const struct dp_run_job *job)
{
    return job->world->roles.count[DP_ROLE_READ] > 0 && !node_has(job, own_node(job), DP_ROLE_READ);
}

/* ---- what the set is ---- */

/* Collective: the first rank that reads describes it to all. */
static dp_status describe(struct dp_run_job *job, struct dp_samples **samples)
{
    struct dp_group *all = job->world->all;
    struct dp_samples_info info = {.count = {0}};
    char *text = NULL;
    size_t bytes = 0;
    dp_status status = DP_OK;

    if (is_first_reader(job)) {
        info = *dp_samples_info(*samples);
        status = dp_samples_words(*samples, &text, &bytes);
    }
    DP_TRY(dp_group_agree(all, status));
    status = dp_group_broadcast(all, &info, sizeof(info), first_reader(job));
    status = status == DP_OK ? dp_group_broadcast(all, &bytes, sizeof(bytes), first_reader(job))
                             : status;
    if (status == DP_OK && text == NULL) {
        text = dp_zalloc(1, bytes);
        status = text != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "what the data set is");
    }
    status = dp_group_agree(all, status);
    status = status == DP_OK ? dp_group_broadcast(all, text, bytes, first_reader(job)) : status;
    if (status == DP_OK && job->guests.here) {
        dp_samples_close(*samples);
        *samples = NULL;
        status = dp_samples_describe(&info, text, bytes, samples);
    }
    dp_free(text);
    return status;
}

/* Which ranks have found no files, and whether each could open the set, or need not. */
struct met {
    bool lacks, failed;
};

static bool is_tested(const struct dp_run_job *job, int node)
{
    return !job->config->train.eval_rank || node_has(job, node, DP_ROLE_EVALUATE);
}

/* Returns false where a rank has failed: then all leave. */
static bool count_guests(struct dp_run_job *job, const struct met *met)
{
    const struct dp_group *all = job->world->all;
    struct dp_guests *guests = &job->guests;
    bool failed = false;

    for (int i = 0; i < all->size; i++) {
        const bool tests = met[i].lacks && is_tested(job, all->node_of[i]);
        const bool here = all->node_of[i] == own_node(job);
        failed = failed || met[i].failed;
        guests->any = guests->any || met[i].lacks;
        guests->any_tests = guests->any_tests || tests;
        guests->here = guests->here || (met[i].lacks && here);
        guests->tests = guests->tests || (tests && here);
    }
    return !failed;
}

dp_status dp_guest_meet(struct dp_run_job *job, dp_status status, bool lacks,
                        struct dp_samples **samples)
{
    struct dp_group *all = job->world->all;
    const struct met mine = {lacks, status != DP_OK};
    struct met *met;
    dp_status gathered;
    bool whole = false;

    if (job->world->roles.count[DP_ROLE_READ] == 0) {
        return status;
    }
    met = dp_zalloc((size_t)all->size, sizeof(*met));
    gathered = dp_group_agree(all, met != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "list of ranks"));
    if (gathered == DP_OK) {
        gathered = dp_group_allgather(all, &mine, sizeof(mine), met);
    }
    if (gathered == DP_OK && met != NULL) {
        whole = count_guests(job, met);
    }
    dp_free(met);
    if (status == DP_OK && gathered == DP_OK && whole && job->guests.any) {
        return describe(job, samples);
    }
    return status != DP_OK ? status : gathered;
}

/* ---- rows to test with ---- */

/* Where their images begin, after their labels. */
static size_t images_at(size_t count, size_t words)
{
    return dp_round_up(count * words * sizeof(int32_t), DP_BLOCK);
}

size_t dp_guest_bytes(const struct dp_run_job *job, const struct dp_samples_info *info)
{
    const size_t count = info->count[DP_SET_TEST];

    return job->guests.tests
               ? images_at(count, dp_label_words(info)) + count * dp_shape_bytes(&info->shape)
               : 0;
}

dp_status dp_guest_tell(struct dp_run_job *job, struct dp_data_prints *prints, size_t *skipped)
{
    struct {
        struct dp_data_prints prints;
        size_t skipped;
    } said;

    if (!job->guests.any) {
        return DP_OK;
    }
    memset(&said, 0, sizeof(said));
    said.prints = *prints;
    said.skipped = *skipped;
    DP_TRY(dp_group_broadcast(job->world->all, &said, sizeof(said), first_reader(job)));
    if (job->guests.here) {
        *prints = said.prints;
        *skipped = said.skipped;
    }
    return DP_OK;
}

/* Some rows on their way. */
struct piece {
    uint8_t *images;
    int32_t *labels;
    size_t most; /* rows */
};

/* The first rank that reads. */
static dp_status fill(const struct dp_run_job *job, struct dp_sample_reader *reader, size_t first,
                      size_t count, size_t words, const struct piece *piece)
{
    const struct dp_dataset *d = &job->data;
    size_t skipped = 0;

    if (reader == NULL) {
        memcpy(piece->images, d->test_images + first * d->sample_bytes, count * d->sample_bytes);
        memcpy(piece->labels, d->test_labels + first * words, count * words * sizeof(int32_t));
        return DP_OK;
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t *image = piece->images + i * d->sample_bytes;
        int32_t *label = piece->labels + i * words;
        DP_TRY(d->skips ? dp_sample_reader_read_good(reader, DP_SET_TEST, first + i, image, label,
                                                     &skipped)
                        : dp_sample_reader_read(reader, DP_SET_TEST, first + i, image, label));
    }
    return DP_OK;
}

/* Collective. */
static dp_status send_piece(const struct dp_run_job *job, struct dp_sample_reader *reader,
                            size_t first, size_t count, size_t words, const struct piece *piece)
{
    struct dp_group *all = job->world->all;
    const size_t bytes = job->data.sample_bytes;
    struct dp_log_capture capture;
    dp_status status = DP_OK;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    if (is_first_reader(job)) {
        status = fill(job, reader, first, count, words, piece);
    }
    DP_TRY(dp_consistency_agree(all, status, &capture));
    DP_TRY(dp_group_broadcast(all, piece->images, count * bytes, first_reader(job)));
    DP_TRY(
        dp_group_broadcast(all, piece->labels, count * words * sizeof(int32_t), first_reader(job)));
    if (job->guests.tests && job->guests.rows.writer) {
        int32_t *labels = job->guests.rows.data;
        uint8_t *images = (uint8_t *)labels + images_at(job->data.test_count, words);
        memcpy(images + first * bytes, piece->images, count * bytes);
        memcpy(labels + first * words, piece->labels, count * words * sizeof(int32_t));
    }
    return DP_OK;
}

static dp_status send_all(const struct dp_run_job *job, struct dp_sample_reader *reader,
                          size_t words, const struct piece *piece)
{
    const size_t all = job->data.test_count;

    for (size_t first = 0; first < all; first += piece->most) {
        const size_t left = all - first;
        DP_TRY(
            send_piece(job, reader, first, left < piece->most ? left : piece->most, words, piece));
    }
    return dp_group_barrier(job->world->all);
}

static dp_status make_piece(const struct dp_run_job *job, struct dp_samples *samples, size_t words,
                            struct piece *piece, struct dp_sample_reader **reader)
{
    const size_t bytes = job->data.sample_bytes;

    piece->most = bytes < PIECE ? PIECE / bytes : 1;
    piece->images = dp_mem_arena(DP_MEM_DATA, piece->most * bytes);
    piece->labels = dp_mem_arena(DP_MEM_DATA, piece->most * words * sizeof(int32_t));
    if (piece->images == NULL || piece->labels == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu test rows of %zu bytes", piece->most, bytes);
    }
    return is_first_reader(job) && job->data.test_images == NULL
               ? dp_sample_reader_create(samples, reader)
               : DP_OK;
}

dp_status dp_guest_take_tests(struct dp_run_job *job, struct dp_samples *samples)
{
    const struct dp_samples_info *info = dp_samples_info(samples);
    const size_t words = dp_label_words(info), bytes = dp_guest_bytes(job, info);
    struct dp_node_memory *rows = &job->guests.rows;
    struct dp_sample_reader *reader = NULL;
    struct piece piece = {NULL, NULL, 0};
    dp_status status;

    if (!job->guests.any_tests) {
        return DP_OK;
    }
    DP_TRY(dp_group_node_memory(job->world->all, DP_MEM_DATA, bytes > 0 ? bytes : DP_BLOCK, rows));
    if (job->guests.tests) {
        job->data.test_labels = rows->data;
        job->data.test_images =
            (const uint8_t *)rows->data + images_at(job->data.test_count, words);
    }
    status = dp_group_agree(job->world->all, make_piece(job, samples, words, &piece, &reader));
    status = status == DP_OK ? send_all(job, reader, words, &piece) : status;
    dp_sample_reader_destroy(reader);
    dp_free(piece.images);
    dp_free(piece.labels);
    return status;
}
