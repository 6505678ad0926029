/*
 * hang_table.h - where the ranks of a job are that makes no progress, and which of them is the
 * cause: of one host, or of all (hang_gather.h).
 *
 * A rank that waits for others is not the cause, nor is one that nobody waits for; one that does
 * anything else, or is stopped, is. Where all wait, those that have come less far are.
 */
#ifndef DP_COLLECTIVES_WORLD_HANG_TABLE_H
#define DP_COLLECTIVES_WORLD_HANG_TABLE_H

#include <stdbool.h>
#include <stddef.h>

enum { DP_HANG_STACKS = 2048 };

/* One rank; plain bytes, which hosts of one architecture exchange. */
struct dp_hang_row {
    int rank;
    bool known;  /* false: it did not answer; then only `rank` and `host` are set */
    bool waits;  /* it runs, and waits for other ranks */
    bool idles;  /* it runs, and waits for work that need not come */
    bool beside; /* it runs, and works for ranks that wait in rounds (DP_WORK_BESIDE()) */
    bool rounds; /* it waits so, or is stopped there */
    char host[64];
    int activity;           /* enum dp_phase */
    char phase[16];         /* "outside" where it is in no span */
    long long step, bucket; /* bucket -1: none */
    double since_s;         /* since it last opened or closed a span */
    char doing[32];         /* "stopped by a signal", "computing", ... */
    char kernel[64];        /* function of the kernel in which it waits; empty: none, or unknown */
    char stacks[DP_HANG_STACKS]; /* dp_stacks_print(); empty: not known */
};

/* Whether that rank keeps the others waiting. */
bool dp_hang_table_blames(const struct dp_hang_row *rows, int count, int rank);

/* The ranks that did not arrive. `others`: rows of more ranks are missing, which nobody can see. */
void dp_hang_table_cause(const struct dp_hang_row *rows, int count, bool others, char *out,
                         size_t size);

/* Prints the rows as a table on stderr: of ranks that are the cause with the stacks of all threads,
 * of others with that of their first. Logs the cause as an error. quiet_s: without progress.
 * resumes: the job is a run that can be gone on with. */
void dp_hang_table_report(const struct dp_hang_row *rows, int count, bool others, double quiet_s,
                          bool resumes);

#endif
