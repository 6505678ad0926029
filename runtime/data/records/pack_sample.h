/*
 * pack_sample.h - a sample of any source becomes what records hold of it.
 *
 * Pictures that are made smaller keep their kind of file: a JPEG is encoded once more, a PNG loses
 * nothing but pixels.
 */
#ifndef DP_RUNTIME_DATA_RECORDS_PACK_SAMPLE_H
#define DP_RUNTIME_DATA_RECORDS_PACK_SAMPLE_H

#include "runtime/data/records/records_index.h"
#include "runtime/data/records/statistics.h"
#include "runtime/data/sample_reader.h"

/* What all threads of a pack share. */
struct dp_pack_form {
    struct dp_samples *samples; /* borrowed */
    enum dp_records_kind kind;
    struct dp_sample_shape shape; /* of arrays */
    size_t label_numbers;         /* of each label, 1 or more */
    int resize;                   /* pictures: the shorter side is at most this; 0: as they are */
    int quality;                  /* of JPEG files that are made smaller: 1 to 100 */
};

/* A sample that waits to be written. Begins with zeros. */
struct dp_packed {
    struct dp_buffer memory, label_memory;
    size_t bytes;
};

/* Its label [label_numbers]. */
static inline const double *dp_packed_label(const struct dp_packed *packed)
{
    return packed->label_memory.data;
}

void dp_packed_release(struct dp_packed *packed);

/* What packing has done to pictures. */
struct dp_pack_effect {
    uint64_t pictures, resized;    /* how many */
    uint64_t bytes, resized_bytes; /* of those that were resized: before, and after */
    uint64_t decode_ns;            /* processor time to decode all of them, as they were, */
    uint64_t resized_decode_ns;    /* and as they are: files only */
};

/* What one thread makes samples with. */
struct dp_pack_maker;

/* form: borrowed. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_pack_maker_create(const struct dp_pack_form *form,
                                          struct dp_pack_maker **out);
void dp_pack_maker_destroy(struct dp_pack_maker *maker);

/* Makes sample `at` of a set. Errors: those of dp_sample_reader_raw(); DP_ERR_DATA (a damaged
 * picture: the message names it), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_pack_maker_make(struct dp_pack_maker *maker, enum dp_set set, size_t at,
                                        struct dp_packed *out);

/* Adds what it has seen: statistics of bytes of the training set, and the effect. */
void dp_pack_maker_sum(const struct dp_pack_maker *maker, struct dp_statistics *statistics,
                       struct dp_pack_effect *effect);

#endif
