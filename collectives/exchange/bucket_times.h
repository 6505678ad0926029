/*
 * bucket_times.h - when the buckets of this rank were ready, sent and summed, and how long the step
 * waited for them: sums over all steps, and the times themselves of some of them, to be compared
 * with those of other ranks.
 *
 * Recording a bucket costs a few stores. Which steps are kept depends on their number alone, so
 * that ranks that do the same steps keep the same ones: as many as there is room for, evenly spaced
 * over all.
 */
#ifndef DP_COLLECTIVES_EXCHANGE_BUCKET_TIMES_H
#define DP_COLLECTIVES_EXCHANGE_BUCKET_TIMES_H

#include <stdint.h>

#include "base/status.h"

enum { DP_BUCKET_TIMES_KEPT = 2048 }; /* times of buckets that are kept, at least a step's */

/* Of one bucket, summed over `steps` steps. */
struct dp_bucket_sums {
    uint64_t steps;
    uint64_t ready_ns, sent_ns, done_ns; /* since the step's begin */
    uint64_t exposed_ns;                 /* that the step waited for it */
    uint64_t encode_ns, decode_ns;       /* that a compressor took of the time from sent to done */
};

/* Of one bucket in one step, by dp_now_ns(). */
struct dp_bucket_time {
    uint64_t ready_ns;               /* its gradient was final on this rank */
    uint64_t wait_ns, wait_ended_ns; /* the step waited for its sum */
};

struct dp_bucket_times {
    int count;                    /* buckets of a step */
    struct dp_bucket_sums *sums;  /* [count] */
    uint64_t steps;               /* begun since the last restart */
    uint64_t end_wait_ns;         /* that steps waited for other ranks after their last bucket */
    int most, kept;               /* steps that fit; that are kept */
    uint64_t every;               /* each so many steps one is kept */
    struct dp_bucket_time *times; /* [kept][count] */
    struct {
        uint64_t begin_ns; /* of the step that it belongs to */
        int row;           /* of `times`; -1: not kept; -2: of a step before the restart */
    } * now;               /* [count]: the bucket that is being shared */
    uint64_t begin_ns;     /* of this step */
    int row;               /* as above */
};

/* For steps of `count` buckets. Owned by the caller (dp_bucket_times_destroy). Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_bucket_times_create(int count, struct dp_bucket_times **out);
void dp_bucket_times_destroy(struct dp_bucket_times *times);

/* Forgets all steps; buckets that are being shared do not count. */
void dp_bucket_times_restart(struct dp_bucket_times *times);

/* A step begins, and began at that time. */
void dp_bucket_times_begin(struct dp_bucket_times *times, uint64_t begin_ns);

/* Bucket b is submitted. */
void dp_bucket_times_submitted(struct dp_bucket_times *times, int b);

/* Its job has ended, and the step has waited for it: once for each time it was submitted. */
void dp_bucket_times_summed(struct dp_bucket_times *times, int b, const struct dp_bucket_time *time,
                            uint64_t sent_ns, uint64_t done_ns);

/* What coding took in its job: with dp_bucket_times_summed(), where a compressor sums it. */
void dp_bucket_times_coded(struct dp_bucket_times *times, int b, uint64_t encode_ns,
                           uint64_t decode_ns);

/* The step has waited for it once more, for its weights. */
void dp_bucket_times_exposed(struct dp_bucket_times *times, int b, uint64_t ns);

#endif
