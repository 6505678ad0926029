/*
 * weights.h - a model's weights and optimizer state as files that PyTorch reads.
 *
 * In memory, arrays are in the flat order and in our layout. In files each tensor has PyTorch's
 * state_dict key, shape and layout (kernels/tensor.h documents the difference). All numbers are
 * float32; the counters of batch norm are I64 scalars.
 */
#ifndef DP_RUNTIME_CHECKPOINT_WEIGHTS_H
#define DP_RUNTIME_CHECKPOINT_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/files/file.h"
#include "base/status.h"
#include "kernels/tensor.h"

/* The content of a model file. Everything is borrowed; saving does not change it. */
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
    size_t count; /* 0: laid out as the parameters; else the number of elements of a separate
                   * array */
};

/* Tensors that a file may or may not have, selected by a word in their names: they are read if file
 * and slots agree on them. */
struct dp_loose {
    const char *word;
    bool skip;                /* read none of them */
    int taken, dropped, anew; /* out: read; only in the file; only in the slots, unchanged */
};

/*
 * Writes the model, sorted by layer; on error a part of the file may be left.
 *
 *   buffer    in   as in dp_file_create_large(), or NULL
 *   broken  out  the name of a tensor, of parameters and running statistics, with an element that
 *                is not finite; NULL: there is none
 *   hash    out  the file's XXH3-128; NULL: not needed
 *
 * Errors: DP_ERR_WRITE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_weights_save(const char *path, const struct dp_weights *weights,
                                     void *buffer, const char **broken, char hash[DP_HASH_TEXT]);

/*
 * Reads the model: every tensor must exist with its shape and type, and no other. Counters may be
 * missing; then *batches_tracked is unchanged. On error nothing has changed.
 *
 * Errors: DP_ERR_NOINPUT (no such file), DP_ERR_DATA (damaged), DP_ERR_CONFIG (another model: one
 * line names the first differences), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_weights_load(const char *path, struct dp_weights *weights);

/* Whether dp_weights_load() would read the file; the arrays may be NULL. Errors: the same. */
DP_CHECKED dp_status dp_weights_check(const char *path, const struct dp_weights *weights);

/* The same for optimizer state: tensors "<parameter>.<slot>", such as "0.weight.momentum", and
 * "<slot>" of shape [count] for separate arrays. Without slots the file has no tensors. */
DP_CHECKED dp_status dp_slots_save(const char *path, const struct dp_tensor *params,
                                   int param_count, const struct dp_slot *slots, int slot_count,
                                   void *buffer, char hash[DP_HASH_TEXT]);

/* Reads a file of dp_slots_save(): it must have these tensors and no other, except `loose` ones. On
 * error nothing has changed. Errors: as dp_weights_load(), DP_ERR_CONFIG if it is of another
 * optimizer. */
DP_CHECKED dp_status dp_slots_load(const char *path, const struct dp_tensor *params,
                                   int param_count, const struct dp_slot *slots, int slot_count,
                                   struct dp_loose *loose);

/* Reads the average of the weights, a slot of this name, from an optimizer file, whatever else it
 * holds. Errors: as dp_weights_load(); DP_ERR_CONFIG if it has none, or of another model. */
DP_CHECKED dp_status dp_average_load(const char *path, const struct dp_tensor *params,
                                     int param_count, float *values);

/* Copies elements [begin, begin + count) of PyTorch's layout. `ours` is the tensor's first element
 * in our layout, `theirs` holds `count` elements. */
void dp_tensor_export(const struct dp_tensor *tensor, const float *ours, size_t begin, size_t count,
                      float *theirs);
void dp_tensor_import(const struct dp_tensor *tensor, float *ours, size_t begin, size_t count,
                      const float *theirs);

#endif
