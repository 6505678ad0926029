/*
 * shard_format.h - the bytes of a shard: shard-NNNNN.rec holds samples of one set, in blocks.
 *
 *   head    32 bytes: magic, version, number of the shard, its set
 *   blocks  see block.h, each from the next multiple of 64 on (of which copies are faster); bytes
 *           between are 0. In version 1 they follow one another without gaps
 *   table   40 bytes for each block: where it lies, its length, the XXH3-64 hash of its bytes
 *   foot    48 bytes: where the table begins, number of blocks and of samples, the hash of the
 *           table, the hash of the foot
 *
 * Numbers are little-endian. So a reader needs the end of the file, and after that one block for
 * any sample. Nothing here reads files; all that is read is checked.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_SHARD_FORMAT_H
#define DP_RUNTIME_DATA_RECORDS_SHARD_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/data/problem.h"
#include "runtime/data/sample.h"

enum {
    DP_SHARD_VERSION = 2, /* 1 is read, too */
    DP_SHARD_HEAD = 32,
    DP_SHARD_ALIGN = 64, /* of blocks */
    DP_SHARD_ROW = 40,
    DP_SHARD_FOOT = 48,
    DP_SHARD_BLOCK_SAMPLES = 4096,    /* most samples of a block */
    DP_SHARD_SAMPLE_BYTES = 512 << 20 /* the largest sample */
};

/* Where a block begins that follows what ends at `end`. */
static inline uint64_t dp_shard_block_at(uint64_t end)
{
    return (end + DP_SHARD_ALIGN - 1) / DP_SHARD_ALIGN * DP_SHARD_ALIGN;
}

/* Bytes of a number of the file. */
void dp_shard_put(uint8_t *out, uint64_t value, int bytes);
uint64_t dp_shard_get(const uint8_t *in, int bytes);

/* A block, as the table has it. */
struct dp_shard_block {
    uint64_t at;      /* where it begins in the file */
    uint64_t hash;    /* XXH3-64 of its bytes in the file */
    uint32_t stored;  /* bytes in the file */
    uint32_t raw;     /* bytes once it is decompressed */
    uint32_t samples; /* 1 to DP_SHARD_BLOCK_SAMPLES */
    bool zstd;        /* compressed; else stored equals raw */
};

struct dp_shard_foot {
    uint64_t table_at, blocks, samples;
    uint64_t table_hash;
};

void dp_shard_head_write(uint8_t out[DP_SHARD_HEAD], uint32_t number, enum dp_set set);
void dp_shard_row_write(uint8_t out[DP_SHARD_ROW], const struct dp_shard_block *block);
void dp_shard_foot_write(uint8_t out[DP_SHARD_FOOT], const struct dp_shard_foot *foot);

/* The XXH3-64 hash of some bytes. */
uint64_t dp_shard_hash(const void *bytes, size_t count);

/* Whether a file begins as shard `number` of that set does. Errors: DP_ERR_DATA. */
DP_CHECKED dp_status dp_shard_head_check(const uint8_t head[DP_SHARD_HEAD], uint32_t number,
                                         enum dp_set set, struct dp_problem *problem);

/* Reads the last bytes of a file of `file_bytes` bytes, of which there are enough for head and
 * foot. Errors: DP_ERR_DATA. */
DP_CHECKED dp_status dp_shard_foot_read(const uint8_t in[DP_SHARD_FOOT], uint64_t file_bytes,
                                        struct dp_shard_foot *out, struct dp_problem *problem);

/*
 * Reads the table.
 *
 *   table  in   [blocks, DP_SHARD_ROW]
 *   out    out  [blocks]: they lie one after another between head and table, as in a version
 *              that is read, and have foot->samples
 *
 * Errors: DP_ERR_DATA.
 */
DP_CHECKED dp_status dp_shard_table_read(const uint8_t *table, const struct dp_shard_foot *foot,
                                         struct dp_shard_block *out, struct dp_problem *problem);

#endif
