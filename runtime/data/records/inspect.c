#include "runtime/data/records/inspect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/trace.h"
#include "runtime/data/decode.h"
#include "runtime/data/permute.h"

enum { AHEAD = 4 << 20 };

/* What reading needs. */
struct eye {
    const struct dp_records *records;
    struct dp_decoder *decoder; /* owned */
    struct dp_buffer stored, memory;
};

static void release(struct eye *eye)
{
    dp_decoder_destroy(eye->decoder);
    dp_buffer_release(&eye->stored);
    dp_buffer_release(&eye->memory);
}

/* ---- verifying ---- */

/* Training needs numbers that float32 has. */
static dp_status verify_label(const struct dp_records_index *index, const struct dp_raw *raw,
                              struct dp_problem *problem)
{
    const double *numbers = raw->targets != NULL ? raw->targets : &raw->label;

    for (size_t k = 0; k < index->label_numbers; k++) {
        if (!isfinite((float)numbers[k])) {
            return dp_problem_refuse(problem, DP_ERR_DATA,
                                     "number %zu of its label (counted from 0) is %.9g", k,
                                     numbers[k]);
        }
    }
    if (index->classes > 0 && !(raw->label >= 0.0 && raw->label < (double)index->classes &&
                                raw->label == floor(raw->label))) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "label %.17g is not one of 0 to %d",
                                 raw->label, index->classes - 1);
    }
    return DP_OK;
}

static dp_status verify_sample(struct eye *eye, enum dp_set set, uint64_t row,
                               const struct dp_raw *raw)
{
    struct dp_picture picture = {.pixels = NULL};
    struct dp_problem problem;
    char name[DP_PATH_BYTES];
    dp_status status = verify_label(dp_records_index(eye->records), raw, &problem);

    if (status == DP_OK && raw->kind == DP_RAW_PICTURE) {
        status = dp_decode_pixels(eye->decoder, raw, 3, &picture, &problem);
    }
    if (status != DP_OK) {
        dp_records_name(eye->records, set, row, name, sizeof(name));
        return DP_FAIL(status, "%s: %s", name, problem.text);
    }
    return DP_OK;
}

static dp_status verify_set(struct eye *eye, enum dp_set set)
{
    const size_t blocks = dp_records_blocks(eye->records, set);

    for (size_t i = 0; i < blocks; i++) {
        const struct dp_records_block *block = dp_records_block(eye->records, set, i);
        struct dp_block_view view;
        DP_TRY(dp_records_read(eye->records, block, &eye->stored, &eye->memory, &view));
        for (uint32_t k = 0; k < view.samples; k++) {
            struct dp_raw raw;
            DP_TRY(dp_records_sample(eye->records, block, &view, block->first + k, &raw));
            DP_TRY(verify_sample(eye, set, block->first + k, &raw));
        }
    }
    return DP_OK;
}

/* After the blocks, which say more precisely what is wrong. */
static dp_status verify_shards(const struct dp_records *records)
{
    const struct dp_records_index *index = dp_records_index(records);
    char hash[DP_HASH_TEXT];

    for (size_t i = 0; i < index->shard_count; i++) {
        DP_TRY(dp_records_hash_shard(records, i, hash));
        if (strcmp(hash, index->shards[i].hash) != 0) {
            return DP_FAIL(DP_ERR_DATA,
                           "%s: its hash is another than in " DP_RECORDS_INDEX
                           ": copy it again, or pack again",
                           dp_records_path(records, i));
        }
    }
    return DP_OK;
}

dp_status dp_records_verify(const struct dp_records *records)
{
    struct eye eye = {.records = records};
    dp_status status = dp_decoder_create(&eye.decoder);

    status = status == DP_OK ? verify_set(&eye, DP_SET_TRAIN) : status;
    status = status == DP_OK ? verify_set(&eye, DP_SET_TEST) : status;
    release(&eye);
    return status == DP_OK ? verify_shards(records) : status;
}

/* ---- timing ---- */

static double lap(uint64_t *begin)
{
    const uint64_t now = dp_now_ns();
    const double seconds = (double)(now - *begin) / 1e9;

    *begin = now;
    return seconds;
}

static dp_status time_block(struct eye *eye, const struct dp_records_block *block,
                            struct dp_block_view *view, struct dp_records_timing *t)
{
    uint64_t at = dp_now_ns();

    DP_TRY(dp_records_reserve(eye->records, block, &eye->stored));
    DP_TRY(dp_records_take(eye->records, block, eye->stored.data));
    t->take_s += lap(&at);
    DP_TRY(dp_records_check(eye->records, block, eye->stored.data));
    t->check_s += lap(&at);
    DP_TRY(dp_records_expand(eye->records, block, eye->stored.data, &eye->memory, view));
    t->expand_s += lap(&at);
    t->stored_bytes += block->block.stored;
    return DP_OK;
}

static dp_status time_sample(struct eye *eye, const struct dp_records_block *block,
                             const struct dp_block_view *view, uint64_t row,
                             struct dp_records_timing *t)
{
    struct dp_picture picture = {.pixels = NULL};
    struct dp_problem problem;
    struct dp_raw raw;
    uint64_t at = dp_now_ns();

    DP_TRY(dp_records_sample(eye->records, block, view, row, &raw));
    t->samples++;
    t->sample_bytes += raw.bytes;
    if (raw.kind != DP_RAW_PICTURE) {
        return DP_OK;
    }
    if (dp_decode_pixels(eye->decoder, &raw, 3, &picture, &problem) != DP_OK) {
        return verify_sample(eye, DP_SET_TRAIN, row, &raw);
    }
    t->decode_s += lap(&at);
    return DP_OK;
}

static dp_status time_in_order(struct eye *eye, uint64_t end_ns, struct dp_records_timing *t)
{
    const size_t blocks = dp_records_blocks(eye->records, DP_SET_TRAIN);

    for (size_t i = 0; i < blocks && dp_now_ns() < end_ns; i++) {
        const struct dp_records_block *block = dp_records_block(eye->records, DP_SET_TRAIN, i);
        struct dp_block_view view;
        if (block->block.at / AHEAD != (block->block.at + block->block.stored) / AHEAD) {
            dp_records_read_ahead(eye->records, block, AHEAD);
        }
        DP_TRY(time_block(eye, block, &view, t));
        for (uint32_t k = 0; k < view.samples; k++) {
            DP_TRY(time_sample(eye, block, &view, block->first + k, t));
        }
    }
    return DP_OK;
}

static dp_status time_shuffled(struct eye *eye, uint64_t end_ns, struct dp_records_timing *t)
{
    const size_t count = (size_t)dp_records_index(eye->records)->count[DP_SET_TRAIN];
    struct dp_permutation order;

    dp_permutation_init(&order, 1, 0, count);
    for (size_t i = 0; i < count && dp_now_ns() < end_ns; i++) {
        const size_t row = (size_t)dp_permutation_at(&order, i);
        const size_t at = dp_records_find(eye->records, DP_SET_TRAIN, row);
        const struct dp_records_block *block = dp_records_block(eye->records, DP_SET_TRAIN, at);
        struct dp_block_view view;
        DP_TRY(time_block(eye, block, &view, t));
        DP_TRY(time_sample(eye, block, &view, row, t));
    }
    return DP_OK;
}

dp_status dp_records_time(const struct dp_records *records, bool shuffled, double seconds,
                          struct dp_records_timing *timing)
{
    struct eye eye = {.records = records};
    const uint64_t begin = dp_now_ns(), end = begin + (uint64_t)(seconds * 1e9);
    dp_status status = dp_decoder_create(&eye.decoder);

    *timing = (struct dp_records_timing){.samples = 0};
    if (status == DP_OK) {
        status = shuffled ? time_shuffled(&eye, end, timing) : time_in_order(&eye, end, timing);
    }
    timing->seconds = (double)(dp_now_ns() - begin) / 1e9;
    release(&eye);
    return status;
}
