/*
 * trace_file.h - events of all ranks as a Chrome trace, which Perfetto and chrome://tracing open.
 * Format: "Trace Event Format", Google, 2016: an object with `traceEvents`.
 *
 *   process    a rank, pid its number
 *   thread     a lane: compute, communication, input, checkpoint, and more of a kind as "input 2";
 *              GPU compute, GPU copy, GPU communication where streams of a GPU have spans
 *   X          a span, by its phase, or a job: "bucket 3", "publish 3", "call"; or what a stream
 *              does: "forward 3" of layer 3, "sum 3" of bucket 3
 *   s, f       an arrow, from where a bucket was ready to its job
 *   C          bytes that a rank has sent in a step, samples/s of a step
 *
 * Times are microseconds since the first rank began to record, by the clock of rank 0.
 */
#ifndef DP_RUNTIME_TIMELINE_TRACE_FILE_H
#define DP_RUNTIME_TIMELINE_TRACE_FILE_H

#include "base/files/file.h"
#include "base/trace_ring.h"

struct dp_trace_file {
    struct dp_file file;
    char path[DP_PATH_BYTES];
    uint64_t base_ns; /* the time 0 */
    bool any;         /* something has been written */
    dp_status status; /* of the first write that failed */
};

/* What the file is about. */
struct dp_trace_title {
    const char *name, *version; /* of the run, and the program; borrowed */
    uint64_t first, last;       /* its steps, from 1 */
    uint64_t base_ns;
};

/* Creates or empties it. After success finish must be called. Errors: DP_ERR_WRITE,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_trace_file_create(struct dp_trace_file *file, const char *path,
                                          const struct dp_trace_title *title);

/* Adds a rank, with events [count] whose times are by the clock of base_ns. A write that fails is
 * an error of finish. */
void dp_trace_file_add(struct dp_trace_file *file, int rank, const char *host,
                       const struct dp_trace_event *events, size_t count);

/* Closes the file. Errors: DP_ERR_WRITE. */
DP_CHECKED dp_status dp_trace_file_finish(struct dp_trace_file *file);

#endif
