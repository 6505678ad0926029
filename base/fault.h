/*
 * fault.h - faults by schedule: to see what a run does when something breaks, on purpose.
 *
 * The environment variable DP_FAULT holds "name:key=value,key=value", or several of them with
 * semicolons between. A fault is only read here: what it does to weights, ranks or files is known
 * to who applies it (runtime/run/fault_injection.c).
 *
 * To add one: a row in fault.c with its keys, fields for what is new, and who applies it.
 */
#ifndef DP_BASE_FAULT_H
#define DP_BASE_FAULT_H

#include "base/plugin.h"
#include "base/status.h"

#define DP_FAULT_VARIABLE "DP_FAULT"

struct dp_fault {
    const struct dp_plugin *kind; /* &dp_fault_flip */
    struct dp_fault *next;        /* owned; NULL behind the last */
    int step, rank;               /* it happens behind this step (from 1), on this rank */
    const char *tensor;           /* flip: as named in model.safetensors */
    int element, bit;             /* flip: in the order of model.safetensors; 0 is the lowest bit */
};

extern const struct dp_plugin dp_fault_flip;
extern struct dp_plugin_family dp_fault_kinds;

/*
 * Reads faults.
 *
 *   text  as in DP_FAULT; empty: no faults
 *   out   out  the first fault, NULL where there is none. Owned by the caller. Set only on success
 *
 * Errors: DP_ERR_CONFIG (unknown fault, unknown key, bad value; told in one line), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_faults_create(const char *text, struct dp_fault **out);

/* Releases this fault and all behind it. NULL is allowed. */
void dp_faults_destroy(struct dp_fault *first);

#endif
