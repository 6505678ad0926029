/*
 * source_records.c - samples that `ddp_data pack` has packed: see records/records.h.
 */
#include "base/log.h"
#include "base/trace.h"
#include "runtime/data/records/block_cache.h"
#include "runtime/data/records/records.h"
#include "runtime/data/source.h"

struct state {
    struct dp_records *records;    /* owned */
    struct dp_block_cache *shared; /* owned: blocks to train on; NULL: each fetcher has its own */
    bool shares_all;               /* also blocks of one sample */
};

/* Numbers are compared with as many outputs. Where there is no model, as in ddp_data, any number of
 * them will do. */
static dp_status check_labels(const struct dp_records_index *index,
                              const struct dp_source_config *config)
{
    const size_t numbers = index->label_numbers, outputs = config->targets;
    const bool model = config->input.count > 0;

    if (!model || numbers == 0 || numbers == outputs) {
        return DP_OK;
    }
    if (outputs == 0) {
        return DP_FAIL(DP_ERR_DATA,
                       "%s: its labels are %zu number%s each, no classes: set train.loss to mse or "
                       "binary_cross_entropy, and give the last dense layer units: %zu",
                       config->dir, numbers, dp_plural(numbers), numbers);
    }
    return DP_FAIL(
        DP_ERR_DATA,
        "%s: its labels are %zu number%s each, the model has %zu output%s: give its last "
        "dense layer units: %zu",
        config->dir, numbers, dp_plural(numbers), outputs, dp_plural(outputs), numbers);
}

static dp_status records_open(void *state, const struct dp_source_config *config,
                              struct dp_source_info *info)
{
    struct state *s = state;
    const struct dp_shard_store_config store = {.dir = config->dir,
                                                .patience_s = config->remote_wait_s,
                                                .cache = config->local_cache,
                                                .cache_bytes = config->local_cache_bytes};
    const struct dp_records_index *index;
    dp_status status;

    if (config->dir == NULL || config->dir[0] == '\0') {
        return DP_FAIL(DP_ERR_CONFIG,
                       "data.dir: source records needs the folder that ddp_data pack made");
    }
    DP_TRY(dp_records_open(&store, &s->records));
    index = dp_records_index(s->records);
    status = check_labels(index, config);
    if (status != DP_OK) {
        dp_records_close(s->records);
        return status;
    }
    *info = (struct dp_source_info){
        .count = {(size_t)index->count[DP_SET_TRAIN], (size_t)index->count[DP_SET_TEST]},
        .shape = index->shape,
        .classes = index->classes,
        .targets = index->label_numbers,
        .class_names = index->class_names,
        .copied = dp_records_copied(s->records)};
    return DP_OK;
}

/* ---- reading a block ---- */

/* Reads a block, to `out` or where that is NULL to the fetcher's memory. */
static dp_status take(const struct state *s, struct dp_fetcher *f,
                      const struct dp_records_block *block, uint8_t *out, const uint8_t **stored)
{
    const uint64_t begin_ns = dp_now_ns();

    if (out == NULL) {
        DP_TRY(dp_records_reserve(s->records, block, &f->bytes));
        out = f->bytes.data;
    }
    DP_TRY(dp_records_take_whole(s->records, block, out));
    f->read_ns += dp_now_ns() - begin_ns;
    f->read_bytes += block->block.stored;
    *stored = out;
    return DP_OK;
}

/* A block in the fetcher's own memory. `stored`: where it is kept; NULL: it is read. */
static dp_status open_own(const struct state *s, struct dp_fetcher *f,
                          const struct dp_records_block *block, const uint8_t *stored)
{
    struct dp_block_view view;
    uint64_t begin_ns;

    if (stored == NULL) {
        DP_TRY(take(s, f, block, NULL, &stored));
    }
    begin_ns = dp_now_ns();
    DP_TRY(dp_records_expand(s->records, block, stored, &f->more, &view));
    f->place = view.labels; /* which come first */
    f->expand_ns += dp_now_ns() - begin_ns;
    f->expand_bytes += block->block.raw;
    return DP_OK;
}

/* Writes a block to memory that fetchers share. */
static dp_status fill(const struct state *s, struct dp_fetcher *f,
                      const struct dp_records_block *block, const uint8_t *stored, uint8_t *out)
{
    struct dp_block_view view;
    uint64_t begin_ns;

    if (stored == NULL) {
        DP_TRY(take(s, f, block, block->block.zstd ? NULL : out, &stored));
    }
    begin_ns = dp_now_ns();
    if (block->block.zstd) {
        DP_TRY(dp_records_unpack_to(s->records, block, stored, &f->more, out));
    }
    DP_TRY(dp_records_view(s->records, block, out, &view));
    f->expand_ns += dp_now_ns() - begin_ns;
    f->expand_bytes += block->block.raw;
    return DP_OK;
}

/* Of the block's number: twice, and one more for those to test with; from 1. */
static uint64_t number_of(enum dp_set set, size_t at)
{
    return 1 + 2 * (uint64_t)at + (uint64_t)set;
}

static void records_leave(const void *state, struct dp_fetcher *f)
{
    const struct state *s = state;

    if (f->held != 0 && f->shares) {
        dp_block_cache_give(s->shared, (size_t)(f->held - 1) / 2);
    }
    f->held = 0;
    f->shares = false;
}

/* What is kept as it is, and needs no more, is taken from there. */
static bool is_shared(const struct state *s, enum dp_set set, const struct dp_records_block *block,
                      const uint8_t *stored)
{
    return s->shared != NULL && set == DP_SET_TRAIN &&
           (block->block.samples > 1 || s->shares_all) && (stored == NULL || block->block.zstd);
}

static dp_status hold(const struct state *s, struct dp_fetcher *f, enum dp_set set, size_t at)
{
    const struct dp_records_block *block = dp_records_block(s->records, set, at);
    const uint8_t *stored = dp_kept_unit(f, set, at);
    enum dp_block_place place = DP_BLOCK_ELSEWHERE;
    uint8_t *data = NULL;
    dp_status status = DP_OK;

    records_leave(s, f);
    if (is_shared(s, set, block, stored)) {
        place = dp_block_cache_take(s->shared, at, block->block.raw, f->passes, &data);
    }
    if (place == DP_BLOCK_ELSEWHERE) {
        DP_TRY(open_own(s, f, block, stored));
    } else {
        if (place == DP_BLOCK_NEW) {
            status = fill(s, f, block, stored, data);
            dp_block_cache_filled(s->shared, at, status == DP_OK);
            DP_TRY(status);
        }
        f->place = data;
        f->shares = true;
    }
    f->held = number_of(set, at);
    return DP_OK;
}

static dp_status records_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                               struct dp_raw *raw)
{
    const struct state *s = state;
    const size_t at = dp_records_find(s->records, set, row);
    const struct dp_records_block *block = dp_records_block(s->records, set, at);
    struct dp_block_view view;

    if (fetcher->held != number_of(set, at)) {
        DP_TRY(hold(s, fetcher, set, at));
    }
    DP_TRY(dp_records_view(s->records, block, fetcher->place, &view));
    return dp_records_sample(s->records, block, &view, row, raw);
}

static size_t records_fetcher_bytes(const void *state)
{
    const struct state *s = state;
    size_t stored = 0, raw = 0;

    for (int set = 0; set < DP_SETS; set++) {
        for (size_t at = 0; at < dp_records_blocks(s->records, (enum dp_set)set); at++) {
            const struct dp_shard_block *block =
                &dp_records_block(s->records, (enum dp_set)set, at)->block;
            stored = block->stored > stored ? block->stored : stored;
            raw = block->zstd && block->raw > raw ? block->raw : raw;
        }
    }
    return dp_buffer_room(stored) + (raw > 0 ? dp_buffer_room(dp_block_work_bytes() + raw) : 0);
}

static void records_look(void *state, bool looks)
{
    const struct state *s = state;

    dp_records_look(s->records, looks);
}

/* ---- blocks that fetchers share ---- */

static size_t room_of(const struct state *s, size_t at, bool all)
{
    const struct dp_shard_block *block = &dp_records_block(s->records, DP_SET_TRAIN, at)->block;

    return block->samples > 1 || all ? dp_block_cache_room(block->raw) : 0;
}

static size_t samples_of(const struct state *s, size_t at)
{
    return dp_records_block(s->records, DP_SET_TRAIN, at)->block.samples;
}

static bool is_whole(const struct state *s, size_t rows)
{
    return rows >= dp_records_index(s->records)->count[DP_SET_TRAIN];
}

/* Windows go on from the last row to the first. One that begins with the last row of its first
 * block has most blocks. */
static size_t records_window_bytes(const void *state, size_t rows)
{
    const struct state *s = state;
    const size_t blocks = dp_records_blocks(s->records, DP_SET_TRAIN);
    const bool all = is_whole(s, rows);
    size_t most = 0, sum = 0;   /* bytes of blocks [begin, end), round and round, */
    size_t behind = 0, end = 0; /* and the samples of those behind the first */

    for (size_t begin = 0; begin < blocks; begin++) {
        if (end == begin) {
            sum += room_of(s, end++, all);
        }
        for (; behind + 1 < rows && end < begin + blocks; end++) {
            sum += room_of(s, end % blocks, all);
            behind += samples_of(s, end % blocks);
        }
        most = sum > most ? sum : most;
        sum -= room_of(s, begin, all);
        behind -= end > begin + 1 ? samples_of(s, (begin + 1) % blocks) : 0;
    }
    return most;
}

static dp_status records_share(void *state, size_t rows, size_t bytes)
{
    struct state *s = state;
    const size_t blocks = dp_records_blocks(s->records, DP_SET_TRAIN);
    size_t most = 0, sum = 0;

    for (size_t at = 0; at < blocks; at++) {
        sum += room_of(s, at, is_whole(s, rows));
    }
    if (bytes == 0 || sum == 0) {
        return DP_OK;
    }
    most = 2 + 2 * (size_t)((double)bytes / (double)sum * (double)blocks);
    s->shares_all = is_whole(s, rows);
    return dp_block_cache_create(blocks, most < blocks ? most : blocks, bytes, &s->shared);
}

/* ---- blocks as units ---- */

static size_t records_units(const void *state, enum dp_set set)
{
    const struct state *s = state;

    return dp_records_blocks(s->records, set);
}

static size_t records_unit_bytes(const void *state, enum dp_set set, size_t unit)
{
    const struct state *s = state;

    return dp_records_block(s->records, set, unit)->block.stored;
}

static dp_status records_read_unit(const void *state, enum dp_set set, size_t unit, size_t bytes,
                                   uint8_t *out)
{
    const struct state *s = state;
    const struct dp_records_block *block = dp_records_block(s->records, set, unit);

    (void)bytes;
    return dp_records_take_whole(s->records, block, out);
}

static void records_name(const void *state, enum dp_set set, size_t row, char *text, size_t size)
{
    const struct state *s = state;

    dp_records_name(s->records, set, row, text, size);
}

static void records_close(void *state)
{
    struct state *s = state;

    dp_block_cache_destroy(s->shared);
    dp_records_close(s->records);
    *s = (struct state){.records = NULL};
}

const struct dp_source dp_source_records = {
    .plugin = {.name = "records",
               .help = "what ddp_data pack has packed: index.json and shard-NNNNN.rec in data.dir",
               .options = NULL,
               .state_bytes = sizeof(struct state)},
    .open = records_open,
    .fetch = records_fetch,
    .units = records_units,
    .unit_bytes = records_unit_bytes,
    .read_unit = records_read_unit,
    .fetcher_bytes = records_fetcher_bytes,
    .look = records_look,
    .window_bytes = records_window_bytes,
    .share = records_share,
    .leave = records_leave,
    .name = records_name,
    .close = records_close,
};
