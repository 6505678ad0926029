/*
 * pace.h - how many threads prepare batches: as few as keep up with the steps.
 *
 * A step leaves so much time for the next batch as it computes. The threads' work for a batch,
 * divided by that time, is how many are needed; while steps wait, at least one more is tried. The
 * number changes no bit of a batch.
 */
#ifndef DP_RUNTIME_DATA_STREAM_PACE_H
#define DP_RUNTIME_DATA_STREAM_PACE_H

#include <stdint.h>

/* Begins with zeros, but for the first two. */
struct dp_pace {
    int most;                                    /* threads that there are */
    int active;                                  /* that work: 1 to most */
    uint64_t batches, wait_ns, step_ns, work_ns; /* since the number was last looked at */
};

/*
 * A batch was given out.
 *
 *   wait_ns  that the caller waited for it
 *   step_ns  between the batch before and the call for this one
 *   work_ns  of all threads since the batch before
 *
 * Returns the number of threads from now on.
 */
int dp_pace_note(struct dp_pace *pace, uint64_t wait_ns, uint64_t step_ns, uint64_t work_ns);

#endif
