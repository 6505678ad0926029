/*
 * checkpoint.h - the state of a training run, written so that a torn checkpoint is always detected.
 *
 * OUT/checkpoints/step-NNNNNNNN/ holds model.safetensors, optimizer.safetensors, state.json and
 * MANIFEST, which has the XXH3-128 hash of each ("xxhsum -c MANIFEST" checks it too). A checkpoint
 * is written to a temporary folder next to the others, synced to disk, and renamed.
 * OUT/checkpoints/latest is a symbolic link to the newest whole one. Arrays are whole and float32,
 * for any number of ranks.
 */
#ifndef DP_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define DP_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "runtime/checkpoint/weights.h"

#define DP_CHECKPOINT_SCHEMA "lockstep.checkpoint/1"

/* The files of a checkpoint. MANIFEST, which marks a folder as a checkpoint, comes last. */
enum { DP_CHECKPOINT_FILES = 4, DP_CHECKPOINT_CONTENT = 3 /* files that MANIFEST lists */ };
extern const char *const dp_checkpoint_files[DP_CHECKPOINT_FILES];

/*
 * Checks that a checkpoint is whole: every file exists and has the hash in MANIFEST, and state.json
 * is of the same step.
 *
 * Errors: DP_ERR_NOINPUT (no such folder), DP_ERR_DATA (torn or altered: one line names the file),
 * DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_checkpoint_verify(const char *path);

/*
 * Reads state.json of a whole checkpoint.
 *
 *   state  out  owned by the caller (dp_json_destroy); set only on success
 *
 * Errors: DP_ERR_DATA (damaged, or of another schema), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_checkpoint_open(const char *path, uint64_t *step, struct dp_json **state);

/* Reads its arrays. Errors: as dp_weights_load() and dp_slots_load(); after an error the arrays may
 * be partly written. */
DP_CHECKED dp_status dp_checkpoint_load(const char *path, struct dp_weights *weights,
                                        const struct dp_slot *slots, int slot_count,
                                        struct dp_loose *loose);

#endif
