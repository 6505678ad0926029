/*
 * run.h - one training run from its command line to its report.
 *
 * setup.c makes everything, out.c the folder, resume.c goes on from a checkpoint, run.c is the loop
 * over steps, save.c writes checkpoints, run_end.c is how it ends before its time, final_report.c
 * writes what came of it, check.c answers --check and --dry-run.
 */
#ifndef DP_RUNTIME_RUN_RUN_H
#define DP_RUNTIME_RUN_RUN_H

#include "base/file.h"
#include "base/lock.h"
#include "base/machine.h"
#include "collectives/world/world.h"
#include "kernels/algo_choices.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/checkpoint/state_dict.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/config/config.h"
#include "runtime/control/stop.h"
#include "runtime/control/stop_criteria.h"
#include "runtime/measure/baseline.h"
#include "runtime/measure/overlap.h"
#include "runtime/report/ledger.h"
#include "runtime/report/metrics.h"
#include "runtime/report/progress.h"
#include "runtime/report/summary.h"
#include "runtime/run/cli.h"
#include "runtime/run/fault_injection.h"
#include "runtime/run/plan.h"
#include "runtime/run/resume.h"
#include "runtime/trainer/async.h"
#include "runtime/trainer/trainer.h"

/* What the ranks tell each other about themselves at the start. */
struct dp_place {
    char host[64], cpus[128], isa[16];
    unsigned char cpuset[DP_CPUSET_BYTES];
    int threads, cores;
    size_t memory; /* of the host, in bytes; 0: not known */
};

struct dp_training {
    const struct dp_cli *cli; /* borrowed */
    struct dp_world *world;   /* borrowed */
    struct dp_stop *stop;     /* borrowed, or NULL: nobody asks */
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
    struct dp_plan plan; /* pinned, or from the cache */
    struct dp_algo_choices
        *algo_choices;                 /* of algorithms: algo_tuning.h; NULL: none are measured */
    char choices_cache[DP_PATH_BYTES]; /* rank 0: where they are kept; empty: nowhere */
    struct dp_trainer *trainer;
    struct dp_async *async; /* NULL: synchronous steps */
    struct dp_overlap overlap;
    struct dp_ledger ledger;
    struct dp_metrics metrics;
    bool metrics_open;
    struct dp_progress progress;
    char out[DP_PATH_BYTES]; /* rank 0 only writes there; elsewhere, or without a run: empty */
    bool made_out;           /* out was not there before */
    struct dp_lock *lock;    /* rank 0: of out; no other run writes there meanwhile */
    char started[32];
    bool begun; /* set up on all ranks: from now on they do not fail alike */
    uint64_t total_steps, config_steps, steps_per_epoch;
    uint64_t baseline_at; /* step behind which the first one is measured */
    struct dp_baseline before, after;
    double baseline_rate; /* from --baseline; 0: measure */
    double first_step_s;
    double train_loss_sum; /* since the last evaluation */
    uint64_t train_loss_steps;
    double last_train_loss;
    struct dp_evaluation evaluation; /* the last one that was recorded */
    struct dp_stop_criteria stop_criteria;
    struct dp_throughput pace;      /* rank 0 */
    bool slow;                      /* rank 0: requests to stop for that */
    bool unwritable;                /* it is stopped since metrics.jsonl cannot be written */
    bool save_wished;               /* by some rank, behind the last step */
    bool hurried;                   /* asked to stop behind the last step: only saves and reports */
    enum dp_run_exit exit;          /* DP_RUN_FINISHED while nothing else ends it */
    char reason[512];               /* unless finished: why, one line */
    struct dp_state_dict kept;      /* everything that a resumed run needs */
    struct dp_resume resume;        /* what this one goes on from */
    bool saves;                     /* there is one state of all ranks */
    bool save_refused;              /* rank 0: that it cannot be has been told */
    struct dp_snapshot *snapshot;   /* what the writer reads */
    struct dp_writer *writer;       /* rank 0 */
    void *save_room;                /* rank 0; through which it writes */
    bool saved, save_must;          /* a snapshot was taken; a failed write ends the run */
    bool save_open;                 /* rank 0: what comes of the last write is not known yet */
    char save_problem[1024];        /* what the writer says of a failed write */
    uint64_t saved_step;            /* of the last snapshot */
    bool saved_early;               /* it says that the run has stopped early */
    uint64_t saved_at;              /* rank 0: step of the newest good checkpoint; 0: none */
    uint64_t rate_ns, rate_samples; /* for the progress line: since when, how many */
    uint64_t *staleness;            /* [staleness_count]: see summary.h */
    size_t staleness_count;
};

static inline bool dp_run_leads(const struct dp_training *run)
{
    return run->world->all->rank == 0;
}

/* Gives the resolved text of --config to all ranks; run->config. Collective. */
DP_CHECKED dp_status dp_run_configure(struct dp_training *run);

/* This rank's cores, and how many threads the ranks that share them leave to it: run->machine,
 * places, threads. Where one rank cannot, none can. Collective. */
DP_CHECKED dp_status dp_run_place(struct dp_training *run);

/* Rank 0: locks --out, if it is there. Errors: DP_ERR_USAGE (another run writes there),
 * DP_ERR_WRITE, DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_lock_out(struct dp_training *run);

/* Rank 0: run->out, which is made here unless it is there, and locked. But for the lock nothing is
 * written into it before the first step is certain, so that a refused run can be tried again.
 * Errors: those of the lock; DP_ERR_USAGE (it holds a run that is not to go on, or checkpoints). */
DP_CHECKED dp_status dp_run_make_out(struct dp_training *run);

/* Gives rank 0's text, or the status that kept it from having one, to all ranks. *text: on others
 * NULL, then owned by the caller (dp_free). Collective. Errors: rank 0's; DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_share_text(struct dp_group *group, char **text, dp_status status);

/* Everything before the first step. Collective. */
DP_CHECKED dp_status dp_run_setup(struct dp_training *run);
void dp_run_teardown(struct dp_training *run);

/* The data set into memory; run->data. Collective. */
DP_CHECKED dp_status dp_run_load_data(struct dp_training *run);

/* Bytes that the configured data set will take of each host's memory, and its training rows; 0
 * where it is not to be had here. */
size_t dp_run_data_bytes(const struct dp_config *config, const struct dp_model *model,
                         size_t *train_count);

/* The whole run. Collective. */
DP_CHECKED dp_status dp_run_train(struct dp_training *run);

/*
 * Checkpoints. dp_run_save() takes a snapshot between two steps, of which a thread of rank 0 makes
 * a checkpoint while training goes on; it first waits for the one before. Does nothing when the
 * last one is of this step. A write that fails is told as a warning, behind the step during which
 * that is found out; dp_run_note_saving() looks.
 *
 * dp_run_saved() does the same, and returns when the checkpoint of this step is on disk, or cannot
 * be: at the end of a run, and when it is to stop. *written, on all ranks alike: DP_OK,
 * DP_ERR_WRITE, DP_ERR_NOMEM, DP_ERR_DIVERGED (weights that are not finite are not saved).
 *
 * All are collective but the last three.
 */
DP_CHECKED dp_status dp_run_open_saving(struct dp_training *run);
DP_CHECKED dp_status dp_run_save(struct dp_training *run);
DP_CHECKED dp_status dp_run_saved(struct dp_training *run, dp_status *written);
void dp_run_note_saving(struct dp_training *run);
void dp_run_settle_saving(struct dp_training *run); /* waits for what is being written; local */
void dp_run_close_saving(struct dp_training *run);

/* The arrays of the model file in a snapshot. */
struct dp_weights dp_run_weights(const struct dp_training *run, const struct dp_snapshot *snapshot);

/*
 * --resume, in this order. Rank 0 finds a whole checkpoint and reads state.json; all ranks learn
 * what they need to know of it, and take over the strategy that `auto` chose then; rank 0 checks
 * that the configuration goes with it, once the data are there; and with the trainer made, all rows
 * of run->kept are taken over.
 *
 * Errors: DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_CONFIG, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_find_checkpoint(struct dp_training *run); /* rank 0 */
DP_CHECKED dp_status dp_run_share_checkpoint(struct dp_training *run);
DP_CHECKED dp_status dp_run_check_checkpoint(struct dp_training *run);
DP_CHECKED dp_status dp_run_restore(struct dp_training *run);
void dp_run_tell_resume(struct dp_training *run); /* rank 0: one line for people */

/*
 * The communication plan: plan.c. Rank 0 reads the file of --plan, and checks that it can be used
 * here; all ranks take it over. Else, where `auto` has to choose, the cache is asked. With the
 * trainer made, a plan for another model is refused, and what was measured goes into the cache.
 *
 * Errors: DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_CONFIG, DP_ERR_UNAVAILABLE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_run_find_plan(struct dp_training *run); /* rank 0 */
DP_CHECKED dp_status dp_run_share_plan(struct dp_training *run);
DP_CHECKED dp_status dp_run_recall_plan(struct dp_training *run);
DP_CHECKED dp_status dp_run_note_plan(struct dp_training *run);

/* Whether the strategy of a plan, made for plan->ranks and nodes, can run here with the options of
 * this run; `from` is for messages. Rank 0. */
DP_CHECKED dp_status dp_run_check_plan(const struct dp_training *run, const struct dp_plan *plan,
                                       const char *from);

/* Rank 0: config.yaml, with the plan as far as it is decided. Errors: DP_ERR_WRITE,
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_run_write_config(struct dp_training *run);

/* How it ends before its last step: run_end.c. These set run->exit and run->reason, alike on all
 * ranks. */

/* What this rank requests goes into the next step's tail. */
void dp_run_request(struct dp_training *run);

/* Rank 0: whether the steady steps are too slow, for the next wishes. */
void dp_run_note_throughput(struct dp_training *run);

/* Some rank was asked to stop: all find out which, and why. Behind the last step the run is only
 * `hurried`, since it has finished. Within local steps nothing ends yet, but for SIGTERM and
 * SIGINT: the request is heard again behind the next step. Collective. */
DP_CHECKED dp_status dp_run_asked(struct dp_training *run);

/* Behind a step: whether training has failed, by step `number` (from 1) of a global batch of
 * `rows`. Local, alike on all ranks. */
void dp_run_judge_step(struct dp_training *run, uint64_t number, size_t rows,
                       const struct dp_step_report *report);

/* Behind a step: what ranks wish [DP_REQUEST_COUNT], unless it has failed. Collective. */
DP_CHECKED dp_status dp_run_judge_requests(struct dp_training *run, const bool *request);

/* Behind a recorded evaluation: early stopping. The second one notes nothing new: for a run that
 * goes on from a checkpoint. */
void dp_run_judge_evaluation(struct dp_training *run);
void dp_run_judge_improvement(struct dp_training *run);

/* The last checkpoint was not written, for that reason. Local, alike on all ranks. */
void dp_run_judge_saving(struct dp_training *run, dp_status written);

/* Before a checkpoint: with weights that are not numbers the run has diverged. Collective. */
DP_CHECKED dp_status dp_run_judge_weights(struct dp_training *run);

/* The status that the run ends with; rank 0 says why, and how to go on: the last line on stderr. */
DP_CHECKED dp_status dp_run_last_word(struct dp_training *run);

/* The last checkpoint, run.json and the table, after the last step. Where the checkpoint cannot be
 * written the report still is, if possible, and says so. Collective. */
DP_CHECKED dp_status dp_run_finish(struct dp_training *run);

/* Refuses, with its place, a name that no plug-in has: before any data is read. */
DP_CHECKED dp_status dp_run_check_names(const struct dp_config *config);

/* --check: no ranks. --dry-run: behind setup. --data-only: instead of training. */
DP_CHECKED dp_status dp_run_check(const struct dp_cli *cli);
void dp_run_describe(struct dp_training *run);
DP_CHECKED dp_status dp_run_data_only(struct dp_training *run);

/* What the loop over steps does in asynchronous training; the context is the run. */
extern const struct dp_async_hooks dp_run_async_hooks;

/* All of it: what main() calls. `stop`: where requests to stop arrive; or NULL. */
DP_CHECKED dp_status dp_run_main(const struct dp_cli *cli, struct dp_world *world,
                                 struct dp_stop *stop);

#endif
