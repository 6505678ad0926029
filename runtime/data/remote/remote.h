/*
 * remote.h - files of a place, by requests that are repeated until they succeed or time is up.
 *
 * A request that breaks off goes on where it did. Between tries pauses grow from a tenth of a
 * second to five. A server that sends nothing for `patience_s` is given up.
 */
#ifndef DP_RUNTIME_DATA_REMOTE_REMOTE_H
#define DP_RUNTIME_DATA_REMOTE_REMOTE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct dp_remote;

/* dir: as dp_place_read() takes it. A place that is reached without encryption is a warning.
 * Errors: DP_ERR_CONFIG, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_remote_open(const char *dir, double patience_s, struct dp_remote **out);

/* NULL is allowed. */
void dp_remote_close(struct dp_remote *remote);

/* The address as the user wrote it. */
const char *dp_remote_shown(const struct dp_remote *remote);

struct dp_remote_want {
    const char *name;    /* of a file */
    uint64_t begin, end; /* its bytes [begin, end); end 0: all */
    uint64_t total;      /* that the file has; 0: not known */
    dp_status (*take)(void *context, const void *data, size_t bytes); /* gets them, in order */
    void *context;
};

/*
 * Fetches. Several threads may at once, each over a connection of its own.
 *
 * Errors: DP_ERR_NOINPUT (there is no such file, it is refused, or the server is given up),
 * DP_ERR_DATA (the file has another length), DP_ERR_NOMEM, those of take().
 */
DP_CHECKED dp_status dp_remote_get(struct dp_remote *remote, const struct dp_remote_want *want);

#endif
