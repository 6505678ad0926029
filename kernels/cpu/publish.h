/*
 * publish.h - new weights in the compute type.
 */
#ifndef DP_KERNELS_CPU_PUBLISH_H
#define DP_KERNELS_CPU_PUBLISH_H

#include <stddef.h>

#include "kernels/flat.h"

struct dp_stream;

/* weights = master [begin, begin + count) in the stream's type, where they are two arrays. A piece
 * is too small for several threads, so the cast stays on this one. */
void dp_cpu_publish(struct dp_stream *s, const struct dp_update *u, size_t begin, size_t count);

#endif
