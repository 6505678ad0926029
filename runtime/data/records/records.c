#include "runtime/data/records/records.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

struct dp_records {
    struct dp_shard_store_config config;
    struct dp_shard_store *store; /* owned */
    struct dp_records_index_file file;
    struct dp_records_block *blocks; /* owned: those to train on, then those to test with */
    size_t begin[DP_SETS + 1];       /* where the blocks of each set begin */
};

enum { HASHED_AT_ONCE = 1 << 20 };

static const char *set_text(enum dp_set set)
{
    return set == DP_SET_TRAIN ? "training" : "test";
}

/* ---- opening ---- */

static dp_status refuse_shard(const struct dp_records *r, size_t number, dp_status status,
                              const struct dp_problem *problem)
{
    return DP_FAIL(status, "%s: %s", dp_records_path(r, number), problem->text);
}

/* What is read once. */
static dp_status read_all(const struct dp_records *r, size_t shard, bool end, uint64_t at,
                          void *out, size_t bytes)
{
    size_t got;

    DP_TRY(dp_shard_store_read(r->store, shard, end, at, out, bytes, &got));
    return got == bytes
               ? DP_OK
               : DP_FAIL(DP_ERR_DATA,
                         "%s: ends before byte %llu, it was longer when it was opened: copy "
                         "it again, or pack again",
                         dp_records_path(r, shard), (unsigned long long)at + bytes);
}

/* The head and the end of a shard. */
static dp_status read_ends(struct dp_records *r, size_t number, struct dp_shard_foot *foot)
{
    const struct dp_records_shard *said = &r->file.index.shards[number];
    uint8_t bytes[DP_SHARD_FOOT];
    struct dp_problem problem;
    dp_status status;

    if (!dp_shard_store_remote(r->store)) { /* else copies are checked as a whole */
        DP_TRY(read_all(r, number, true, 0, bytes, DP_SHARD_HEAD));
        status = dp_shard_head_check(bytes, (uint32_t)number, said->set, &problem);
        if (status != DP_OK) {
            return refuse_shard(r, number, status, &problem);
        }
    }
    DP_TRY(read_all(r, number, true, said->bytes - DP_SHARD_FOOT, bytes, DP_SHARD_FOOT));
    status = dp_shard_foot_read(bytes, said->bytes, foot, &problem);
    if (status != DP_OK) {
        return refuse_shard(r, number, status, &problem);
    }
    if (foot->samples != said->samples || foot->blocks != said->blocks ||
        foot->table_hash != said->table_hash) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: is not the shard that " DP_RECORDS_INDEX " describes, "
                       "with %llu samples: copy all of the folder again, or pack again",
                       dp_records_path(r, number), (unsigned long long)said->samples);
    }
    return DP_OK;
}

/* The blocks of a shard go to blocks[at]. */
static dp_status read_table(struct dp_records *r, size_t number, const struct dp_shard_foot *foot,
                            size_t at, uint64_t *first)
{
    const size_t count = (size_t)foot->blocks;
    struct dp_shard_block *table = dp_zalloc(count, sizeof(*table));
    uint8_t *bytes = dp_zalloc(count, DP_SHARD_ROW);
    struct dp_problem problem;
    dp_status status = DP_OK;

    if (table == NULL || bytes == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "%s: %zu blocks", dp_records_path(r, number), count);
    }
    if (status == DP_OK) {
        status = read_all(r, number, true, foot->table_at, bytes, count * DP_SHARD_ROW);
    }
    if (status == DP_OK && dp_shard_table_read(bytes, foot, table, &problem) != DP_OK) {
        status = refuse_shard(r, number, DP_ERR_DATA, &problem);
    }
    for (size_t i = 0; status == DP_OK && i < count; i++) {
        r->blocks[at + i] =
            (struct dp_records_block){table[i], (uint32_t)number, (uint32_t)i, *first};
        *first += table[i].samples;
    }
    dp_free(bytes);
    dp_free(table);
    return status;
}

/* So many blocks fit into the shards, whatever the index says. */
static dp_status make_blocks(struct dp_records *r)
{
    const struct dp_records_index *index = &r->file.index;
    uint64_t blocks = 0;

    for (size_t i = 0; i < index->shard_count; i++) {
        if (index->shards[i].blocks > index->shards[i].bytes / DP_SHARD_ROW) {
            return DP_FAIL(DP_ERR_DATA, "%s: says more blocks than fit into a shard: pack again",
                           r->config.dir);
        }
        blocks += index->shards[i].blocks;
    }
    r->blocks = dp_zalloc((size_t)blocks, sizeof(*r->blocks));
    return r->blocks != NULL ? DP_OK
                             : DP_FAIL(DP_ERR_NOMEM, "%s: list of its blocks", r->config.dir);
}

static dp_status open_all(struct dp_records *r)
{
    const struct dp_records_index *index = &r->file.index;
    uint64_t first[DP_SETS] = {0, 0};
    struct dp_shard_foot foot;
    size_t at = 0;

    DP_TRY(dp_shard_store_begin(r->store, index));
    DP_TRY(make_blocks(r));
    for (size_t i = 0; i < index->shard_count; i++) {
        DP_TRY(read_ends(r, i, &foot));
        DP_TRY(read_table(r, i, &foot, at, &first[index->shards[i].set]));
        at += (size_t)foot.blocks;
        r->begin[DP_SET_TEST] = index->shards[i].set == DP_SET_TRAIN ? at : r->begin[DP_SET_TEST];
    }
    r->begin[DP_SETS] = at;
    return DP_OK;
}

dp_status dp_records_open(const struct dp_shard_store_config *config, struct dp_records **out)
{
    struct dp_records *r = dp_zalloc(1, sizeof(*r));
    dp_status status;

    if (r == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: records", config->dir);
    }
    r->config = *config;
    status = dp_shard_store_open(&r->config, &r->store);
    status = status == DP_OK ? dp_shard_store_index(r->store, &r->file) : status;
    status = status == DP_OK ? open_all(r) : status;
    if (status != DP_OK) {
        dp_records_close(r);
        return status;
    }
    *out = r;
    return DP_OK;
}

void dp_records_close(struct dp_records *r)
{
    if (r == NULL) {
        return;
    }
    dp_shard_store_close(r->store);
    dp_free(r->blocks);
    dp_records_index_release(&r->file);
    dp_free(r);
}

const struct dp_records_index *dp_records_index(const struct dp_records *r)
{
    return &r->file.index;
}

uint64_t dp_records_copied(const struct dp_records *r)
{
    return dp_shard_store_copied(r->store);
}

const char *dp_records_path(const struct dp_records *r, size_t shard)
{
    return dp_shard_store_path(r->store, shard);
}

/* ---- blocks ---- */

size_t dp_records_blocks(const struct dp_records *r, enum dp_set set)
{
    return r->begin[set + 1] - r->begin[set];
}

const struct dp_records_block *dp_records_block(const struct dp_records *r, enum dp_set set,
                                                size_t i)
{
    return &r->blocks[r->begin[set] + i];
}

size_t dp_records_find(const struct dp_records *r, enum dp_set set, uint64_t row)
{
    size_t low = 0, high = dp_records_blocks(r, set) - 1;

    while (low < high) { /* the last block that does not begin after `row` */
        const size_t middle = low + (high - low + 1) / 2;
        if (dp_records_block(r, set, middle)->first <= row) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static dp_status refuse_block(const struct dp_records *r, const struct dp_records_block *b,
                              dp_status status, const char *text)
{
    return DP_FAIL(status, "%s: block %u (samples %llu to %llu of the %s set, counted from 0): %s",
                   dp_records_path(r, b->shard), b->number, (unsigned long long)b->first,
                   (unsigned long long)(b->first + b->block.samples - 1),
                   set_text(r->file.index.shards[b->shard].set), text);
}

dp_status dp_records_reserve(const struct dp_records *r, const struct dp_records_block *b,
                             struct dp_buffer *stored)
{
    return dp_buffer_reserve(stored, b->block.stored) ? DP_OK
                                                      : refuse_block(r, b, DP_ERR_NOMEM, "reading");
}

dp_status dp_records_take(const struct dp_records *r, const struct dp_records_block *b,
                          void *stored)
{
    char text[DP_PROBLEM_BYTES];
    size_t got;

    DP_TRY(
        dp_shard_store_read(r->store, b->shard, false, b->block.at, stored, b->block.stored, &got));
    if (got == b->block.stored) {
        return DP_OK;
    }
    (void)snprintf(
        text, sizeof(text),
        "the file ends before byte %llu, it was longer when the run began: copy it again, "
        "or pack again",
        (unsigned long long)b->block.at + b->block.stored);
    return refuse_block(r, b, DP_ERR_DATA, text);
}

dp_status dp_records_check(const struct dp_records *r, const struct dp_records_block *b,
                           const void *stored)
{
    return dp_shard_hash(stored, b->block.stored) == b->block.hash
               ? DP_OK
               : refuse_block(r, b, DP_ERR_DATA,
                              "is damaged, its hash is another: copy the file again, or pack "
                              "again");
}

dp_status dp_records_expand(const struct dp_records *r, const struct dp_records_block *b,
                            const void *stored, struct dp_buffer *memory,
                            struct dp_block_view *view)
{
    struct dp_problem problem;
    const struct dp_block_form form = dp_records_form(&r->file.index);
    const uint8_t *raw;
    dp_status status = dp_block_unpack(&b->block, stored, memory, &raw, &problem);

    status = status == DP_OK ? dp_block_open(&b->block, raw, &form, view, &problem) : status;
    return status == DP_OK ? DP_OK : refuse_block(r, b, status, problem.text);
}

static dp_status take_and_check(const struct dp_records *r, const struct dp_records_block *b,
                                void *stored)
{
    DP_TRY(dp_records_take(r, b, stored));
    return dp_records_check(r, b, stored);
}

dp_status dp_records_take_whole(const struct dp_records *r, const struct dp_records_block *b,
                                void *stored)
{
    struct dp_log_capture capture;
    dp_status status;
    bool deleted;

    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = take_and_check(r, b, stored);
    if (status != DP_ERR_DATA || !dp_shard_store_drop(r->store, b->shard, &deleted)) {
        dp_log_capture_end(&capture, DP_LOG_PRINT);
        return status;
    }
    dp_log_capture_end(&capture, DP_LOG_DROP);
    if (deleted) { /* once a host */
        DP_WARN("%s: its copy in data.local_cache was damaged: it is made again",
                dp_records_path(r, b->shard));
    }
    return take_and_check(r, b, stored);
}

dp_status dp_records_read(const struct dp_records *r, const struct dp_records_block *b,
                          struct dp_buffer *stored, struct dp_buffer *memory,
                          struct dp_block_view *view)
{
    DP_TRY(dp_records_reserve(r, b, stored));
    DP_TRY(dp_records_take_whole(r, b, stored->data));
    return dp_records_expand(r, b, stored->data, memory, view);
}

dp_status dp_records_unpack_to(const struct dp_records *r, const struct dp_records_block *b,
                               const void *stored, struct dp_buffer *memory, uint8_t *out)
{
    struct dp_problem problem;
    const dp_status status = dp_block_unpack_to(&b->block, stored, memory, out, &problem);

    return status == DP_OK ? DP_OK : refuse_block(r, b, status, problem.text);
}

dp_status dp_records_view(const struct dp_records *r, const struct dp_records_block *b,
                          const uint8_t *raw, struct dp_block_view *view)
{
    const struct dp_block_form form = dp_records_form(&r->file.index);
    struct dp_problem problem;
    const dp_status status = dp_block_open(&b->block, raw, &form, view, &problem);

    return status == DP_OK ? DP_OK : refuse_block(r, b, status, problem.text);
}

void dp_records_name(const struct dp_records *r, enum dp_set set, uint64_t row, char *text,
                     size_t size)
{
    const struct dp_records_block *b = dp_records_block(r, set, dp_records_find(r, set, row));

    (void)snprintf(text, size,
                   "%s: block %u, sample %llu of it (sample %llu of the %s set, counted from 0)",
                   dp_records_path(r, b->shard), b->number, (unsigned long long)(row - b->first),
                   (unsigned long long)row, set_text(set));
}

dp_status dp_records_sample(const struct dp_records *r, const struct dp_records_block *b,
                            const struct dp_block_view *view, uint64_t row, struct dp_raw *raw)
{
    const struct dp_records_index *index = &r->file.index;
    const uint32_t i = (uint32_t)(row - b->first);
    char name[DP_PATH_BYTES];
    struct dp_problem problem;
    size_t bytes;
    const uint8_t *data = dp_block_sample(view, i, &bytes);

    *raw =
        (struct dp_raw){.kind = index->kind == DP_RECORDS_PICTURES ? DP_RAW_PICTURE : DP_RAW_ARRAY,
                        .data = data,
                        .bytes = bytes,
                        .shape = index->shape,
                        .label = dp_block_label(view, i, 0),
                        .targets = index->label_numbers > 1 ? dp_block_numbers(view, i) : NULL};
    if (index->kind != DP_RECORDS_PIXELS) {
        return DP_OK;
    }
    if (dp_block_pixels(data, bytes, &raw->shape, &problem) != DP_OK) {
        dp_records_name(r, index->shards[b->shard].set, row, name, sizeof(name));
        return DP_FAIL(DP_ERR_DATA, "%s: %s", name, problem.text);
    }
    raw->data = data + DP_BLOCK_PIXELS_HEAD;
    raw->bytes = bytes - DP_BLOCK_PIXELS_HEAD;
    return DP_OK;
}

void dp_records_look(struct dp_records *r, bool looks)
{
    dp_shard_store_look(r->store, looks);
}

void dp_records_read_ahead(const struct dp_records *r, const struct dp_records_block *b,
                           size_t bytes)
{
    dp_shard_store_read_ahead(r->store, b->shard, b->block.at + b->block.stored, bytes);
}

/* ---- a whole shard ---- */

dp_status dp_records_hash_shard(const struct dp_records *r, size_t shard, char hash[DP_HASH_TEXT])
{
    const size_t whole = (size_t)r->file.index.shards[shard].bytes;
    XXH3_state_t *state = XXH3_createState();
    uint8_t *piece = dp_zalloc(1, HASHED_AT_ONCE);
    dp_status status = DP_OK;

    if (state == NULL || piece == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "%s: hash", dp_records_path(r, shard));
    } else {
        (void)XXH3_128bits_reset(state);
    }
    for (size_t at = 0; status == DP_OK && at < whole; at += HASHED_AT_ONCE) {
        const size_t left = whole - at;
        const size_t count = left < HASHED_AT_ONCE ? left : HASHED_AT_ONCE;
        status = read_all(r, shard, false, at, piece, count);
        (void)XXH3_128bits_update(state, piece, count);
    }
    if (status == DP_OK) {
        dp_hash_print(state, hash);
    }
    dp_free(piece);
    (void)XXH3_freeState(state);
    return status;
}
