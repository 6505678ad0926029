/*
 * weights.h - a model's weights and optimizer state as files that PyTorch reads.
 *
 * Inside, arrays lie in the flat order and in our layout; in files each tensor has PyTorch's
 * state_dict key, shape and layout (kernels/tensor.h tells how the two differ). All numbers are
 * float32, the counters of batch norm are I64 scalars.
 */
#ifndef DP_RUNTIME_CHECKPOINT_WEIGHTS_H
#define DP_RUNTIME_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "kernels/tensor.h"

/* What a model file holds. Everything is borrowed; saving changes nothing of it. */
struct dp_weights {
    const struct dp_tensor *params;
    int param_count;
    float *values; /* parameter i at params[i].begin; host memory */
    const struct dp_tensor *buffers;
    int buffer_count;
    float *running;                   /* buffer i at buffers[i].begin; host memory */
    char (*counters)[DP_TENSOR_NAME]; /* "1.num_batches_tracked" */
    int counter_count;
    int64_t *batches_tracked; /* the value of all counters */
};

/* One array of optimizer state. */
struct dp_slot {
    const char *name; /* PyTorch's: "momentum", "exp_avg" ... */
    float *values;
    size_t count; /* 0: laid out as the parameters; else so many values on their own */
};

/* Tensors that a file may have or lack, by a word in their names: they are read where file and
 * slots have them alike. */
struct dp_loose {
    const char *word;
    bool skip;                /* none of them is to be read */
    int taken, dropped, anew; /* out: read; in the file alone; in the slots alone, untouched */
};

/*
 * Writes the model, sorted by layer; on error a part of the file may be left.
 *
 *   room    in   as dp_file_create_large()'s, or NULL
 *   broken  out  the name of a tensor, of parameters and running statistics, that has a number
 *                which is not finite, seen on the way; NULL: there is none
 *   hash    out  the file's XXH3-128; NULL: not wanted
 *
 * Errors: DP_ERR_WRITE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_weights_save(const char *path, const struct dp_weights *weights, void *room,
                                     const char **broken, char hash[DP_HASH_TEXT]);

/*
 * Reads the model: every tensor must be there with its shape and type, and no other. Counters may
 * be missing; then *batches_tracked stays. On error nothing has changed.
 *
 * Errors: DP_ERR_NOINPUT (no such file), DP_ERR_DATA (damaged), DP_ERR_CONFIG (another model: one
 * line names the first differences), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_weights_load(const char *path, struct dp_weights *weights);

/* Whether dp_weights_load() would read the file; the arrays may be NULL. Errors: the same. */
DP_CHECKED dp_status dp_weights_check(const char *path, const struct dp_weights *weights);

/* The same for optimizer state: tensors "<parameter>.<slot>", such as "0.weight.momentum", and
 * "<slot>" of shape [count] for what lies on its own. With no slots the file has no tensors. */
DP_CHECKED dp_status dp_slots_save(const char *path, const struct dp_tensor *params,
                                   int param_count, const struct dp_slot *slots, int slot_count,
                                   void *room, char hash[DP_HASH_TEXT]);

/* Reads what dp_slots_save() wrote: the file has these tensors and no other, but for those that are
 * `loose`. On error nothing has changed. Errors: as dp_weights_load(), DP_ERR_CONFIG when it is of
 * another optimizer. */
DP_CHECKED dp_status dp_slots_load(const char *path, const struct dp_tensor *params,
                                   int param_count, const struct dp_slot *slots, int slot_count,
                                   struct dp_loose *loose);

/* Copies elements [begin, begin + count) of PyTorch's layout. `ours` is the tensor's first
 * element in our layout, `theirs` has room for `count`. */
void dp_tensor_export(const struct dp_tensor *tensor, const float *ours, size_t begin, size_t count,
                      float *theirs);
void dp_tensor_import(const struct dp_tensor *tensor, float *ours, size_t begin, size_t count,
                      const float *theirs);

#endif
