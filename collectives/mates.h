/*
 * mates.h - the processes of this node's ranks, and whether one has died without a word: whoever
 * waits for it would wait until mpirun ends the job, and nobody would say why.
 *
 * A rank that leaves by itself, because of an error that it has told, says so in memory that its
 * mates can read: of that one nothing more need be said.
 */
#ifndef DP_COLLECTIVES_MATES_H
#define DP_COLLECTIVES_MATES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/process.h"
#include "base/status.h"

/* How to find a process: what each rank tells all others. */
struct dp_process {
    uint64_t space; /* of process numbers: containers have their own */
    int64_t id;
};

struct dp_mate {
    struct dp_process_watch watch; /* of its process */
    bool watched;                  /* false: on another node, or not to be seen from here */
    const atomic_int *left;        /* borrowed; not 0: it has left by itself. May be NULL */
};

struct dp_mates {
    int self, size;
    struct dp_mate *mates; /* owned; [size] */
};

/* This process. */
struct dp_process dp_process_self(void);

/* Watches nobody yet. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_mates_init(struct dp_mates *mates, int size, int self);
void dp_mates_fini(struct dp_mates *mates);

/* Watches a rank of this node, if its process can be seen. */
void dp_mates_watch(struct dp_mates *mates, int rank, struct dp_process process,
                    const atomic_int *left);

/* The first rank that has died without a word, or -1. */
int dp_mates_lost(const struct dp_mates *mates);

/* Whether this rank is the one to tell of it: the first of the node that is left. */
bool dp_mates_tells(const struct dp_mates *mates);

#endif
