#include "runtime/data/records/shard_format.h"

#include <string.h>

#include "base/hash.h"

static const uint8_t head_magic[8] = {'L', 'S', 'R', 'E', 'C', '\r', '\n', 0x1a};
static const uint8_t foot_magic[8] = {'L', 'S', 'R', 'E', 'C', 'E', 'N', 'D'};

void dp_shard_put(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

uint64_t dp_shard_get(const uint8_t *in, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)in[i] << (8 * i);
    }
    return value;
}

uint64_t dp_shard_hash(const void *bytes, size_t count)
{
    return XXH3_64bits(bytes, count);
}

/* ---- head ---- */

void dp_shard_head_write(uint8_t out[DP_SHARD_HEAD], uint32_t number, enum dp_set set)
{
    memset(out, 0, DP_SHARD_HEAD);
    memcpy(out, head_magic, sizeof(head_magic));
    dp_shard_put(out + 8, DP_SHARD_VERSION, 4);
    dp_shard_put(out + 12, number, 4);
    dp_shard_put(out + 16, (uint64_t)set, 4);
}

dp_status dp_shard_head_check(const uint8_t head[DP_SHARD_HEAD], uint32_t number, enum dp_set set,
                              struct dp_problem *problem)
{
    const uint64_t version = dp_shard_get(head + 8, 4);
    uint8_t expected[DP_SHARD_HEAD];

    if (memcmp(head, head_magic, sizeof(head_magic)) != 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA, "is no shard of records: pack again");
    }
    if (version < 1 || version > DP_SHARD_VERSION) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "has version %llu, this program reads 1 to %d: pack again",
                                 (unsigned long long)version, DP_SHARD_VERSION);
    }
    dp_shard_head_write(expected, number, set);
    dp_shard_put(expected + 8, version, 4);
    if (memcmp(head, expected, DP_SHARD_HEAD) != 0) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "is another shard than index.json says: was it renamed?");
    }
    return DP_OK;
}

/* ---- foot ---- */

void dp_shard_foot_write(uint8_t out[DP_SHARD_FOOT], const struct dp_shard_foot *foot)
{
    memcpy(out, foot_magic, sizeof(foot_magic));
    dp_shard_put(out + 8, foot->table_at, 8);
    dp_shard_put(out + 16, foot->blocks, 8);
    dp_shard_put(out + 24, foot->samples, 8);
    dp_shard_put(out + 32, foot->table_hash, 8);
    dp_shard_put(out + 40, dp_shard_hash(out, 40), 8);
}

dp_status dp_shard_foot_read(const uint8_t in[DP_SHARD_FOOT], uint64_t file_bytes,
                             struct dp_shard_foot *out, struct dp_problem *problem)
{
    const uint64_t between = file_bytes - DP_SHARD_HEAD - DP_SHARD_FOOT;

    if (memcmp(in, foot_magic, sizeof(foot_magic)) != 0 ||
        dp_shard_get(in + 40, 8) != dp_shard_hash(in, 40)) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "its end is damaged, or missing: pack again, or copy it again");
    }
    *out = (struct dp_shard_foot){.table_at = dp_shard_get(in + 8, 8),
                                  .blocks = dp_shard_get(in + 16, 8),
                                  .samples = dp_shard_get(in + 24, 8),
                                  .table_hash = dp_shard_get(in + 32, 8)};
    if (out->blocks == 0 || out->blocks > between / DP_SHARD_ROW ||
        out->table_at != DP_SHARD_HEAD + between - out->blocks * DP_SHARD_ROW) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "its end does not fit its length: pack again, or copy it again");
    }
    return DP_OK;
}

/* ---- table ---- */

void dp_shard_row_write(uint8_t out[DP_SHARD_ROW], const struct dp_shard_block *block)
{
    memset(out, 0, DP_SHARD_ROW);
    dp_shard_put(out, block->at, 8);
    dp_shard_put(out + 8, block->hash, 8);
    dp_shard_put(out + 16, block->stored, 4);
    dp_shard_put(out + 20, block->raw, 4);
    dp_shard_put(out + 24, block->samples, 4);
    dp_shard_put(out + 28, block->zstd ? 1 : 0, 4);
}

static bool is_possible(const struct dp_shard_block *block, const uint8_t *row)
{
    const uint64_t most = (uint64_t)DP_SHARD_SAMPLE_BYTES + (uint64_t)16 * DP_SHARD_BLOCK_SAMPLES;

    return block->stored > 0 && block->raw > 0 && block->raw <= most && block->stored <= most &&
           block->samples > 0 && block->samples <= DP_SHARD_BLOCK_SAMPLES &&
           dp_shard_get(row + 28, 4) <= 1 && dp_shard_get(row + 32, 8) == 0 &&
           (block->zstd || block->stored == block->raw);
}

dp_status dp_shard_table_read(const uint8_t *table, const struct dp_shard_foot *foot,
                              struct dp_shard_block *out, struct dp_problem *problem)
{
    uint64_t at = DP_SHARD_HEAD, samples = 0;
    /* The first block shows the version. */
    const bool gaps = dp_shard_get(table, 8) == dp_shard_block_at(DP_SHARD_HEAD);

    if (dp_shard_hash(table, (size_t)foot->blocks * DP_SHARD_ROW) != foot->table_hash) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "its table of blocks is damaged: pack again, or copy it again");
    }
    for (uint64_t i = 0; i < foot->blocks; i++) {
        const uint8_t *row = table + i * DP_SHARD_ROW;
        out[i] = (struct dp_shard_block){.at = dp_shard_get(row, 8),
                                         .hash = dp_shard_get(row + 8, 8),
                                         .stored = (uint32_t)dp_shard_get(row + 16, 4),
                                         .raw = (uint32_t)dp_shard_get(row + 20, 4),
                                         .samples = (uint32_t)dp_shard_get(row + 24, 4),
                                         .zstd = dp_shard_get(row + 28, 4) == 1};
        at = gaps ? dp_shard_block_at(at) : at;
        if (!is_possible(&out[i], row) || out[i].at != at || at > foot->table_at ||
            out[i].stored > foot->table_at - at) {
            return dp_problem_refuse(problem, DP_ERR_DATA,
                                     "block %llu (counted from 0) cannot lie where its table "
                                     "says: pack again",
                                     (unsigned long long)i);
        }
        at += out[i].stored;
        samples += out[i].samples;
    }
    if (at != foot->table_at || samples != foot->samples) {
        return dp_problem_refuse(problem, DP_ERR_DATA,
                                 "its table of blocks contradicts its end: pack again");
    }
    return DP_OK;
}
