/*
 * process.h - whether a process that is no child of this one has ended.
 *
 * It has as soon as nothing of it runs any more, also while its parent has not yet asked how it
 * ended (a zombie); and its number may go to another process without being taken for it.
 */
#ifndef DP_BASE_PROCESS_H
#define DP_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Which process it is, among all that may see each other: what ranks tell each other. */
struct dp_process {
    uint64_t space; /* of process numbers: containers have their own */
    int64_t id;
};

/* This one. */
struct dp_process dp_process_self(void);

/* Zeroed: no process. */
struct dp_process_watch {
    int64_t id;
    int fd;           /* owned: refers to the process (Linux 5.3); -1: not to be had */
    uint64_t started; /* without it: when the process started, which tells it from later ones */
};

/* Begins to watch the process of that number. False, and nothing to give back: none is to be seen
 * that has not ended. */
bool dp_process_watch(struct dp_process_watch *watch, int64_t id);

/* False, too, where nothing can be found out just now. */
bool dp_process_ended(const struct dp_process_watch *watch);

void dp_process_unwatch(struct dp_process_watch *watch);

#endif
