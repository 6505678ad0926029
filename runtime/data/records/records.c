#include "runtime/data/records/records.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <xxhash.h>

#include "base/mem.h"
#include "runtime/data/data_file.h"

struct dp_records {
    struct dp_records_index_file file;
    struct dp_data_file *shards;     /* owned; [shard_count] */
    struct dp_records_block *blocks; /* owned: those to train on, then those to test with */
    size_t begin[DP_SETS + 1];       /* where the blocks of each set begin */
};

enum { HASHED_AT_ONCE = 1 << 20, OTHER_FILES = 64 };

static const char *set_text(enum dp_set set)
{
    return set == DP_SET_TRAIN ? "training" : "test";
}

/* ---- opening ---- */

static dp_status refuse_shard(const struct dp_data_file *file, dp_status status,
                              const struct dp_problem *problem)
{
    return DP_FAIL(status, "%s: %s", file->path, problem->text);
}

static dp_status open_shard(struct dp_records *r, const char *dir, size_t number)
{
    const struct dp_records_shard *said = &r->file.index.shards[number];
    struct dp_data_file *file = &r->shards[number];
    char name[DP_RECORDS_NAME];

    dp_records_shard_name(name, number);
    if (!dp_data_file_exists(dir, name)) {
        return DP_FAIL(DP_ERR_NOINPUT,
                       "%s/%s: is missing, with %llu samples: copy it there, or "
                       "pack again",
                       dir, name, (unsigned long long)said->samples);
    }
    DP_TRY(dp_data_file_open(file, dir, name));
    if (file->bytes != said->bytes) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: has %zu bytes, " DP_RECORDS_INDEX " says %llu: copy it "
                       "again, or pack again",
                       file->path, file->bytes, (unsigned long long)said->bytes);
    }
    return DP_OK;
}

/* The head and the end of a shard. */
static dp_status read_ends(struct dp_records *r, size_t number, struct dp_shard_foot *foot)
{
    const struct dp_records_shard *said = &r->file.index.shards[number];
    const struct dp_data_file *file = &r->shards[number];
    uint8_t bytes[DP_SHARD_FOOT];
    struct dp_problem problem;
    dp_status status;

    DP_TRY(dp_data_file_read(file, 0, bytes, DP_SHARD_HEAD));
    status = dp_shard_head_check(bytes, (uint32_t)number, said->set, &problem);
    if (status != DP_OK) {
        return refuse_shard(file, status, &problem);
    }
    DP_TRY(dp_data_file_read(file, file->bytes - DP_SHARD_FOOT, bytes, DP_SHARD_FOOT));
    status = dp_shard_foot_read(bytes, file->bytes, foot, &problem);
    if (status != DP_OK) {
        return refuse_shard(file, status, &problem);
    }
    if (foot->samples != said->samples || foot->blocks != said->blocks ||
        foot->table_hash != said->table_hash) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: is not the shard that " DP_RECORDS_INDEX " describes, "
                       "with %llu samples: copy all of the folder again, or pack again",
                       file->path, (unsigned long long)said->samples);
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
        status = DP_FAIL(DP_ERR_NOMEM, "%s: %zu blocks", r->shards[number].path, count);
    }
    if (status == DP_OK) {
        status = dp_data_file_read(&r->shards[number], (size_t)foot->table_at, bytes,
                                   count * DP_SHARD_ROW);
    }
    if (status == DP_OK && dp_shard_table_read(bytes, foot, table, &problem) != DP_OK) {
        status = refuse_shard(&r->shards[number], DP_ERR_DATA, &problem);
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

/* A file stays open for each shard. */
static void allow_files(size_t shards)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < shards + OTHER_FILES) {
        limit.rlim_cur =
            limit.rlim_max < shards + OTHER_FILES ? limit.rlim_max : shards + OTHER_FILES;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* else opening a file says what is wrong */
    }
}

/* So many blocks fit into the shards, whatever the index says. */
static dp_status make_blocks(struct dp_records *r, const char *dir)
{
    const struct dp_records_index *index = &r->file.index;
    uint64_t blocks = 0;

    for (size_t i = 0; i < index->shard_count; i++) {
        if (index->shards[i].blocks > index->shards[i].bytes / DP_SHARD_ROW) {
            return DP_FAIL(DP_ERR_DATA, "%s: says more blocks than fit into a shard: pack again",
                           dir);
        }
        blocks += index->shards[i].blocks;
    }
    r->blocks = dp_zalloc((size_t)blocks, sizeof(*r->blocks));
    return r->blocks != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "%s: list of its blocks", dir);
}

static dp_status open_all(struct dp_records *r, const char *dir)
{
    const struct dp_records_index *index = &r->file.index;
    uint64_t first[DP_SETS] = {0, 0};
    struct dp_shard_foot foot;
    size_t at = 0;

    allow_files(index->shard_count);
    r->shards = dp_zalloc(index->shard_count, sizeof(*r->shards));
    if (r->shards == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: %zu shards", dir, index->shard_count);
    }
    for (size_t i = 0; i < index->shard_count; i++) {
        DP_TRY(open_shard(r, dir, i));
    }
    DP_TRY(make_blocks(r, dir));
    for (size_t i = 0; i < index->shard_count; i++) {
        DP_TRY(read_ends(r, i, &foot));
        DP_TRY(read_table(r, i, &foot, at, &first[index->shards[i].set]));
        at += (size_t)foot.blocks;
        r->begin[DP_SET_TEST] = index->shards[i].set == DP_SET_TRAIN ? at : r->begin[DP_SET_TEST];
    }
    r->begin[DP_SETS] = at;
    return DP_OK;
}

dp_status dp_records_open(const char *dir, struct dp_records **out)
{
    struct dp_records *r = dp_zalloc(1, sizeof(*r));
    dp_status status;

    if (r == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%s: records", dir);
    }
    status = dp_records_index_read(dir, &r->file);
    status = status == DP_OK ? open_all(r, dir) : status;
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
    for (size_t i = 0; r->shards != NULL && i < r->file.index.shard_count; i++) {
        dp_data_file_close(&r->shards[i]);
    }
    dp_free(r->shards);
    dp_free(r->blocks);
    dp_records_index_release(&r->file);
    dp_free(r);
}

const struct dp_records_index *dp_records_index(const struct dp_records *r)
{
    return &r->file.index;
}

const char *dp_records_path(const struct dp_records *r, size_t shard)
{
    return r->shards[shard].path;
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
                   r->shards[b->shard].path, b->number, (unsigned long long)b->first,
                   (unsigned long long)(b->first + b->block.samples - 1),
                   set_text(r->file.index.shards[b->shard].set), text);
}

dp_status dp_records_take(const struct dp_records *r, const struct dp_records_block *b,
                          struct dp_buffer *stored)
{
    if (!dp_buffer_reserve(stored, b->block.stored)) {
        return refuse_block(r, b, DP_ERR_NOMEM, "reading");
    }
    return dp_data_file_read(&r->shards[b->shard], (size_t)b->block.at, stored->data,
                             b->block.stored);
}

dp_status dp_records_check(const struct dp_records *r, const struct dp_records_block *b,
                           const struct dp_buffer *stored)
{
    return dp_shard_hash(stored->data, b->block.stored) == b->block.hash
               ? DP_OK
               : refuse_block(r, b, DP_ERR_DATA,
                              "is damaged, its hash is another: copy the file again, or pack "
                              "again");
}

dp_status dp_records_expand(const struct dp_records *r, const struct dp_records_block *b,
                            const struct dp_buffer *stored, struct dp_buffer *memory,
                            struct dp_block_view *view)
{
    struct dp_problem problem;
    const struct dp_block_form form = dp_records_form(&r->file.index);
    const uint8_t *raw;
    dp_status status = dp_block_unpack(&b->block, stored->data, memory, &raw, &problem);

    status = status == DP_OK ? dp_block_open(&b->block, raw, &form, view, &problem) : status;
    return status == DP_OK ? DP_OK : refuse_block(r, b, status, problem.text);
}

dp_status dp_records_read(const struct dp_records *r, const struct dp_records_block *b,
                          struct dp_buffer *stored, struct dp_buffer *memory,
                          struct dp_block_view *view)
{
    DP_TRY(dp_records_take(r, b, stored));
    DP_TRY(dp_records_check(r, b, stored));
    return dp_records_expand(r, b, stored, memory, view);
}

dp_status dp_records_view(const struct dp_records *r, const struct dp_records_block *b,
                          const struct dp_buffer *stored, const struct dp_buffer *memory,
                          struct dp_block_view *view)
{
    const struct dp_block_form form = dp_records_form(&r->file.index);
    const uint8_t *raw = dp_block_unpacked(&b->block, stored->data, memory);
    struct dp_problem problem;

    return dp_block_open(&b->block, raw, &form, view, &problem);
}

void dp_records_name(const struct dp_records *r, enum dp_set set, uint64_t row, char *text,
                     size_t size)
{
    const struct dp_records_block *b = dp_records_block(r, set, dp_records_find(r, set, row));

    (void)snprintf(text, size,
                   "%s: block %u, sample %llu of it (sample %llu of the %s set, counted from 0)",
                   r->shards[b->shard].path, b->number, (unsigned long long)(row - b->first),
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

void dp_records_read_ahead(const struct dp_records *r, const struct dp_records_block *b,
                           size_t bytes)
{
    const off_t from = (off_t)(b->block.at + b->block.stored);

    (void)posix_fadvise(r->shards[b->shard].fd, from, (off_t)bytes, POSIX_FADV_WILLNEED);
}

/* ---- a whole shard ---- */

dp_status dp_records_hash_shard(const struct dp_records *r, size_t shard, char hash[DP_HASH_TEXT])
{
    const struct dp_data_file *file = &r->shards[shard];
    XXH3_state_t *state = XXH3_createState();
    uint8_t *piece = dp_zalloc(1, HASHED_AT_ONCE);
    dp_status status = DP_OK;

    if (state == NULL || piece == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "%s: hash", file->path);
    } else {
        (void)XXH3_128bits_reset(state);
    }
    for (size_t at = 0; status == DP_OK && at < file->bytes; at += HASHED_AT_ONCE) {
        const size_t left = file->bytes - at;
        const size_t count = left < HASHED_AT_ONCE ? left : HASHED_AT_ONCE;
        status = dp_data_file_read(file, at, piece, count);
        (void)XXH3_128bits_update(state, piece, count);
    }
    if (status == DP_OK) {
        dp_hash_print(state, hash);
    }
    dp_free(piece);
    (void)XXH3_freeState(state);
    return status;
}
