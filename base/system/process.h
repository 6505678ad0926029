/*
 * process.h - whether a process that is not a child of this one has ended.
 *
 * A process that nothing waits for yet (a zombie) has ended. A new process with the same number is
 * not taken for the old one.
 */
#ifndef DP_BASE_SYSTEM_PROCESS_H
#define DP_BASE_SYSTEM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Identifies a process among all that can see each other; ranks exchange it. */
struct dp_process {
    uint64_t space; /* of process numbers: containers have their own */
    int64_t id;
};

/* The calling process. */
struct dp_process dp_process_self(void);

/* When the living process of that number started, in ns since 1970, within some hundredths of a
 * second; 0: none lives; -1: one does, but when it started cannot be found out. */
int64_t dp_process_started_ns(int64_t id);

/* Whether the process of that number has ended, and nobody has waited for it. */
bool dp_process_is_zombie(int64_t id);

/* When the living process of that number started, in the kernel's clock ticks since the host did: a
 * later one with the same number has another; 0: none lives, or that cannot be found out. */
uint64_t dp_process_start(int64_t id);

/* Whether a process of that number ends: it has ended, or is on the way out, or was killed and has
 * yet to notice. True, too, where none is visible. */
bool dp_process_ending(int64_t id);

/* Zeroed: no process. */
struct dp_process_watch {
    int64_t id;
    int fd;           /* owned: refers to the process (Linux 5.3); -1: not available */
    uint64_t started; /* if there is no fd: when the process started, which identifies it */
};

/* Starts to watch the process of that number. False: no living process with it is visible; then
 * there is nothing to release. */
bool dp_process_watch(struct dp_process_watch *watch, int64_t id);

/* Whether it has ended; false, too, if that cannot be found out now. */
bool dp_process_ended(const struct dp_process_watch *watch);

/* What a process is doing. */
struct dp_process_doing {
    char state; /* as in proc(5): R runs, S sleeps, D waits for a device, T is stopped, t is
                       held by a debugger, Z has ended; '?': not known */
    char
        waits[64]; /* the kernel function in which its main thread waits; empty: none, or unknown */
    uint64_t cpu_ns;     /* processor time that it has used */
    uint64_t page_reads; /* pages that it had to wait for, since they were on a disk */
};

void dp_process_look(int64_t id, struct dp_process_doing *out);

void dp_process_unwatch(struct dp_process_watch *watch);

#endif
