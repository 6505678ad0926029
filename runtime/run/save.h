/*
 * save.h - checkpoints of a run: a snapshot between two steps, which a thread then writes.
 */
#ifndef DP_RUNTIME_RUN_SAVE_H
#define DP_RUNTIME_RUN_SAVE_H

#include "runtime/run/training.h"

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

#endif
