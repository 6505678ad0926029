#include "collectives/world/one_speaker.h"

#include <stddef.h>

#include "collectives/core/backoff.h"

bool dp_one_speaker_begin(struct dp_one_speaker *speaker, int rank, uint64_t most_ns)
{
    struct dp_backoff backoff = {.cancel = NULL};
    int nobody = 0;

    if (atomic_compare_exchange_strong(&speaker->who, &nobody, rank + 1)) {
        return true;
    }
    while (atomic_load(&speaker->who) != DP_ONE_HAS_SPOKEN && backoff.waited_ns < most_ns) {
        (void)dp_backoff_wait(&backoff);
    }
    return atomic_load(&speaker->who) != DP_ONE_HAS_SPOKEN;
}

void dp_one_speaker_end(struct dp_one_speaker *speaker)
{
    atomic_store(&speaker->who, DP_ONE_HAS_SPOKEN);
}
