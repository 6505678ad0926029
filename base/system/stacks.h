/*
 * stacks.h - where the threads of this process are, for a report while they are stuck.
 *
 * A thread is sent a signal, whose handler walks up its stack (_Unwind_Backtrace(), as C++ does
 * for exceptions) and notes addresses; the thread that asks looks up the names (symbol.h). Neither
 * takes a lock or memory. A thread that computes is left alone unless it has a stack of its own
 * for handlers, since code made at run time may have its stack pointer in the midst of data; one
 * that sleeps goes on sleeping, but for calls that a signal ends (EINTR). A process that is
 * stopped answers no signal.
 */
#ifndef DP_BASE_SYSTEM_STACKS_H
#define DP_BASE_SYSTEM_STACKS_H

#include <stddef.h>

/* Prepares this process, and gives the calling thread a stack for handlers; no other thread of the
 * process gets one. May be called again, by the same thread. Takes the signal SIGRTMIN + 7. */
void dp_stacks_init(void);

/* Writes a line a thread: of the process's first one, and of those that dp_thread_start() has
 * named "dp-...", without the calling thread: its name, and the functions that it is in, the
 * innermost first. What does not fit is left out. Takes a tenth of a second for a thread that does
 * not answer. Not on two threads at the same time. */
void dp_stacks_print(char *out, size_t size);

#endif
