/*
 * pass_own.h - what a pass is made of: for pass_create.c, which takes its memory, and pass.c, which
 * runs it.
 */
#ifndef DP_MODELS_PASS_OWN_H
#define DP_MODELS_PASS_OWN_H

#include "models/pass.h"

struct dp_pass {
    const struct dp_model *model; /* borrowed */
    struct dp_stream *stream;     /* borrowed */
    size_t rows;                  /* at most */
    bool training;
    size_t tile_bytes;
    size_t width;             /* bytes of an element in the compute type */
    char **storage;           /* [storage_count], owned through `values` */
    char **slots;             /* [slot_count], owned through `gradients` */
    char *values, *gradients; /* compute type */
    float *local;
    char *saved;
    float *one;      /* [1], device: the scale of an evaluation's loss; behind it, its results */
    char *bytes;     /* device; the input of `rows` samples; NULL: the device reads the host's */
    int32_t *labels; /* device; [rows]; likewise */
};

#endif
