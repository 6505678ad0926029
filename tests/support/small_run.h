/*
 * small_run.h - trainings of a few hundred numbers, with ranks as threads, to compare bit for bit.
 *
 * A small_run is a configuration with its model and a data set made here; small_train trains it
 * on some ranks and keeps what every rank had after every step.
 */
#ifndef DP_TESTS_SUPPORT_SMALL_RUN_H
#define DP_TESTS_SUPPORT_SMALL_RUN_H

#include "runtime/trainer/trainer.h"
#include "runtime/trainer/trainer_parts.h"

/* Rows to train on: with a global batch of 32, four whole batches and one of 3 rows. */
enum { SMALL_TRAIN = 131, SMALL_TEST = 23, SMALL_RANKS = 8, SMALL_STEPS = 40 };

/* The values of model.layers: without and with statistics that cross rows and ranks. */
extern const char small_dense[], small_conv[], small_dropout[], small_own_norm[];

struct small_run {
    struct dp_config *config;
    struct dp_model *model;
    const struct dp_device *device;
    struct dp_dataset data;
    int threads;                           /* of each rank; 1 unless set after small_run_create */
    struct dp_algo_choices **algo_choices; /* [ranks], of algorithms; NULL unless set after it */
    uint64_t first_step;                   /* done before; 0 unless set after small_run_create */
    uint8_t *bytes;                        /* owned; images of both sets */
    int32_t *labels;                       /* owned */
};

/* `sets` is a list of "key=value" that ends with NULL, or NULL. Returns 0 on success, for
 * cmocka's assertions; the device is `ref` unless the sets name another. */
int small_run_create(struct small_run *run, const char *layers, const char *const *sets);
void small_run_destroy(struct small_run *run);

/* A trainer with initial weights, for `steps` steps. */
DP_CHECKED dp_status small_run_trainer(const struct small_run *run, struct dp_group *group,
                                       uint64_t steps, struct dp_trainer **out);

/* A hash of everything that must be equal on all ranks: weights, statistics, optimizer state. */
uint64_t small_hash(const struct dp_trainer *trainer);

/* All master weights [trained], for those who want them (NULL: does not). Collective. */
DP_CHECKED dp_status small_weights(struct dp_trainer *trainer, float *whole);

struct outcome {
    uint64_t hash[SMALL_STEPS][SMALL_RANKS];
    float loss[SMALL_STEPS][SMALL_RANKS];
    double score; /* of all steps, on rank 0 */
    struct dp_evaluation evaluation[SMALL_RANKS];
    float *weights; /* owned; master weights of rank 0 at the end */
    size_t trained;
};

/* Trains; `interlude` (NULL: none) is called on every rank after each step. Returns the number of
 * errors. */
typedef dp_status small_interlude(struct dp_trainer *trainer);
size_t small_train(const struct small_run *run, int ranks, int steps, small_interlude *interlude,
                   struct outcome *out);
void outcome_fini(struct outcome *outcome);

/* The number of steps after which ranks had different bits. */
int outcome_split(const struct outcome *outcome, int ranks, int steps);

/* The distance between two ends of training, relative to the distance from the initial weights. */
double small_distance(const struct small_run *run, const struct outcome *a,
                      const struct outcome *b);

#endif
