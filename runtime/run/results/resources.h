/*
 * resources.h - what a rank uses while it trains: processor, memory, network, disks, energy, and
 * how steady its rate is. It also shows itself to others (base/system/live.h).
 *
 * A look at the clock after each step; ten times a second one at memory, once a second one into
 * /proc, and some files of /proc when a stretch of steps begins and ends. What was used is counted
 * in stretches of steady steps: evaluations and measuring are left out.
 */
#ifndef DP_RUNTIME_RUN_RESULTS_RESOURCES_H
#define DP_RUNTIME_RUN_RESULTS_RESOURCES_H

#include "base/system/live.h"
#include "base/system/usage.h"
#include "base/system/worker.h"
#include "runtime/report/ledger.h"
#include "runtime/report/resources/gpu_use.h"
#include "runtime/report/resources/memory_use.h"
#include "runtime/report/resources/stability.h"
#include "runtime/run/job.h"

struct dp_resources {
    struct dp_live_file live;
    const char *cpus; /* borrowed: of this rank; NULL: ranks that do not train may share them */
    const struct dp_device *device; /* borrowed; NULL before dp_resources_begin() */
    struct {
        uint64_t ns, exposed_ns, rows, samples; /* of about the last two seconds */
    } recent;
    uint64_t exposed_ns; /* of the ledger, when the last step ended */
    uint64_t shown_ns;   /* when it last showed these, and looked at memory; 0: not yet */
    struct dp_usage_brief brief, brief_at; /* at the last look, and at that for causes */
    uint64_t brief_ns;                     /* when that was; 0: not in this stretch */
    uint64_t memory_looks, look_ns;        /* how many, and what they took in all */
    struct dp_memory_use memory;
    struct dp_stability stability;
    struct {
        bool on; /* in a stretch, that began so: */
        struct dp_usage from;
        uint64_t from_ns;
        double from_joules;
        int64_t from_busy_ns; /* of the rank's CPUs; below 0: not known */
        struct dp_usage sum;  /* of those before */
        uint64_t ns, steps, samples;
        double joules;
        int64_t busy_ns; /* below 0: not known */
        uint64_t copied_from[DP_COPY_DIRECTIONS], copied[DP_COPY_DIRECTIONS]; /* of the device */
    } used;
    struct dp_energy energy;
    struct {
        struct dp_gpu_sensors *sensors; /* owned; NULL: there is no GPU, or it has none */
        struct dp_worker *worker;       /* owned: reads them, since that may take long */
        bool asked;                     /* `reading` is, or will be, of this stretch */
        struct dp_gpu_reading reading;
        uint64_t read_ns;
        struct dp_gpu_use use;
    } gpu;
    double target_s; /* when the target was reached, from the start of the process; 0: not yet */
    bool over_budget, leaks; /* it has been warned of that */
};

/* Before the first step. */
void dp_resources_begin(struct dp_resources *resources, const struct dp_run_job *job);

/* After a step of this rank, which the ledger has. */
void dp_resources_step(struct dp_resources *resources, const struct dp_run_job *job,
                       const struct dp_ledger *ledger);

/* Before something that is no step: ends a stretch, which the next step begins again. */
void dp_resources_pause(struct dp_resources *resources);

/* The loss of the last step. */
void dp_resources_loss(struct dp_resources *resources, double loss);

/* An evaluation with this test accuracy, or NaN. */
void dp_resources_evaluated(struct dp_resources *resources, const struct dp_run_job *job,
                            double accuracy);

/* On the thread of dp_resources_begin(). */
void dp_resources_end(struct dp_resources *resources);

/* ---- the report ---- */

/* What this rank has used. */
void dp_resources_describe(struct dp_resources *resources, const struct dp_run_job *job,
                           const struct dp_ledger *ledger, struct dp_run_rank *rank);

/* What the run costs, whose rate and seconds the summary has. */
void dp_resources_cost(const struct dp_resources *resources, const struct dp_run_job *job,
                       struct dp_run_summary *summary);

/* Rank 0: what follows for the whole run, whose ranks the summary has. Warns of a rate that drifts.
 * Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_resources_summarize(const struct dp_resources *resources,
                                            const struct dp_run_job *job,
                                            struct dp_run_summary *summary);

#endif
