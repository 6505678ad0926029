/*
 * crowd.h - whether many ranks share each core of this process. Then what each of them does once,
 * to be faster later, costs all others that time, too.
 */
#ifndef DP_BASE_SYSTEM_CROWD_H
#define DP_BASE_SYSTEM_CROWD_H

#include <stdbool.h>

/* Ranks of a core from which on they are many: one that starts in 0.5 s alone needs 4. */
enum { DP_CROWD = 8 };

/* Says how many ranks share how many cores. Before other threads exist. */
void dp_crowd_set(int ranks, int cores);

/* False until it has been said. */
bool dp_crowd_is(void);

#endif
