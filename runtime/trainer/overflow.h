/*
 * overflow.h - where a step of fp16 overflowed, for people.
 */
#ifndef DP_RUNTIME_TRAINER_OVERFLOW_H
#define DP_RUNTIME_TRAINER_OVERFLOW_H

#include <stddef.h>

#include "base/status.h"

struct dp_trainer;

/*
 * What overflowed first in a step that was skipped, in words, into text [size]: "6.weight", whose
 * gradient it is; or, where `loss`, which is that of all ranks, is not finite, whose output in
 * forward: "the output of layer 2 (conv2d)", or of layers from one to another where what lies
 * between them is not kept. Of lanes, and of all passes but the last, no layer is known.
 *
 * All ranks get the same words. After the step; collective. Reads activations: it takes time.
 */
DP_CHECKED dp_status dp_overflow_find(const struct dp_trainer *trainer, double loss, char *text,
                                      size_t size);

#endif
