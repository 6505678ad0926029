/*
 * compression.h - the open compressor of an exchange, and what it remembers of each bucket.
 */
#ifndef DP_COLLECTIVES_COMPRESSORS_COMPRESSION_H
#define DP_COLLECTIVES_COMPRESSORS_COMPRESSION_H

#include "collectives/compressors/compressor.h"

struct dp_compression_config {
    const char *compressor;                   /* "topk:ratio=0.01"; NULL: none */
    const struct dp_step_params *step_params; /* borrowed; those of each step */
    uint64_t seed;
};

enum { DP_COMPRESSION_ARRAYS = 3 };

struct dp_compression {
    const struct dp_compressor *compressor;
    void *state;                             /* owned; the compressor's */
    bool open;                               /* it is; not on one rank, which has nothing to send */
    struct dp_comm *comm;                    /* borrowed */
    const struct dp_device *device;          /* borrowed; that of comm->codes */
    const struct dp_bucket_plan *plan;       /* borrowed */
    struct dp_compressed_bucket *compressed; /* owned; [plan->count] */
    const struct dp_step_params *step_params; /* borrowed; those of each step */
    float *residual[2];                       /* owned; [trained]; device memory */
    int residuals;                            /* of them */
    float *warm;                              /* owned; [warm_count]; device memory */
    float *host
        [DP_COMPRESSION_ARRAYS]; /* owned; copies of all arrays where the host cannot use them */
    size_t trained, warm_count;
};

/*
 * Opens the compressor over the strategy of `comm`, whose gradient is `grad` [trained] in the
 * buckets of `plan`, in the memory of the device of comm->codes. *out stays NULL where nothing is
 * compressed ("none"). Collective.
 *
 * Errors: DP_ERR_CONFIG (unknown, or a strategy that shares nothing), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_compression_create(struct dp_comm *comm, const struct dp_bucket_plan *plan,
                                           float *grad, size_t trained,
                                           const struct dp_compression_config *config,
                                           struct dp_compression **out);
void dp_compression_destroy(struct dp_compression *p);

/* Before bucket b is submitted, while the step parameters are those of its step: which a
 * deferred bucket will outlast. Nothing to do for NULL. Local. */
void dp_compression_ready(struct dp_compression *p, int b);

/* Replaces this rank's gradient of bucket b by its sum. A step that is skipped (step
 * parameters->skip, equal on all ranks) sends nothing and changes nothing. Collective. */
DP_CHECKED dp_status dp_compression_sum(struct dp_compression *compression, int b,
                                        enum dp_keep keep);

/* Bytes that this rank sends in a step for all buckets but the tail: with the compressor, and about
 * how many with the strategy alone. Local. */
void dp_compression_wire(const struct dp_compression *p, enum dp_keep keep, uint64_t *with,
                         uint64_t *without);

/* Elements that the compressor of a valid name would remember on each of several ranks, of a model
 * with these tensors: residuals, each rank's own, and start vectors. Without any ranks. */
struct dp_compression_size {
    size_t residuals, warm;
};

struct dp_compression_size dp_compression_measure(const char *compressor,
                                                  const struct dp_tensor *tensors, int tensor_count,
                                                  size_t trained);

/* Bytes that it would take of the memory of a device, where that is not the host's, for what so
 * many ranks send (bounce_buffer.h). */
size_t dp_compression_codes(const char *compressor, const struct dp_bucket_plan *plan, int ranks);

/* An array that a resumed run needs. Its name begins with DP_COMPRESSION_NAME. */
#define DP_COMPRESSION_NAME "compressor."

struct dp_compression_array {
    const char *name;
    float *data;  /* the host's: fetched from the device before, put back after */
    float *there; /* the device's; often the same */
    size_t count;
    bool same;   /* on all ranks; else this rank's own */
    bool owners; /* what this rank left out of sums that it owns; the array before it is for what it
                  * left out of its own gradient, in the same unit */
};

/* Writes them, and returns how many there are. NULL has none. Local. */
int dp_compression_arrays(const struct dp_compression *p,
                          struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS]);

/* All of them, from the device and to it; between steps, done when they return. NULL has none.
 * Local. */
DP_CHECKED dp_status dp_compression_fetch(const struct dp_compression *compression);
DP_CHECKED dp_status dp_compression_put(const struct dp_compression *compression);

/* Begins anew: nothing is remembered of any bucket. Between steps; NULL has nothing. Local. */
DP_CHECKED dp_status dp_compression_forget(const struct dp_compression *compression);

#endif
