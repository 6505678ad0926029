/*
 * lockstep.h - training in a program of your own: the one header that it includes.
 *
 *     struct dp_lockstep_options options = {.config = "model.cfg"};
 *     struct dp_lockstep *training = NULL;
 *     struct dp_lockstep_step step;
 *     struct dp_world *world = NULL;
 *     dp_status status;
 *
 *     dp_openmp_spin_briefly(argv);
 *     status = dp_lockstep_join(&world);
 *     if (status == DP_OK) {
 *         status = dp_lockstep_create(world, &options, &training);
 *     }
 *     while (status == DP_OK && !dp_lockstep_done(training)) {
 *         status = dp_lockstep_step(training, &step);
 *     }
 *     dp_lockstep_destroy(training);
 *     return dp_lockstep_leave(world, status);
 *
 * Under mpirun or srun every process is a rank, and all of them run this program; alone it is one
 * rank, without MPI. A function that is collective is called by all ranks, in the same order, and
 * with the same arguments. All are called on the thread that joined, and none ends the process.
 *
 * A function that fails has written one line on stderr: what is wrong, where, and what to do. What
 * is wrong on all ranks is written by one of them. Of a training that failed in a step only
 * dp_lockstep_destroy() is called any more.
 *
 * The model of a run that has ended is asked by runtime/run/use/predictor.h, which comes with this
 * header.
 *
 * What model.cfg may say is in docs/configuration.md. Evaluations and checkpoints that it wants
 * every so often, baseline and reports are ddp_train's: here the program calls for what it wants.
 */
#ifndef DP_RUNTIME_LOCKSTEP_H
#define DP_RUNTIME_LOCKSTEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/system/openmp.h"
#include "models/layers/layer.h"
#include "runtime/data/source.h"
#include "runtime/run/use/predictor.h"

/* ---- the job ---- */

/* All ranks of the job. */
struct dp_world;

/*
 * Joins the job: once in a process, which must not start MPI itself. Collective. On error nothing
 * is left, and there is nothing to leave.
 *
 * Errors: DP_ERR_MPI, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_lockstep_join(struct dp_world **out);

/*
 * Leaves the job, and gives the exit code that belongs to what the program came to: the status that
 * it ends with. Where that may have befallen this rank alone, all others are ended with the same
 * code, since they may wait for it: then this does not return. NULL is allowed. Collective.
 */
int dp_lockstep_leave(struct dp_world *world, dp_status status);

/*
 * From now on exit() leaves the job, as a program that came to DP_OK where its exit code is 0. Any
 * other one may be of this rank alone, for which others wait: after a line, it ends them with that
 * code. For interpreters, which do not tell what a script exits with while it can still call this
 * library. Local.
 *
 * Errors: DP_ERR_NOMEM; then nothing is left at exit.
 */
DP_CHECKED dp_status dp_lockstep_leave_at_exit(struct dp_world *world);

/* This process among all, from 0; and how many there are. Local. */
int dp_lockstep_rank(const struct dp_world *world);
int dp_lockstep_ranks(const struct dp_world *world);

/* ---- plug-ins ---- */

/*
 * From now on a configuration can name this source of data, or layer type, as those that are built
 * in. It must live as long as the process. Every rank adds the same ones, before a configuration
 * names them. Local.
 *
 * Errors: DP_ERR_ARG (the name is taken, or none; a function is missing; there are too many).
 */
DP_CHECKED dp_status dp_lockstep_add_source(const struct dp_source *source);
DP_CHECKED dp_status dp_lockstep_add_layer(const struct dp_layer_type *type);

/* ---- a training ---- */

struct dp_lockstep;

/* Borrowed until dp_lockstep_create() returns. What is NULL or 0 is not asked for. */
struct dp_lockstep_options {
    const char *config;      /* path of a model.cfg; with `text` only its name in messages */
    const char *text;        /* a model.cfg itself, in place of a file */
    const char *const *sets; /* [set_count]: "train.global_batch=64", over what the file says, and
                                over DP_* variables of the environment */
    int set_count;
    const char *out;    /* folder for config.yaml, metrics.jsonl and checkpoints/, which is made. It
                        may hold no run but one that is gone on with. Needed to save */
    const char *resume; /* "auto": the newest whole checkpoint in `out`, if there is one; or the
                           path of a checkpoint, or of the folder of a run */
    const char *init;   /* weights to start from, in a safetensors file; not with a checkpoint */
};

/*
 * Everything before the first step: reads and checks the configuration, loads the data, makes the
 * model, and takes its weights from the seed, from `init`, or with all other state from a
 * checkpoint. One training at a time. Collective. On error there is none; memory that ranks share
 * may then stay until they leave.
 *
 * Errors: DP_ERR_USAGE (options that contradict each other, a folder in use), DP_ERR_CONFIG,
 * DP_ERR_NOINPUT, DP_ERR_DATA, DP_ERR_UNAVAILABLE, DP_ERR_NOMEM, DP_ERR_DISAGREE, DP_ERR_WRITE, and
 * what a plug-in fails with.
 */
DP_CHECKED dp_status dp_lockstep_create(struct dp_world *world,
                                        const struct dp_lockstep_options *options,
                                        struct dp_lockstep **out);

/* NULL is allowed. Collective. */
void dp_lockstep_destroy(struct dp_lockstep *training);

/* What a step came to, equal on all ranks but for the rate. */
struct dp_lockstep_step {
    uint64_t step;         /* done so far, this one included, over all runs */
    size_t rows;           /* of the global batch */
    double loss, accuracy; /* means over these rows, before the update; accuracy from 0 to 1, NaN
                            * with train.loss mse */
    double lr;
    double samples_per_second; /* of all ranks, as this one timed the step */
    bool skipped;              /* the gradient was not finite (fp16): nothing was changed */
};

/*
 * One step of training.
 *
 *   out  set only on success
 *
 * Collective. Errors: DP_ERR_USAGE (all steps are done), DP_ERR_DIVERGED (see failure_stop in the
 * configuration), DP_STOPPED (failure_stop.min_samples_per_second), DP_ERR_WRITE (metrics.jsonl),
 * DP_ERR_DISAGREE, and those of MPI, devices and plug-ins.
 */
DP_CHECKED dp_status dp_lockstep_step(struct dp_lockstep *training, struct dp_lockstep_step *out);

/* Steps done so far, over all runs; whether training has come to its end: train.steps or
 * train.epochs are done, or evaluations did not improve any more (early_stop). Local, alike on all
 * ranks. */
uint64_t dp_lockstep_steps(const struct dp_lockstep *training);
bool dp_lockstep_done(const struct dp_lockstep *training);

/* Mean loss and accuracy (NaN with train.loss mse) over the test rows, equal on all ranks.
 * Collective. Errors: as those of a step. */
DP_CHECKED dp_status dp_lockstep_evaluate(struct dp_lockstep *training, double *loss,
                                          double *accuracy);

/*
 * Saves all that a resumed run needs in `out`/checkpoints/step-NNNNNNNN, and returns when it is on
 * disk; `latest` beside it then leads to it. Old ones are deleted as checkpoint.keep says. After an
 * error training can go on, unless it is DP_ERR_DIVERGED, and save again. Collective.
 *
 * Errors: DP_ERR_USAGE (no `out`; a strategy without common weights), DP_ERR_WRITE, DP_ERR_NOMEM,
 * DP_ERR_DIVERGED (weights are not numbers any more).
 */
DP_CHECKED dp_status dp_lockstep_save(struct dp_lockstep *training);

#endif
