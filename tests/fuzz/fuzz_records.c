/*
 * fuzz_records.c - libFuzzer: whatever bytes index.json, the end of a shard or a block hold, they
 * are taken or refused inside their memory; what is taken can be read.
 *
 * clang -g -O1 -std=c11 -D_POSIX_C_SOURCE=200809L -fsanitize=fuzzer,address,undefined -I.
 *     tests/fuzz/fuzz_records.c runtime/data/records/{records_index,shard_format,block}.c
 *     runtime/data/{problem,buffer,formats/data_file,pictures/pixels}.c base/[!t]*.c base/te*.c
 *     base/files/{file,disk}.c -lm -ljansson -lxxhash -lzstd -o fuzz_records
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/block.h"
#include "runtime/data/records/records_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_index(const uint8_t *data, size_t size)
{
    struct dp_records_index_file file;
    uint64_t samples = 0;

    if (dp_records_index_parse((const char *)data, size, "fuzz", &file) != DP_OK) {
        return;
    }
    for (size_t i = 0; i < file.index.shard_count; i++) {
        samples += file.index.shards[i].samples;
    }
    if (samples != file.index.count[DP_SET_TRAIN] + file.index.count[DP_SET_TEST]) {
        abort(); /* samples that no shard has */
    }
    dp_records_index_release(&file);
}

/* The hashes are made right, which no fuzzer would guess. */
static void try_table(const uint8_t *data, size_t size)
{
    const size_t blocks = size / DP_SHARD_ROW, bytes = blocks * DP_SHARD_ROW;
    struct dp_shard_foot foot = {.blocks = blocks, .table_hash = dp_shard_hash(data, bytes)};
    struct dp_shard_block *table;
    struct dp_shard_foot read;
    struct dp_problem problem;
    uint8_t end[DP_SHARD_FOOT];
    uint64_t at = DP_SHARD_HEAD;

    if (blocks == 0 || size % DP_SHARD_ROW < 16) {
        return;
    }
    foot.table_at = dp_shard_get(data + bytes, 8);
    foot.samples = dp_shard_get(data + bytes + 8, 8);
    dp_shard_foot_write(end, &foot);
    if (dp_shard_foot_read(end, foot.table_at + bytes + DP_SHARD_FOOT, &read, &problem) != DP_OK) {
        return;
    }
    table = dp_zalloc(blocks, sizeof(*table));
    if (table != NULL && dp_shard_table_read(data, &read, table, &problem) == DP_OK) {
        for (size_t i = 0; i < blocks; i++) {
            if (table[i].at < at || table[i].at - at >= DP_SHARD_ALIGN) {
                abort(); /* blocks that overlap, or bytes of none */
            }
            at = table[i].at + table[i].stored;
        }
        if (at != read.table_at) {
            abort(); /* blocks where the file has none */
        }
    }
    dp_free(table);
}

/* Two bytes say how many samples there are and how; the rest is the block. */
static void try_block(const uint8_t *data, size_t size)
{
    const uint32_t samples = 1u + data[0] % 32u, raw = 16u * (1u + data[1]);
    const bool zstd = data[0] >= 128;
    const struct dp_shard_block block = {.samples = samples,
                                         .stored = (uint32_t)size - 2,
                                         .raw = zstd ? raw : (uint32_t)size - 2,
                                         .zstd = zstd};
    const struct dp_block_form form = {.sample_bytes = data[0] & 32 ? data[1] % 8u : 0,
                                       .label_numbers = data[0] & 64 ? 1u + data[1] % 5u : 1};
    struct dp_buffer memory = {NULL, 0};
    struct dp_sample_shape shape;
    struct dp_block_view view;
    struct dp_problem problem;
    const uint8_t *bytes;
    unsigned sum = 0;

    if (dp_block_unpack(&block, data + 2, &memory, &bytes, &problem) == DP_OK &&
        dp_block_open(&block, bytes, &form, &view, &problem) == DP_OK) {
        for (uint32_t i = 0; i < samples; i++) {
            size_t count;
            const uint8_t *sample = dp_block_sample(&view, i, &count);
            for (size_t k = 0; k < count; k++) {
                sum += sample[k];
            }
            (void)dp_block_label(&view, i, form.label_numbers - 1);
            (void)!dp_block_pixels(sample, count, &shape, &problem);
        }
    }
    if (sum > 255u * 16u * 65536u) {
        abort();
    }
    dp_buffer_release(&memory);
}

/* The first byte says what the rest is. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dp_log_set_level(DP_LOG_NONE);
    if (size < 4) {
        return 0;
    }
    if (data[0] == '{') {
        try_index(data, size);
    } else if (data[0] % 2 == 0) {
        try_table(data + 1, size - 1);
    } else {
        try_block(data + 1, size - 1);
    }
    return 0;
}
