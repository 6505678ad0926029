/*
 * memory_limit.h - how much memory this process's host can still give: what is free, and what the
 * control groups leave that this process is in.
 *
 * Running out of it is no failed allocation: Linux gives addresses at once and memory when it is
 * touched, and kills a process where there is none. So whoever needs much asks first.
 */
#ifndef DP_BASE_MEMORY_LIMIT_H
#define DP_BASE_MEMORY_LIMIT_H

#include <stddef.h>
#include <stdint.h>

enum { DP_MEMORY_LIMITS = 16 };

/* All sizes are bytes. */
struct dp_memory_limit {
    uint64_t id;      /* equal for the processes of a host that it limits together; 0: the host */
    size_t total;     /* what it gives altogether */
    size_t available; /* what it can still give: file cache, which gives way, counts as free */
    size_t swap;      /* how much more there is of that, on disk: an upper bound */
    char name[160];   /* "control group /FOLDER"; of the host: empty */
};

/* Those that are set: of the host, then of each control group (version 2, or the memory controller
 * of version 1), innermost first. What the system does not say is no limit. */
struct dp_memory_limits {
    int count;
    struct dp_memory_limit limit[DP_MEMORY_LIMITS];
};

/* `root` stands in front of all paths, for tests that describe another machine; "": this one. */
void dp_memory_limits_read(const char *root, struct dp_memory_limits *limits);

/* Bytes of address space that this process may still take (ulimit -v); SIZE_MAX: no limit. */
size_t dp_memory_addresses_left(const char *root);

#endif
