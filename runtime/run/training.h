/*
 * training.h - one training run: all that it has, for the files of this room.
 */
#ifndef DP_RUNTIME_RUN_TRAINING_H
#define DP_RUNTIME_RUN_TRAINING_H

#include "base/file.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/machine.h"
#include "collectives/exchange/exchange.h"
#include "collectives/world/world.h"
#include "kernels/algo_choices.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/checkpoint/state_dict.h"
#include "runtime/checkpoint/weights.h"
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
#include "runtime/trainer/async.h"
#include "runtime/trainer/trainer.h"

/* What the ranks tell each other about themselves at the start. */
struct dp_rank_place {
    char host[64], cpus[128], isa[16];
    unsigned char cpuset[DP_CPUSET_BYTES];
    int threads, cores;
    size_t memory; /* of the host, in bytes; 0: not known */
};

/* The checkpoint that a run goes on from. */
struct dp_resume {
    bool on;                          /* there is one */
    bool continues;                   /* it is of the run in --out, whose files go on */
    bool finished;                    /* nothing is left to do */
    bool ended;                       /* a report tells that its run ended with it */
    bool early_stopped;               /* its run had ended early with it */
    uint64_t step;                    /* done by then; 0 without one */
    uint64_t waited;                  /* evaluations without improvement by then */
    int ranks, nodes;                 /* that saved it */
    char strategy[DP_EXCHANGE_LABEL]; /* that `auto` takes over from it; empty: none */
    char path[DP_PATH_BYTES];         /* rank 0: its folder */
    struct dp_loose loose;            /* rank 0: what became of the arrays of compressors */
    bool moved;                       /* rank 0: what owners left out is of other places now */
    struct dp_json *state;            /* rank 0, owned: what state.json says */
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
    struct dp_rank_place *places; /* [ranks] */
    int threads;                  /* of this rank */
    const struct dp_device *device;
    struct dp_model *model;
    struct dp_node_memory data_memory;
    struct dp_dataset data;
    struct dp_plan plan;                  /* pinned, or from the cache */
    struct dp_algo_choices *algo_choices; /* algo_tuning.h; NULL: none are measured */
    char choices_cache[DP_PATH_BYTES];    /* rank 0: where they are kept; empty: nowhere */
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

#endif
