/*
 * openmp.h - how threads of OpenMP wait for each other, and how many the user wants.
 */
#ifndef DP_BASE_SYSTEM_OPENMP_H
#define DP_BASE_SYSTEM_OPENMP_H

/*
 * Makes threads of GCC's OpenMP spin for about 50 us at a barrier before they sleep, unless the
 * user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT. By default it spins for milliseconds unless it
 * has more threads than cores, and cannot know that another program uses these cores, too. Each
 * then waits for threads that cannot run because the other spins.
 *
 * Undoes a binding that the user's OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY ask for: each
 * rank of a host would be bound to the same first place, and see no other cores. All places
 * together are the cores that ranks divide.
 *
 * The library reads its settings when it is loaded. So this restarts the program, in the same
 * process, and returns only after that or where it is impossible. Call it first of all.
 */
void dp_openmp_spin_briefly(char *const *argv);

/* The number of threads that OMP_NUM_THREADS asks for, of the outermost level; 0: none, or what is
 * no such number, about which the library has complained. */
int dp_openmp_asked(void);

/* Starts the calling thread's threads of OpenMP, itself included, which then wait. The library ends
 * the process where it cannot: see dp_thread_try(). */
void dp_openmp_start(int threads);

#endif
