/*
 * state_dict.h - the list of everything that a resumed run needs: one row each.
 *
 * The owner of such a value adds a row when it is made. Checkpoints and resuming walk the list; a
 * test leaves out one row of a checkpoint at a time. To save something more, add a row:
 *
 *     dp_state_dict_add_u64(&run->state_dict, "early_stop.waited", &run->waited);
 *
 * Arrays go to the safetensors files of a checkpoint, scalars to the object "kept" of state.json.
 * Scalars are equal on all ranks and written exactly: a double as hexadecimal text ("0x1.8p+1",
 * "nan", "-inf"), others as JSON values.
 */
#ifndef DP_RUNTIME_CHECKPOINT_STATE_DICT_H
#define DP_RUNTIME_CHECKPOINT_STATE_DICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

/* Which ranks have which parts of a value. */
enum dp_spread {
    DP_SPREAD_SAME,  /* equal on all ranks */
    DP_SPREAD_OWNED, /* [owned]: each rank has the parts that it updates */
    DP_SPREAD_RANK,  /* [trained]: each rank has its own */
    DP_SPREAD_OWNER  /* as RANK; when other ranks own its places, its sum is added to the next row
                      * (RANK) */
};

/* What a value is, and so where it is written. Arrays are float32 in host memory; a slot is laid
 * out as the parameters are, in parts or whole. */
enum dp_state_kind {
    DP_STATE_WEIGHTS, /* of the model file: [trained] */
    DP_STATE_RUNNING, /* of the model file: [statistics] */
    DP_STATE_SLOT,    /* of the optimizer file: tensors "<parameter>.<name>" */
    DP_STATE_ARRAY,   /* of the optimizer file: one tensor "<name>" of any length; equal on all
                     * ranks */
    DP_STATE_U32,
    DP_STATE_U64,
    DP_STATE_I64,
    DP_STATE_F64,
    DP_STATE_FLAG
};

struct dp_state_entry {
    const char *name; /* borrowed; lives as long as the list */
    void *data;       /* borrowed */
    size_t bytes;
    enum dp_state_kind kind;
    enum dp_spread spread;
};

enum { DP_STATE_DICT_MOST = 64 };

struct dp_state_dict {
    struct dp_state_entry rows[DP_STATE_DICT_MOST];
    int count;
};

/* These add a row. Names are unique, and all ranks add the same rows in the same order. */
void dp_state_dict_add_array(struct dp_state_dict *list, const char *name, float *data,
                             size_t count, enum dp_state_kind kind, enum dp_spread spread);
void dp_state_dict_add_u32(struct dp_state_dict *list, const char *name, uint32_t *value);
void dp_state_dict_add_u64(struct dp_state_dict *list, const char *name, uint64_t *value);
void dp_state_dict_add_i64(struct dp_state_dict *list, const char *name, int64_t *value);
void dp_state_dict_add_f64(struct dp_state_dict *list, const char *name, double *value);
void dp_state_dict_add_flag(struct dp_state_dict *list, const char *name, bool *value);

/* The row of that name, or NULL. */
const struct dp_state_entry *dp_state_dict_find(const struct dp_state_dict *list, const char *name);

/* Whether each rank has its own value: DP_SPREAD_RANK and DP_SPREAD_OWNER. */
bool dp_state_is_own(const struct dp_state_entry *row);

/* Whether a row is an array: not in state.json. */
bool dp_state_is_array(const struct dp_state_entry *row);

/* Sets all scalars as members of `object`. A u64 above INT64_MAX is written as the negative integer
 * with the same bits. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_state_dict_write(const struct dp_state_dict *list, struct dp_json *object);

/*
 * Reads all scalars from `object`. A missing one keeps its value, with a warning: the checkpoint is
 * of an older version, or the feature was off. `source` is named in messages.
 *
 * Errors: DP_ERR_DATA (not of its kind: one line; earlier scalars have been read by then).
 */
DP_CHECKED dp_status dp_state_dict_read(const struct dp_state_dict *list,
                                        const struct dp_json *object, const char *source);

#endif
