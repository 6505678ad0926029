/*
 * golden_file.h - training steps as PyTorch made them in float64 (tests/golden/README.md), and how
 * far from them a trainer of ours ends up.
 */
#ifndef DP_TESTS_SUPPORT_FILES_GOLDEN_FILE_H
#define DP_TESTS_SUPPORT_FILES_GOLDEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/trainer/trainer.h"
#include "runtime/trainer/trainer_parts.h"

enum { GOLDEN_GROUPS = 4, GOLDEN_NAME = 160 };

/* Our distance in one group of tensors, and PyTorch-float32's own. */
struct golden_distance {
    const char *group; /* "params", "running", or a slot; NULL: none left */
    double ours, own;
    double worst; /* of a single tensor */
    char worst_tensor[GOLDEN_NAME];
    char own_worst[GOLDEN_NAME]; /* "1.3e-04 0.weight" */
};

struct golden {
    struct dp_safetensors *file;
    size_t rows;     /* of the batch in the file; 0: the file has none */
    uint8_t *images; /* owned; [rows, 784] */
    int32_t *labels; /* owned; [rows], or the bits of float32 [rows, targets] */
    size_t targets;  /* 0: labels are classes */
    int64_t before;  /* steps made before */
};

/* Opens tests/golden/<name>.safetensors. On error nothing is left. */
DP_CHECKED dp_status golden_open(const char *name, struct golden *out);
void golden_close(struct golden *golden);

/* The initial state goes into the trainer: parameters, running statistics and optimizer state where
 * the file holds all of them. Otherwise the trainer must have been initialised: returns the number
 * of its elements that are not the file's, bit for bit. */
size_t golden_load(const struct golden *golden, struct dp_trainer *trainer);

/*
 * Measures every group that the file has for `result`: "p2", or "p1.step20".
 *
 *   out  [GOLDEN_GROUPS]
 *
 * Returns the number of things that were wrong with the file: tensors that the model has and the
 * file lacks, or the other way round.
 */
size_t golden_measure(const struct golden *golden, const struct dp_trainer *trainer,
                      const char *result, struct golden_distance *out);

/* What autocast.json says: how far PyTorch's own steps in narrow types are from the goldens. */
DP_CHECKED dp_status golden_autocast_open(struct dp_json **out);

/* Of a result ("p1") of a golden in "bf16" or "fp16"; NULL: nothing. */
const struct dp_json *golden_autocast(const struct dp_json *all, const char *name,
                                      const char *result, const char *precision);

/* Puts autocast's distances in place of float32's. Returns how many are missing. */
size_t golden_narrow(const struct dp_json *autocast, struct golden_distance *found);

#endif
