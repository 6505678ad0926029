/*
 * prepared.h - the state that *_prepare operations keep on a stream of the CPU.
 *
 * stream->state is NULL or points to a struct whose first member is a struct dp_prepared. The first
 * operation that is prepared makes it, so a stream that needs none has none.
 */
#ifndef DP_KERNELS_CPU_PREPARED_H
#define DP_KERNELS_CPU_PREPARED_H

struct dp_prepared {
    void (*destroy)(struct dp_prepared *prepared); /* releases all of it */
};

#endif
