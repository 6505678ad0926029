/*
 * fault.h - faults that a schedule causes on purpose, to test what a run does about them.
 *
 * The environment variable DP_FAULT holds "name:key=value,key=value", or several of them with
 * semicolons between, and maybe one at the end. Faults are only parsed here;
 * runtime/run/fault_injection.c and base/files/disk.c apply them.
 *
 * To add one: a row in fault.c with its keys, fields for new keys, and the code that applies it.
 */
#ifndef DP_BASE_FAULT_H
#define DP_BASE_FAULT_H

#include <stdbool.h>

#include "base/plugin.h"
#include "base/status.h"

#define DP_FAULT_VARIABLE "DP_FAULT"

struct dp_fault {
    const struct dp_plugin *kind; /* &dp_fault_flip, and so on */
    struct dp_fault *next;        /* owned; NULL after the last */
    int step, rank; /* it happens after this step (from 1; slow: 0 is every step), on this rank */
    int bucket;     /* flip of a gradient: of this one. kill, exit, and what makes a rank late or
                 * stuck: 0 or above: in that step instead, before it waits for the bucket's sum */
    int write; /* torn, full, eio; kill, stop where it is above 0: at this call that changes a file
                 * instead, from 1 (base/files/disk.h) */
    int alloc; /* nomem: at this allocation instead, from 1 */
    int beat;  /* stop, where it is above 0: after this part of what ranks measure together
                * instead, from 1 (dp_trace_at_beat()); slow: 1: at each part instead, from the
                * start on (dp_trace_at_beats()) */
    int ms;    /* slow */
    int mb;    /* leak */
    int what;  /* flip: DP_FLIP_... */
    const char *tensor; /* flip: as named in model.safetensors */
    int element, bit;   /* flip: in the order of model.safetensors; 0 is the lowest bit */
    bool due, happened; /* so far, of what happens in or after a step, on this rank: its time came;
                         * and it found what it changes */
};

/* What a flip changes: a weight or running statistic; the optimizer's first state of a weight; the
 * next message of at least DP_MESSAGE_CHECKED bytes that the rank receives (message_check.h); an
 * element of the sum of a bucket, in the step, before it is used; a byte of the training set's
 * images in the memory of the rank's host. */
enum { DP_FLIP_WEIGHT, DP_FLIP_OPTIMIZER, DP_FLIP_MESSAGE, DP_FLIP_GRADIENT, DP_FLIP_DATA };

extern const struct dp_plugin dp_fault_flip, dp_fault_kill, dp_fault_stop, dp_fault_slow,
    dp_fault_spin, dp_fault_lock, dp_fault_swap, dp_fault_exit, dp_fault_leak, dp_fault_torn,
    dp_fault_full, dp_fault_eio, dp_fault_nomem;
extern struct dp_plugin_family dp_fault_kinds;

/*
 * Parses faults.
 *
 *   text  as in DP_FAULT; empty: no faults
 *   out   out  the first fault, NULL where there is none. Owned by the caller. Set only on success
 *
 * Errors: DP_ERR_CONFIG (unknown fault, unknown key, bad value; reported in one line),
 * DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_faults_create(const char *text, struct dp_fault **out);

/* Whether it happens after a step, where all ranks synchronise for it. */
bool dp_fault_is_between_steps(const struct dp_fault *fault);

/* Releases this fault and all after it. NULL is allowed. */
void dp_faults_destroy(struct dp_fault *first);

#endif
