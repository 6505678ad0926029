/*
 * memory_limit.h - how much memory this process's host can still provide: what is free, and what is
 * left to the control groups of this process.
 *
 * No allocation fails when memory runs out: Linux provides addresses immediately and memory when it
 * is touched, and kills a process when there is none. So code that needs much memory checks first.
 */
#ifndef DP_BASE_SYSTEM_MEMORY_LIMIT_H
#define DP_BASE_SYSTEM_MEMORY_LIMIT_H

#include <stddef.h>
#include <stdint.h>

enum { DP_MEMORY_LIMITS = 16 };

/* All sizes are bytes. */
struct dp_memory_limit {
    uint64_t id;      /* the same for all processes of a host that share the limit; 0: the host */
    size_t total;     /* the limit */
    size_t available; /* still available: file cache, which can be dropped, counts as free */
    size_t swap;      /* an upper bound of what more is available on disk */
    char name[160];   /* "control group /FOLDER"; empty for the host */
};

/* The limits that are set: of the host, then of each control group (version 2, or the memory
 * controller of version 1), innermost first. What the system does not report is no limit. */
struct dp_memory_limits {
    int count;
    struct dp_memory_limit limit[DP_MEMORY_LIMITS];
};

/* `root` is a prefix of all paths, for tests that describe another machine; "": this one. */
void dp_memory_limits_read(const char *root, struct dp_memory_limits *limits);

/* Bytes of address space that this process may still use (ulimit -v); SIZE_MAX: no limit. */
size_t dp_memory_addresses_left(const char *root);

#endif
