/*
 * source_records.c - samples that `ddp_data pack` has packed: see records/records.h.
 */
#include "runtime/data/records/records.h"
#include "runtime/data/source.h"

struct state {
    struct dp_records *records; /* owned */
};

static dp_status records_open(void *state, const struct dp_source_config *config,
                              struct dp_source_info *info)
{
    struct state *s = state;
    const struct dp_records_index *index;

    if (config->dir == NULL || config->dir[0] == '\0') {
        return DP_FAIL(DP_ERR_CONFIG,
                       "data.dir: source records needs the folder that ddp_data pack made");
    }
    DP_TRY(dp_records_open(config->dir, &s->records));
    index = dp_records_index(s->records);
    *info = (struct dp_source_info){
        .count = {(size_t)index->count[DP_SET_TRAIN], (size_t)index->count[DP_SET_TEST]},
        .shape = index->shape,
        .classes = index->classes,
        .class_names = index->class_names};
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
    struct dp_block_view view;

    if (fetcher->held == number) {
        DP_TRY(dp_records_view(s->records, block, &fetcher->bytes, &fetcher->more, &view));
    } else {
        fetcher->held = 0;
        DP_TRY(dp_records_read(s->records, block, &fetcher->bytes, &fetcher->more, &view));
        fetcher->held = number;
    }
    return dp_records_sample(s->records, block, &view, row, raw);
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
    .name = records_name,
    .close = records_close,
};
