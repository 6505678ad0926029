/*
 * tracing.h - `--trace FILE:steps=A-B`: records what all ranks do in some steps, and has rank 0
 * write it as a file (trace_file.h). Before those steps and after them it costs nothing.
 */
#ifndef DP_RUNTIME_TIMELINE_TRACING_H
#define DP_RUNTIME_TIMELINE_TRACING_H

#include "base/files/file.h"
#include "collectives/core/clock.h"
#include "collectives/exchange/exchange.h"
#include "kernels/device.h"

/* What a user asks for. */
struct dp_trace_request {
    bool on;
    char path[DP_PATH_BYTES]; /* empty: trace.json in the folder of the run */
    uint64_t first, last;     /* steps, from 1; 0: a few of those that are steady */
};

/* Reads "FILE", "FILE:steps=A-B" or ":steps=A-B". Errors: DP_ERR_USAGE. */
DP_CHECKED dp_status dp_trace_request_read(const char *text, struct dp_trace_request *out);

/* Whether a run that goes on after step `done` has done all that was asked for before. */
bool dp_trace_request_passed(const struct dp_trace_request *request, uint64_t done, uint64_t total);

/* What a run has. */
struct dp_tracing_config {
    const char *name, *version; /* of the run, and the program; borrowed */
    const char *folder;         /* of the run; NULL or empty: it has none */
    const char *(*host_of)(const void *context, int rank);
    const void *context;
    uint64_t done, total;     /* steps: done by now, and in all */
    struct dp_stream *stream; /* on which this rank computes; borrowed */
    size_t layers;            /* that are computed in a step: layers times passes */
};

struct dp_tracing;

/*
 * Collective; ranks must be asked for the same. A file that cannot be written is noticed here,
 * before the first step.
 *
 * Errors, the same on all ranks: DP_ERR_USAGE (the run does none of these steps, or there is no
 * folder for the file), DP_ERR_WRITE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_tracing_create(const struct dp_trace_request *request,
                                       const struct dp_tracing_config *config,
                                       struct dp_exchange *exchange, struct dp_tracing **out);

/* Records no more, and releases what it holds. Threads that record must have ended. NULL is
 * allowed. */
void dp_tracing_destroy(struct dp_tracing *tracing);

/* Around step number `step`, from 1. `samples_per_second`: of that step, over all ranks. */
void dp_tracing_before(struct dp_tracing *tracing, uint64_t step);
void dp_tracing_after(struct dp_tracing *tracing, uint64_t step, double samples_per_second);

/* Between steps: nothing is recorded until it is called again with false. */
void dp_tracing_pause(const struct dp_tracing *tracing, bool pauses);

/* Whether there is something to write: the last of the steps is done, or, at the end of the run,
 * any of them. The same on all ranks. */
bool dp_tracing_due(const struct dp_tracing *tracing, bool ends);

/* Collective, between steps, once. Errors, the same on all ranks: DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_tracing_write(struct dp_tracing *tracing, const struct dp_clock *clock);

/* Rank 0: where the file is. */
const char *dp_tracing_path(const struct dp_tracing *tracing);

#endif
