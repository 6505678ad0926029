/*
 * checkpoint_save.h - writes a checkpoint into the folder of a run's checkpoints.
 */
#ifndef DP_RUNTIME_CHECKPOINT_CHECKPOINT_SAVE_H
#define DP_RUNTIME_CHECKPOINT_CHECKPOINT_SAVE_H

#include "runtime/checkpoint/checkpoint.h"

/* What is saved. Everything is borrowed. */
struct dp_checkpoint {
    uint64_t step; /* steps done */
    const struct dp_weights *weights;
    const struct dp_slot *slots;
    int slot_count;
    struct dp_json *state; /* an object; `schema` and `step` are set in it */
    void *buffer;          /* as in dp_file_create_large(), or NULL */
};

/*
 * Saves a checkpoint under `folder` (OUT/checkpoints, made if its parent exists), sets `latest` to
 * it, and deletes old ones, as dp_checkpoint_dir_prune() does. A checkpoint of the same step is
 * replaced; other files in its folder are moved to the new one. Temporary folders of killed runs
 * are deleted. If `latest` is not a link it is left unchanged, with a warning. One thread of one
 * rank calls this.
 *
 * If something else has the checkpoint's name, it is renamed, with a warning.
 *
 * Errors: DP_ERR_WRITE, DP_ERR_NOMEM, DP_ERR_DIVERGED (a weight is not finite: one line names the
 * tensor). Earlier checkpoints are then untouched, and nothing of the new one is left, unless only
 * the link failed. A failure to delete an old one is logged as a warning.
 */
DP_CHECKED dp_status dp_checkpoint_save(const char *folder, const struct dp_checkpoint *checkpoint,
                                        int keep, uint64_t keep_every);

/* Before a run goes on from its newest checkpoint: deletes what killed runs left unfinished, and
 * sets `latest` to the checkpoint, should it lead elsewhere, since a run may have been killed after
 * it wrote the one and before it set the other. path: OUT/checkpoints/NAME. Errors:
 * DP_ERR_WRITE. */
DP_CHECKED dp_status dp_checkpoint_mend(const char *path);

#endif
