/*
 * source_records.c - samples that `ddp_data pack` has packed: see records/records.h.
 */
#include "base/log.h"
#include "base/trace.h"
#include "runtime/data/records/records.h"
#include "runtime/data/source.h"

struct state {
    struct dp_records *records; /* owned */
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
        .class_names = index->class_names};
    return DP_OK;
}

/* Reads a block, unless it is kept, and decompresses it. `stored`: in, out: where it is kept. */
static dp_status open_block(const struct state *s, struct dp_fetcher *f,
                            const struct dp_records_block *block, const uint8_t **stored,
                            struct dp_block_view *view)
{
    const uint64_t begin_ns = dp_now_ns();
    uint64_t read_ns = begin_ns;

    if (*stored == NULL) {
        DP_TRY(dp_records_reserve(s->records, block, &f->bytes));
        DP_TRY(dp_records_take_whole(s->records, block, f->bytes.data));
        read_ns = dp_now_ns();
        f->read_ns += read_ns - begin_ns;
        f->read_bytes += block->block.stored;
        *stored = f->bytes.data;
    }
    DP_TRY(dp_records_expand(s->records, block, *stored, &f->more, view));
    f->expand_ns += dp_now_ns() - read_ns;
    f->expand_bytes += block->block.raw;
    return DP_OK;
}

/* `held` is the block's number: twice, and one more for those to test with; from 1. */
static dp_status records_fetch(void *state, struct dp_fetcher *fetcher, enum dp_set set, size_t row,
                               struct dp_raw *raw)
{
    const struct state *s = state;
    const size_t at = dp_records_find(s->records, set, row);
    const struct dp_records_block *block = dp_records_block(s->records, set, at);
    const uint64_t number = 1 + 2 * (uint64_t)at + (uint64_t)set;
    const uint8_t *stored = dp_kept_unit(fetcher, set, at);
    struct dp_block_view view;

    if (fetcher->held == number) {
        stored = stored != NULL ? stored : fetcher->bytes.data;
        DP_TRY(dp_records_view(s->records, block, stored, &fetcher->more, &view));
    } else {
        fetcher->held = 0;
        DP_TRY(open_block(s, fetcher, block, &stored, &view));
        fetcher->held = number;
    }
    return dp_records_sample(s->records, block, &view, row, raw);
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

    dp_records_close(s->records);
    s->records = NULL;
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
    .name = records_name,
    .close = records_close,
};
