/*
 * run.h - one training run from its command line to its report.
 *
 * setup.c makes everything, run.c is the loop over steps, finish.c writes what came of it, check.c
 * answers --check and --dry-run.
 */
#ifndef DP_RUNTIME_RUN_H
#define DP_RUNTIME_RUN_H

#include "base/file.h"
#include "base/machine.h"
#include "collectives/world.h"
#include "runtime/baseline.h"
#include "runtime/cli.h"
#include "runtime/config.h"
#include "runtime/faults.h"
#include "runtime/overlap.h"
#include "runtime/report/ledger.h"
#include "runtime/report/metrics.h"
#include "runtime/report/progress.h"
#include "runtime/report/summary.h"
#include "runtime/trainer.h"

/* What the ranks tell each other about themselves at the start. */
struct dp_place {
    char host[64], cpus[128], isa[16];
    unsigned char cpuset[DP_CPUSET_BYTES];
    int threads, cores;
};

struct dp_training {
    const struct dp_cli *cli; /* borrowed */
    struct dp_world *world;   /* borrowed */
    struct dp_config *config;
    char *config_text; /* resolved */
    char *fault_text;  /* DP_FAULT of rank 0 */
    struct dp_fault *faults;
    struct dp_machine *machine;
    struct dp_place *places; /* [ranks] */
    int threads;             /* of this rank */
    const struct dp_device *device;
    struct dp_model *model;
    struct dp_node_memory data_memory;
    struct dp_dataset data;
    struct dp_trainer *trainer;
    struct dp_overlap overlap;
    struct dp_ledger ledger;
    struct dp_metrics metrics;
    bool metrics_open;
    struct dp_progress progress;
    char out[DP_PATH_BYTES]; /* rank 0 only writes there; elsewhere, or without a run: empty */
    bool made_out;           /* out was not there before */
    char started[32];
    uint64_t total_steps, config_steps, steps_per_epoch;
    uint64_t baseline_at; /* step behind which the first one is measured */
    struct dp_baseline before, after;
    uint64_t wire_bytes;  /* of this rank, in steps */
    double baseline_rate; /* from --baseline; 0: measure */
    double first_step_s;
    double train_loss_sum; /* since the last evaluation */
    uint64_t train_loss_steps;
    double last_train_loss;
    struct dp_evaluation evaluation;
    enum dp_run_exit exit;
    uint64_t rate_ns, rate_samples; /* for the progress line: since when, how many */
};

static inline bool dp_run_leads(const struct dp_training *run)
{
    return run->world->all->rank == 0;
}

/* Gives the resolved text of --config to all ranks; run->config. Collective. */
DP_CHECKED dp_status dp_run_configure(struct dp_training *run);

/* Everything before the first step. Collective. */
DP_CHECKED dp_status dp_run_setup(struct dp_training *run);
void dp_run_teardown(struct dp_training *run);

/* The data set into memory; run->data. Collective. */
DP_CHECKED dp_status dp_run_load_data(struct dp_training *run);

/* The whole run. Collective. */
DP_CHECKED dp_status dp_run_train(struct dp_training *run);

/* Saves a checkpoint (rank 0). Collective in its result. */
DP_CHECKED dp_status dp_run_save(struct dp_training *run);

/* The last checkpoint, run.json and the table, after the last step. Collective. */
DP_CHECKED dp_status dp_run_finish(struct dp_training *run);

/* Refuses, with its place, a name that no plug-in has: before any data is read. */
DP_CHECKED dp_status dp_run_check_names(const struct dp_config *config);

/* --check: no ranks. --dry-run: behind setup. --data-only: instead of training. */
DP_CHECKED dp_status dp_run_check(const struct dp_cli *cli);
void dp_run_describe(struct dp_training *run);
DP_CHECKED dp_status dp_run_data_only(struct dp_training *run);

/* Whether every rank ends with this status by itself, since all decide it alike; otherwise this
 * rank has to end the others. */
bool dp_run_together(dp_status status);

/* All of it: what main() calls. */
DP_CHECKED dp_status dp_run_main(const struct dp_cli *cli, struct dp_world *world);

#endif
