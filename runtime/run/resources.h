/*
 * resources.h - what a rank shows of itself while it trains (base/system/live.h).
 *
 * A look at the clock after each step; now and then a few words for others, and a look into /proc.
 */
#ifndef DP_RUNTIME_RUN_RESOURCES_H
#define DP_RUNTIME_RUN_RESOURCES_H

#include "base/system/live.h"
#include "runtime/report/ledger.h"
#include "runtime/run/job.h"

struct dp_resources {
    struct dp_live_file live;
    struct {
        uint64_t ns, exposed_ns, rows, samples; /* of about the last two seconds */
    } recent;
    uint64_t exposed_ns; /* of the ledger, when the last step ended */
    uint64_t shown_ns;   /* when it last showed these; 0: not yet */
    uint64_t looked_ns;  /* when it last looked at its memory */
};

/* Before the first step. */
void dp_resources_begin(struct dp_resources *resources, const struct dp_run_job *job);

/* After a step of this rank, which the ledger has. */
void dp_resources_step(struct dp_resources *resources, const struct dp_run_job *job,
                       const struct dp_ledger *ledger);

/* The loss of the last step. */
void dp_resources_loss(struct dp_resources *resources, double loss);

/* On the thread of dp_resources_begin(). */
void dp_resources_end(struct dp_resources *resources);

#endif
