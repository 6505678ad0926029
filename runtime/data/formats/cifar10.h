/*
 * cifar10.h - the formats of CIFAR-10's binary version: records of a label and an image, and the
 * names of the classes.
 *
 * Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009; the format is
 * described at https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
 */
#ifndef DP_RUNTIME_DATA_FORMATS_CIFAR10_H
#define DP_RUNTIME_DATA_FORMATS_CIFAR10_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/data/problem.h"

enum {
    DP_CIFAR10_CLASSES = 10,
    DP_CIFAR10_SIDE = 32,
    DP_CIFAR10_PIXELS = DP_CIFAR10_SIDE * DP_CIFAR10_SIDE,
    DP_CIFAR10_IMAGE = 3 * DP_CIFAR10_PIXELS, /* bytes */
    DP_CIFAR10_RECORD = 1 + DP_CIFAR10_IMAGE,
    DP_CIFAR10_NAME = 64 /* longest name, with its NUL */
};

/* Red, green and blue planes [3, 32, 32] to [32, 32, 3]. */
void dp_cifar10_interleave(const uint8_t *planes, uint8_t *image);

/* The names in batches.meta.txt: one a line, of which there are ten; empty lines count for nothing.
 * Errors: DP_ERR_DATA; `problem` says why. */
DP_CHECKED dp_status dp_cifar10_names(const char *text, size_t bytes,
                                      char names[DP_CIFAR10_CLASSES][DP_CIFAR10_NAME],
                                      struct dp_problem *problem);

#endif
