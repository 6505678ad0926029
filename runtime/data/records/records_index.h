/*
 * records_index.h - index.json of a folder of records: what the shards hold, and which there are.
 *
 * It is written last, in one step: a folder without it is not whole. It has a hash of itself, so
 * that a changed name of a class is found as a changed sample is.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_RECORDS_INDEX_H
#define DP_RUNTIME_DATA_RECORDS_RECORDS_INDEX_H

#include "base/files/file.h"
#include "base/json.h"
#include "runtime/data/problem.h"
#include "runtime/data/records/block.h"
#include "runtime/data/sample.h"

#define DP_RECORDS_INDEX "index.json"

enum {
    DP_RECORDS_CHANNELS = 16,          /* most numbers of a mean: as data.normalize takes */
    DP_RECORDS_SHARDS = 99999,         /* most of them: five digits */
    DP_RECORDS_NAME = 16,              /* bytes of "shard-00000.rec" */
    DP_RECORDS_INDEX_BYTES = 64 << 20, /* longest index.json */
    DP_RECORDS_CLASSES = 1 << 20,
    DP_RECORDS_LABEL = 4096 /* most numbers of a label */
};

enum dp_records_kind {
    DP_RECORDS_ARRAYS,   /* numbers, all of one shape */
    DP_RECORDS_PICTURES, /* files of PNG and JPEG */
    DP_RECORDS_PIXELS,   /* decoded pictures, each of its own size */
    DP_RECORDS_KINDS
};

struct dp_records_shard {
    enum dp_set set;
    uint64_t bytes, samples, blocks;
    uint64_t table_hash;     /* XXH3-64 of its table of blocks */
    char hash[DP_HASH_TEXT]; /* XXH3-128 of the file */
};

struct dp_records_index {
    enum dp_records_kind kind;
    struct dp_sample_shape shape;   /* of arrays; others: count 0 */
    int classes;                    /* labels are below; 0: they are no classes */
    size_t label_numbers;           /* of each label, which is no class; 0: it is one */
    const char *const *class_names; /* [classes]; NULL: they have none */
    uint64_t count[DP_SETS];
    int channels; /* of mean and std, of the training set: bytes are scaled to 0..1 */
    double mean[DP_RECORDS_CHANNELS], std[DP_RECORDS_CHANNELS];
    uint64_t block_bytes;            /* that a block has, unless one sample is larger */
    int zstd;                        /* level; 0: not compressed */
    struct dp_records_shard *shards; /* those of the training set first */
    size_t shard_count;
};

/* "shard-00003.rec" */
void dp_records_shard_name(char name[DP_RECORDS_NAME], size_t number);

/* What the samples of every block have in common. */
struct dp_block_form dp_records_form(const struct dp_records_index *index);

/* "array", "picture", "pixels". */
const char *dp_records_kind_text(enum dp_records_kind kind);

/* Replaces index.json of a folder. Errors: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_records_index_save(const struct dp_records_index *index, const char *dir);

/* An index that was read; owns its memory. */
struct dp_records_index_file {
    struct dp_records_index index;
    struct dp_json *json;     /* owned: the names of the classes lie in it */
    const char **class_names; /* owned */
};

/*
 * Parses the text of an index.json.
 *
 *   source  begins error messages: the file's name
 *   out     for dp_records_index_release(); set only on success
 *
 * Errors: DP_ERR_DATA (torn, altered, of another version, contradicts itself), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_records_index_parse(const char *text, size_t bytes, const char *source,
                                            struct dp_records_index_file *out);

/* The text of a folder's index.json (dp_free). Errors: DP_ERR_NOINPUT (it has none), DP_ERR_DATA,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_records_index_text(const char *dir, char **text, size_t *bytes);

/* Reads and parses it. Errors: as above. */
DP_CHECKED dp_status dp_records_index_read(const char *dir, struct dp_records_index_file *out);
void dp_records_index_release(struct dp_records_index_file *file);

#endif
