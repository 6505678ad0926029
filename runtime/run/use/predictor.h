/*
 * predictor.h - the model of a run, to be asked about samples that are in no data set.
 *
 *     struct dp_predictor_options options = {.run = "runs/pets", .batch = 32};
 *     struct dp_predictor *predictor = NULL;
 *
 *     status = dp_predictor_open(&options, &predictor);
 *     ...
 *     status = dp_predictor_run(predictor, DP_ELEMENT_BYTE, samples, rows, outputs);
 *     dp_predictor_close(predictor);
 *
 * It computes as an evaluation of the run does: the same normalisation, precision and running
 * statistics. It needs no ranks and no MPI. One thread uses a predictor at a time.
 */
#ifndef DP_RUNTIME_RUN_USE_PREDICTOR_H
#define DP_RUNTIME_RUN_USE_PREDICTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/data/sample.h"

struct dp_predictor;

/* Texts are borrowed until dp_predictor_open() returns. */
struct dp_predictor_options {
    const char *run;    /* a run, or a checkpoint: the newest whole one is taken */
    const char *device; /* NULL: the first one that there is */
    size_t batch;       /* most rows of a call; 1 or more */
};

/* What the outputs of a row are. */
enum dp_prediction {
    DP_PREDICT_CLASSES, /* probabilities of classes, which sum to 1 */
    DP_PREDICT_SHARES,  /* probabilities, each by itself */
    DP_PREDICT_NUMBERS  /* any numbers */
};

struct dp_predictor_info {
    const char *checkpoint; /* the folder whose weights these are; borrowed until close, as all */
    uint64_t step;          /* of training */
    struct dp_sample_shape input; /* of a sample of bytes; of floats the same numbers */
    enum dp_resize resize;        /* of pictures */
    bool label_last;              /* of lines that have a label too: it is at their end */
    enum dp_prediction kind;
    size_t outputs;                 /* numbers of a row; one output that tells two classes apart
                                     * comes as two */
    const char *const *class_names; /* [outputs], or NULL: they have none */
};

/*
 * Reads configuration and weights.
 *
 *   out  out  owned by the caller; set only on success
 *
 * Errors: DP_ERR_NOINPUT (no run), DP_ERR_DATA (no whole checkpoint), DP_ERR_CONFIG (weights of
 * another model, no such device), DP_ERR_UNAVAILABLE, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_predictor_open(const struct dp_predictor_options *options,
                                       struct dp_predictor **out);
void dp_predictor_close(struct dp_predictor *predictor); /* NULL is allowed */

const struct dp_predictor_info *dp_predictor_info(const struct dp_predictor *predictor);

/*
 * What the model makes of some samples.
 *
 *   element  in   what the numbers of a sample are: bytes, or float32 that are scaled as the run's
 *                 own were, before they are normalised
 *   samples  in   [rows, info->input]; [height, width, channels], as model.input says
 *   rows     in   at most options.batch
 *   outputs  out  [rows, info->outputs]
 *
 * Errors: those of the device, DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_predictor_run(struct dp_predictor *predictor, enum dp_element element,
                                      const void *samples, size_t rows, float *outputs);

#endif
