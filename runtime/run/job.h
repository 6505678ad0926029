/*
 * job.h - what a run works on and with: what it is asked for, its configuration, ranks, device,
 * model, data and trainer.
 *
 * Setup fills it in, in the order of the members; after that only the trainer, the overlap of
 * communication and what is kept of the plan change.
 */
#ifndef DP_RUNTIME_RUN_JOB_H
#define DP_RUNTIME_RUN_JOB_H

#include "base/files/file.h"
#include "base/files/lock.h"
#include "base/json.h"
#include "base/system/machine.h"
#include "collectives/async/p2p.h"
#include "collectives/exchange/exchange.h"
#include "collectives/world/world.h"
#include "kernels/algo_choices.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/config/config.h"
#include "runtime/control/stop.h"
#include "runtime/measure/overlap.h"
#include "runtime/run/dataset/class_names.h"
#include "runtime/run/fault_injection.h"
#include "runtime/run/plan/plan.h"
#include "runtime/run/run_model.h"
#include "runtime/run/run_options.h"
#include "runtime/trainer/async.h"
#include "runtime/trainer/trainer.h"

/* What each rank reports about itself at the start. */
struct dp_rank_place {
    char host[64], cpus[128], numa[64], isa[16];
    char gpu[DP_UNIT_LABEL]; /* that it computes on: "cuda:0 (NVIDIA H200)"; empty: on its cores */
    int threads, cores;
    size_t memory; /* of the host, in bytes; 0: not known */
};

/* The folder of the run (output_dir.h). Only rank 0 writes there. */
struct dp_output_dir {
    char path[DP_PATH_BYTES];   /* empty: on other ranks, and where nothing is written */
    char shared[DP_PATH_BYTES]; /* the same on all ranks */
    bool made;                  /* it was not there before */
    struct dp_lock *lock;       /* no other run writes there meanwhile */
    char started[32];           /* when: "2024-05-01T12:00:00Z" */
};

/* The checkpoint that a run goes on from (resume.h). */
struct dp_resume {
    bool on;                          /* there is one */
    bool continues;                   /* it is of the run in --out, whose files go on */
    bool finished;                    /* nothing is left to do */
    bool ended;                       /* run.json says that its run ended with it */
    bool memory;                      /* it is what ranks kept: shrink.h */
    bool early_stopped;               /* its run had ended early with it */
    uint64_t step;                    /* done by then; 0 without one */
    uint64_t waited;                  /* evaluations without improvement by then */
    int ranks, nodes;                 /* that saved it */
    char strategy[DP_EXCHANGE_LABEL]; /* that `auto` takes over from it; empty: none */
    char path[DP_PATH_BYTES];         /* rank 0: its folder; or "memory" */
    struct dp_loose loose;            /* rank 0: what became of the arrays of compressors */
    bool moved;                       /* rank 0: residuals of owners are of other places now */
    struct dp_json *state;            /* rank 0, owned: what state.json says */
};

/* Hosts without the data set (guest_hosts.h). */
struct dp_guests {
    bool any, any_tests;        /* there are some; some of them test */
    bool here, tests;           /* this host is one; it tests */
    struct dp_node_memory rows; /* to test with, on hosts that do */
};

struct dp_eval_rank;
struct dp_kept_run;
struct dp_input_ranks;
struct dp_reader;

struct dp_run_job {
    const struct dp_run_options *options; /* borrowed */
    struct dp_world *world;               /* borrowed */
    struct dp_stop *stop;                 /* borrowed, or NULL: nobody asks */
    struct dp_kept_run *kept;             /* borrowed; NULL: ranks that die end the run */
    struct dp_config *config;
    char *config_text;  /* resolved, with the places where keys were set */
    char *config_alone; /* resolved */
    char *fault_text;   /* DP_FAULT of rank 0 */
    struct dp_fault *faults;
    struct dp_model *model;
    const struct dp_device *device;
    struct dp_output_dir output;
    struct dp_resume resume;
    struct dp_machine *machine;
    struct dp_rank_place place;   /* this rank's */
    struct dp_rank_place *places; /* owned; rank 0: [ranks]; NULL on others, which have the names of
                                   * all hosts (host_names.h) */
    int threads;                  /* of this rank */
    bool computes;                /* OpenMP has started them */
    struct dp_plan plan;          /* pinned, or from the cache */
    struct dp_node_memory data_memory;
    struct dp_node_memory raw_index, raw_units; /* of samples that are read (raw_cache.h) */
    struct dp_samples *samples;                 /* owned; open while samples are read; or NULL */
    struct dp_guests guests;
    struct dp_dataset data;
    uint64_t spread_labels; /* data_prints.h */
    struct dp_class_names class_names;
    size_t skipped_samples;   /* bad ones, which were left out */
    int64_t predicted_memory; /* bytes of this rank, without measuring; with a GPU those there */
    char recompute[DP_RECOMPUTE_TEXT]; /* what model.recompute does; empty: it is off */
    uint64_t total_steps, steps_per_epoch;
    uint64_t schedule_steps;              /* that the learning rate is made for */
    struct dp_algo_choices *algo_choices; /* algo_tuning.h; NULL: none are measured */
    char algo_cache[DP_PATH_BYTES];       /* rank 0: the file that keeps them; empty: none does */
    struct dp_trainer *trainer;
    struct dp_async *async;         /* NULL: synchronous steps */
    struct dp_group *beside;        /* owned: of all ranks, for p2p; NULL: no ranks help */
    struct dp_p2p p2p;              /* messages between ranks that train and ranks that help */
    struct dp_group *control_group; /* owned: of all ranks, for control; NULL: no ranks help */
    struct dp_p2p control;          /* messages of rank 0 and ranks that read, beside batches */
    struct dp_input_ranks *input;   /* owned; NULL: each rank reads its own rows */
    struct dp_eval_rank *eval;      /* owned, on ranks that train; NULL: they evaluate themselves */
    struct dp_overlap overlap;
};

static inline bool dp_run_leads(const struct dp_run_job *job)
{
    return job->world->all->rank == 0;
}

/* How many threads OpenMP will start in the first step. It ends the process if it cannot. */
static inline int dp_run_to_start(const struct dp_run_job *job)
{
    return job->computes ? 0 : job->threads - 1;
}

/* Whether every step has the first batch. */
static inline bool dp_run_cached_input(const struct dp_run_job *job)
{
    return job->options->cached_input || job->config->data.cache == DP_CACHE_BATCH;
}

#endif
