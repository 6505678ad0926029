/*
 * live.h - what a rank shows of itself while it runs, to programs of the same user on its host
 * (ddp_top).
 *
 * It lies in a file in memory that has no name: the process has it open, so others find it among
 * its open files in /proc, and it is gone when the process is. A rank writes a few words there and
 * asks nobody; readers cost it nothing.
 */
#ifndef DP_BASE_SYSTEM_LIVE_H
#define DP_BASE_SYSTEM_LIVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/files/file.h"
#include "base/trace.h"

enum { DP_LIVE_TEXT = 64 };

/* Fixed from the beginning. A folder is that of the run; empty: it writes none. */
struct dp_live_who {
    char name[DP_LIVE_TEXT], host[DP_LIVE_TEXT];
    char job[DP_PATH_BYTES];    /* the same for ranks of one job, and for no other on this host */
    char folder[DP_PATH_BYTES]; /* absolute */
    int64_t process;
    int rank, ranks;
    int64_t steps; /* the last one planned */
};

struct dp_live {
    char magic[16]; /* says which layout this is */
    struct dp_live_who who;
    struct dp_trace_mark mark;         /* of the main thread */
    _Atomic double samples_per_second; /* of all ranks, lately; 0: not known yet */
    _Atomic double rows_per_second;    /* of this rank */
    _Atomic double exposed;            /* share of the time that waits for communication */
    _Atomic double loss;               /* of the last step; NaN: not known */
    _Atomic double batch;              /* rows of a step over all ranks */
    atomic_llong memory;               /* resident bytes */
};

/* The file of this process; zeroed: there is none. */
struct dp_live_file {
    struct dp_live *live; /* NULL: none */
    int file;
};

/* Makes it, and publishes the calling thread's mark there. Where the system has no such files there
 * is none. */
void dp_live_open(struct dp_live_file *out, const struct dp_live_who *who);

/* Call it on the same thread. */
void dp_live_close(struct dp_live_file *file);

/*
 * A copy of what a process shows: false where it shows nothing, or may not be asked. Texts end, but
 * are not cleaned (base/text.h).
 */
bool dp_live_read(int64_t process, struct dp_live *out);

#endif
