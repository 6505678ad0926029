/*
 * saver.h - checkpoints of a run: a snapshot between two steps, which a thread then writes.
 *
 * A snapshot is taken by all ranks; a thread of rank 0 makes a checkpoint of it while training goes
 * on. A write that fails is a warning, after the step during which that is found out, and ends the
 * run only where its last checkpoint is concerned.
 */
#ifndef DP_RUNTIME_RUN_SAVER_H
#define DP_RUNTIME_RUN_SAVER_H

#include "base/system/worker.h"
#include "runtime/checkpoint/snapshot.h"
#include "runtime/checkpoint/state_dict.h"
#include "runtime/report/files/metrics.h"
#include "runtime/run/job.h"
#include "runtime/run/results/outcome.h"

/* Others only read it, but for the rows, which are added before it is opened. */
struct dp_saver {
    const struct dp_run_job *job;    /* borrowed; NULL before it is opened */
    struct dp_state_dict state_dict; /* everything that a resumed run needs */
    bool enabled;                    /* there is one state of all ranks */
    bool refused;                    /* rank 0: it has reported that there is none */
    struct dp_snapshot *snapshot;    /* owned; what the writer reads */
    struct dp_worker *writer;        /* owned; rank 0 */
    void *buffer;                    /* owned; rank 0: through which it writes */
    bool taken;                      /* there is a snapshot, or a checkpoint of this run: */
    uint64_t step;                   /* of that step */
    bool early_stopped;              /* which says that the run has stopped early */
    bool required;                   /* a failed write of it ends the run */
    bool pending;                    /* rank 0: what came of that write is not known yet */
    char problem[1024];              /* rank 0: why it failed */
    uint64_t write_ns, write_bytes;  /* rank 0: of the newest good write, when none is pending */
    uint64_t good_step;              /* rank 0: of the newest good checkpoint; 0: none */
};

/* With the rows of the state_dict added. Collective. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_saver_open(struct dp_saver *saver, const struct dp_run_job *job);
void dp_saver_close(struct dp_saver *saver);

/* A run that goes on in its folder: the checkpoint that it goes on from is there already. */
void dp_saver_resume(struct dp_saver *saver, const struct dp_resume *resume);

/* Rank 0, asked to save where there is no one state: reports that, once. */
void dp_saver_refuse(struct dp_saver *saver, const struct dp_run_job *job);

/* Takes a snapshot, and begins to write it; waits for the write before. Does nothing when the last
 * one is of this step. Collective. */
DP_CHECKED dp_status dp_saver_save(struct dp_saver *saver, const struct dp_outcome *outcome,
                                   struct dp_metrics *metrics);

/* The same, and returns when the checkpoint of this step is on disk, or cannot be: at the end of a
 * run, or when a program asks for one. *written, on all ranks alike: DP_OK, DP_ERR_WRITE,
 * DP_ERR_NOMEM, DP_ERR_DIVERGED (weights that are not finite are not saved); after an error it can
 * be tried again. Collective. */
DP_CHECKED dp_status dp_saver_finish(struct dp_saver *saver, const struct dp_outcome *outcome,
                                     struct dp_metrics *metrics, dp_status *written);

/* Reports a write that has failed. The first looks whether it has ended, the second waits for that.
 * Where metrics cannot be written either, they are given up. Local. */
void dp_saver_poll(struct dp_saver *saver, const struct dp_outcome *outcome,
                   struct dp_metrics *metrics);
void dp_saver_wait(struct dp_saver *saver, const struct dp_outcome *outcome,
                   struct dp_metrics *metrics);

/* What state.json says of the run, with the scalars of these rows. Local. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_saver_describe(const struct dp_saver *saver,
                                       const struct dp_state_dict *rows, struct dp_json *state);

/* The arrays of the model file in a snapshot. */
struct dp_weights dp_saver_weights(const struct dp_model *model,
                                   const struct dp_snapshot *snapshot);

#endif
