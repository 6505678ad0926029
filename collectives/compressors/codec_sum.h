/*
 * codec_sum.h - sums over ranks whose messages are codes of a few bits an element.
 *
 *      encode   each rank makes a code of every chunk of its gradient
 *      swap     the codes of chunk r go to rank r, its owner
 *      add      the owner decodes them and adds in float32, in the order of the binary tree
 *      encode   it makes one code of the sum: rounded once, whatever the number of ranks
 *      gather   that code goes to all, and all decode the same
 *
 * The owner's own gradient takes part as its code, too: what a rank sends does not depend on who it
 * is. Where ranks reach each other's memory, codes are read in place, between two barriers.
 *
 * With error feedback each rank adds what earlier codes left out (dp_compressed_bucket.residual[0])
 * before it encodes, and so does the owner of a sum (residual[1]).
 */
#ifndef DP_COLLECTIVES_COMPRESSORS_CODEC_SUM_H
#define DP_COLLECTIVES_COMPRESSORS_CODEC_SUM_H

#include "collectives/compressors/bounce_buffer.h"
#include "collectives/compressors/compressor.h"

/* A method to encode elements. `context` is the codec's own. */
struct dp_codec {
    const void *context;

    /* Bytes of the code of `count` elements; 0 for 0. */
    size_t (*bytes)(const void *context, size_t count);

    /* Encodes x [count]. With error feedback (a compressor that has residuals), x becomes what the
     * code leaves out; else it is unchanged. */
    dp_status (*encode)(const void *context, struct dp_stream *stream, void *code, float *x,
                        size_t count, const struct dp_key *key);

    /* y = elements [part.begin, part.begin + part.count) of a code of `count` elements; part.begin
     * is a multiple of DP_CODEC_SUM_TILE. */
    dp_status (*decode)(const void *context, struct dp_stream *stream, float *y, const void *code,
                        size_t count, struct dp_range part);
};

/* The owner decodes and adds this many elements of all ranks at a time. */
enum { DP_CODEC_SUM_TILE = 16384 };

struct dp_codec_sum {
    struct dp_comm *comm; /* borrowed */
    struct dp_codec codec;
    size_t slot_bytes; /* bytes of one slot */
    struct dp_bounce_buffer
        mine;           /* [2, size] slots: codes of this rank's chunks, then of all sums */
    char *pieces;       /* owned; [size] slots: codes of this rank's chunk; NULL where shared */
    char *landed;       /* owned; [size] slots: codes of others, where they are decoded; NULL if the
                   * host's array can be read there */
    float *tiles;       /* owned; [size, DP_CODEC_SUM_TILE]; device memory, too */
    const float **tile; /* owned; [size]: their rows */
    const void **piece; /* owned; [size]: codes of this rank's chunk, where they are decoded */
    bool shared;        /* peers' codes are read in place */
};

/* Bytes of device memory that dp_codec_sum_open allocates, where that is not the host's memory. */
size_t dp_codec_sum_bytes(const struct dp_codec *codec, size_t max_count, int ranks);

/* Prepares for slices of up to max_count elements. Collective. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_codec_sum_open(struct dp_codec_sum *codec_sum, struct dp_comm *comm,
                                       const struct dp_codec *codec, size_t max_count);

/* Functions for a compressor that is only a codec: a struct dp_codec_sum is the first member of its
 * state. */
void dp_codec_sum_close(void *codec_sum);

/* Replaces the compressed bucket's gradient by its sum. Random numbers use the key what =
 * DP_RANDOM_CODE + rank, and + 0xffffff for the sum; index = place in the flat gradient.
 * Collective. */
DP_CHECKED dp_status dp_codec_sum_run(void *codec_sum,
                                      const struct dp_compressed_bucket *compressed,
                                      enum dp_keep keep);

/* Predicts the seconds that its messages take for so many elements, all of which every rank gets:
 * only ranks and nodes of the group are read. Codes that are read in place take barriers alone.
 * Local. */
double dp_codec_sum_cost(const struct dp_codec *codec, const struct dp_cost *cost,
                         const struct dp_group *group, size_t count);

/* A rank encodes all of its gradient and its chunk of the sum. It decodes its chunk of what each
 * rank has sent, and then the chunks of the sum. */
struct dp_coding_work dp_codec_sum_work(const void *codec_sum, int ranks);

uint64_t dp_codec_sum_wire(const void *codec_sum, const struct dp_bucket *bucket,
                           enum dp_keep keep);

#endif
