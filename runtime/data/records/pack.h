/*
 * pack.h - makes a folder of records of any other source.
 *
 * Until index.json is there, which is written last, the folder is not whole: packing into it again
 * starts over. A file says that the folder is ours; no other one is written to, but an empty one.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_PACK_H
#define DP_RUNTIME_DATA_RECORDS_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/data/records/pack_sample.h"

struct dp_pack_progress {
    uint64_t done, all; /* samples */
    uint64_t bytes;     /* of samples that were read */
    double seconds;
};

struct dp_pack_options {
    const char *source; /* name of the source; NULL: found out by the files that SRC has */
    const char *from, *to;
    uint64_t shard_bytes;
    int zstd;          /* level; 0: not compressed */
    bool decode;       /* pictures are stored as pixels */
    int resize;        /* their shorter side is at most this; 0: as they are */
    int quality;       /* of JPEG files that are made smaller: 1 to 100 */
    bool label_last;   /* of csv */
    int label_numbers; /* labels are so many numbers, no classes; 0: classes, or what npy has */
    int threads;
    bool (*stopped)(void); /* whether to give up, asked now and then; may be NULL */
    void (*progress)(void *context, const struct dp_pack_progress *progress); /* may be NULL */
    void *context;
};

struct dp_pack_result {
    const char *source;
    uint64_t samples, shards, read_bytes, raw_bytes, stored_bytes;
    double seconds;
    struct dp_pack_effect effect;
};

/* The source that can read a folder, by the names of its files. */
const char *dp_pack_source_of(const char *dir);

/*
 * Packs. After an error nothing of it is left.
 *
 * Errors: those of dp_samples_open() and of reading; DP_ERR_USAGE (the folder holds something else,
 * or whole records, or another process packs into it), DP_ERR_WRITE, DP_STOPPED.
 */
DP_CHECKED dp_status dp_pack(const struct dp_pack_options *options, struct dp_pack_result *result);

#endif
