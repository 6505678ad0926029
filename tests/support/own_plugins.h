/*
 * own_plugins.h - a data source and a layer of a program's own, which uses only runtime/lockstep.h.
 * For tests of it, and as an example.
 */
#ifndef DP_TESTS_SUPPORT_OWN_PLUGINS_H
#define DP_TESTS_SUPPORT_OWN_PLUGINS_H

#include "runtime/lockstep.h"

/* "stripes": images of 4 x 4 grey pixels; which of the four columns is bright is the label. */
extern const struct dp_source own_source;

/* "gain: {initial: 1}": multiplies each feature of a sample by a number that is learnt. On devices
 * whose memory is the host's, in float32. */
extern const struct dp_layer_type own_layer;

/* A training of both; the optimizer keeps state, too. */
extern const char own_config[];

/* The errors that they return from now on, in this process; zeroed: none. */
extern struct own_faults {
    dp_status open, forward;
    int forwards; /* calls that go well before */
} own_faults;

#endif
