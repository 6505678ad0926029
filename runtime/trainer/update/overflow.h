/*
 * overflow.h - says where a step of fp16 overflowed.
 */
#ifndef DP_RUNTIME_TRAINER_UPDATE_OVERFLOW_H
#define DP_RUNTIME_TRAINER_UPDATE_OVERFLOW_H

#include <stddef.h>

#include "base/status.h"

struct dp_trainer;

/*
 * Writes what overflowed first in a skipped step into text [size]. If `loss`, which is that of all
 * ranks, is finite: the tensor whose gradient overflowed, "6.weight". Else the output in forward:
 * "the output of layer 2 (conv2d)", or a range of layers if outputs between them are not kept. With
 * lanes, and for all passes but the last, no layer is known.
 *
 * All ranks get the same text. Call it after the step. Slow, since it reads activations.
 * Collective.
 */
DP_CHECKED dp_status dp_overflow_find(const struct dp_trainer *trainer, double loss, char *text,
                                      size_t size);

#endif
