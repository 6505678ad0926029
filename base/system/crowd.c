#include "base/system/crowd.h"

static bool crowded;

void dp_crowd_set(int ranks, int cores)
{
    crowded = ranks / cores >= DP_CROWD;
}

bool dp_crowd_is(void)
{
    return crowded;
}
