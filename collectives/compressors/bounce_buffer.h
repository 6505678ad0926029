/*
 * bounce_buffer.h - what a compressor sends: an array on the device that makes it, and a copy on
 * the host that ranks exchange. So of a gradient on a GPU only codes cross to the host.
 *
 *      gradient --encode--> there --out--> host --ranks--> host --in--> there --decode--> gradient
 *
 * Where the device uses the host's memory they are one array, and nothing is copied. All functions
 * but wait() queue their work on comm->codes.
 */
#ifndef DP_COLLECTIVES_COMPRESSORS_BOUNCE_BUFFER_H
#define DP_COLLECTIVES_COMPRESSORS_BOUNCE_BUFFER_H

#include "collectives/strategies/comm.h"

struct dp_bounce_buffer {
    struct dp_comm *comm; /* borrowed */
    char *host, *there;   /* owned; [bytes] */
    struct dp_event *sent;
    bool shared;
};

/*
 * shared: `host` is from dp_group_memory(); the call is then collective. Zeroed. On error nothing
 * is left allocated, nothing is logged, and the caller must call dp_group_leave(). Errors:
 * DP_ERR_NOMEM, those of the device.
 */
DP_CHECKED dp_status dp_bounce_buffer_open(struct dp_bounce_buffer *bounce, struct dp_comm *comm,
                                           size_t bytes, bool shared);
/* Does nothing for a zeroed one. */
void dp_bounce_buffer_close(struct dp_bounce_buffer *bounce);

/* Copies [at, at + bytes) to the host, or from it. */
DP_CHECKED dp_status dp_bounce_buffer_out(struct dp_bounce_buffer *bounce, size_t at, size_t bytes);
DP_CHECKED dp_status dp_bounce_buffer_in(struct dp_bounce_buffer *bounce, size_t at, size_t bytes);

/* Waits until all work queued on comm->codes is done. Errors: DP_ERR_CANCELLED. */
DP_CHECKED dp_status dp_bounce_buffer_wait(struct dp_bounce_buffer *bounce);

/* all [ranks * bytes] = [at, at + bytes) of every rank's host array. `reaches`: ranks read each
 * other's arrays (dp_group_reaches), after one barrier. Peers may then read this part until the
 * next gather returns, so alternate between two parts. Collective. */
DP_CHECKED dp_status dp_bounce_buffer_gather(struct dp_bounce_buffer *bounce, size_t at,
                                             size_t bytes, bool reaches, char *all);

/* Memory of the device on which codes are made, for data that stays there. Released with
 * dp_codes_release(). Zeroed; NULL when there is none left. */
void *dp_codes_alloc(const struct dp_comm *comm, size_t bytes);
void dp_codes_release(const struct dp_comm *comm, void *memory); /* NULL is allowed */

#endif
