/*
 * openmp.h - how threads of OpenMP wait for each other.
 */
#ifndef DP_BASE_OPENMP_H
#define DP_BASE_OPENMP_H

/*
 * Lets threads of GCC's OpenMP spin for some 50 us at a barrier before they sleep, where the user
 * has not set OMP_WAIT_POLICY or GOMP_SPINCOUNT. By itself it spins for milliseconds wherever it
 * has no more threads than cores, and cannot know that another program computes on those, too: each
 * then waits for threads that the other's spinning keeps from running.
 *
 * The library reads its settings as it is loaded: so this starts the program once more, in the same
 * process, and returns only where that has been done or cannot be. To be called first of all.
 */
void dp_openmp_spin_briefly(char *const *argv);

#endif
