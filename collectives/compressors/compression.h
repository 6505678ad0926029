/*
 * compression.h - the open compressor of an exchange, and what it keeps for each bucket.
 */
#ifndef DP_COLLECTIVES_COMPRESSORS_COMPRESSION_H
#define DP_COLLECTIVES_COMPRESSORS_COMPRESSION_H

#include "collectives/compressors/compressor.h"

struct dp_compression_config {
    const char *compressor;                   /* "topk:ratio=0.01"; NULL: none */
    const struct dp_step_params *step_params; /* borrowed; current values of each step */
    uint64_t seed;
};

enum { DP_COMPRESSION_ARRAYS = 3 };

struct dp_compression {
    const struct dp_compressor *compressor;
    void *state;                              /* owned; of the compressor */
    bool open;                                /* whether it is open; not with one rank, which sends
                                              * nothing */
    struct dp_comm *comm;                     /* borrowed */
    const struct dp_device *device;           /* borrowed; the device of comm->codes */
    const struct dp_bucket_plan *plan;        /* borrowed */
    struct dp_compressed_bucket *compressed;  /* owned; [plan->count] */
    struct dp_coding_times *coding;           /* owned; [plan->count]; of the last sum of each */
    const struct dp_step_params *step_params; /* borrowed; current values of each step */
    float *residual[2];                       /* owned; [trained]; device memory */
    int residuals;                            /* how many residuals are used */
    float *warm;                              /* owned; [warm_count]; device memory */
    float *host
        [DP_COMPRESSION_ARRAYS]; /* owned; copies of all arrays where the host cannot read them */
    size_t trained, warm_count;
};

/*
 * Opens the compressor over the strategy of `comm`. The gradient is `grad` [trained] in the buckets
 * of `plan`, in the memory of the device of comm->codes. *out stays NULL where nothing is
 * compressed ("none"). Collective.
 *
 * Errors: DP_ERR_CONFIG (unknown, or a strategy that shares nothing), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_compression_create(struct dp_comm *comm, const struct dp_bucket_plan *plan,
                                           float *grad, size_t trained,
                                           const struct dp_compression_config *config,
                                           struct dp_compression **out);
void dp_compression_destroy(struct dp_compression *compression);

/* Called before bucket b is submitted: copies the step parameters for a deferred bucket, which is
 * summed after its step has ended. Does nothing for NULL. Local. */
void dp_compression_ready(struct dp_compression *compression, int b);

/* Replaces this rank's gradient of bucket b by its sum. A skipped step (step parameters->skip,
 * equal on all ranks) sends nothing and changes nothing. Collective. */
DP_CHECKED dp_status dp_compression_sum(struct dp_compression *compression, int b,
                                        enum dp_keep keep);

/* What coding took in the last sum of bucket b, once that is done. Zeros: not compressed, skipped,
 * or coded on a device that only queues. Local. */
struct dp_coding_times dp_compression_coding(const struct dp_compression *compression, int b);

/* Bytes that this rank sends in a step for all buckets but the tail: with the compressor, and an
 * estimate for the strategy alone. Local. */
void dp_compression_wire(const struct dp_compression *compression, enum dp_keep keep,
                         uint64_t *with, uint64_t *without);

/* Elements that the compressor of a valid name would keep on each of several ranks, for a model
 * with these tensors: residuals, which differ by rank, and start vectors. No ranks needed. */
struct dp_compression_size {
    size_t residuals, warm;
};

struct dp_compression_size dp_compression_measure(const char *compressor,
                                                  const struct dp_tensor *tensors, int tensor_count,
                                                  size_t trained);

/* Bytes of device memory, where that is not the host's, that it would allocate for codes of so many
 * ranks (bounce_buffer.h). */
size_t dp_compression_codes(const char *compressor, const struct dp_bucket_plan *plan, int ranks);

/* Predicts the seconds that the messages of a bucket's sum take with the compressor of a valid
 * name, which may be "none", over the strategy of that text (dp_strategy_cost). NaN: no prediction.
 * No ranks needed. */
double dp_compression_cost(const char *compressor, const char *strategy, const struct dp_cost *cost,
                           const struct dp_group *group, const struct dp_bucket *bucket);

/* What coding of a bucket is proportional to with the compressor of a valid name, on so many ranks.
 * No ranks needed. */
struct dp_coding_work dp_compression_work(const char *compressor, int ranks);

/* An array that a resumed run needs. Its name begins with DP_COMPRESSION_NAME. */
#define DP_COMPRESSION_NAME "compressor."

struct dp_compression_array {
    const char *name;
    float *data;  /* on the host: fetched from the device before a save, put back after a load */
    float *there; /* on the device; often the same array */
    size_t count;
    bool same;   /* equal on all ranks; else this rank's own */
    bool owners; /* left out of sums that this rank owns; the previous array is what it left out of
                  * its own gradient, in the same unit */
};

/* Fills in the arrays and returns their number; 0 for NULL. Local. */
int dp_compression_arrays(const struct dp_compression *compression,
                          struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS]);

/* Copies all arrays from the device, or to it. Call them between steps; they return when done. NULL
 * has none. Local. */
DP_CHECKED dp_status dp_compression_fetch(const struct dp_compression *compression);
DP_CHECKED dp_status dp_compression_put(const struct dp_compression *compression);

/* Zeroes all that is kept of any bucket. Call it between steps; does nothing for NULL. Local. */
DP_CHECKED dp_status dp_compression_forget(const struct dp_compression *compression);

#endif
