/*
 * fibres.h - several calls on one thread of the host, each with a stack of its own, that hand over
 * to each other: what a barrier among the threads of a block needs.
 *
 * Switching costs some nanoseconds on x86-64, where it saves what a function must keep and no more;
 * elsewhere it is ucontext's, which asks the kernel about signals each time. AddressSanitizer and
 * ThreadSanitizer are reported.
 */
#ifndef DP_TESTS_CUDA_ON_HOST_FIBRES_H
#define DP_TESTS_CUDA_ON_HOST_FIBRES_H

#include <stddef.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CUDA_ON_HOST_WATCHED 1
#else
#define CUDA_ON_HOST_WATCHED 0
#endif

struct fibre {
#if defined(__x86_64__)
    void *place; /* the stack's pointer, while another one runs */
#else
    ucontext_t place;
#endif
#if CUDA_ON_HOST_WATCHED
    const void *bottom; /* of its stack */
    size_t bytes;
    void *fake_stack, *watched; /* the sanitizers' own */
#endif
};

/* A stack on which body() begins at the first switch to it; the same one for all. body() never
 * returns. Lives as long as the program; number: how many there were before. */
fibre *fibre_new(unsigned number, void (*body)());

/* A fibre for the thread that calls, which switches away from it and gets back. */
void fibre_of_thread(fibre *own);

/* Returns when somebody switches back to `from`. */
static inline void fibre_switch(fibre *from, fibre *to);

/* Whether nothing was ever written below its stack. */
bool fibre_is_whole(const fibre *f);

/* ---- inside ---- */

#if CUDA_ON_HOST_WATCHED
void fibre_leave(fibre *from, fibre *to);
void fibre_arrive();
#else
static inline void fibre_leave(fibre *, fibre *)
{
}
static inline void fibre_arrive()
{
}
#endif

#if defined(__x86_64__)
extern "C" void cuda_on_host_switch(void **from, void *to);
#endif

static inline void fibre_switch(fibre *from, fibre *to)
{
    fibre_leave(from, to);
#if defined(__x86_64__)
    cuda_on_host_switch(&from->place, to->place);
#else
    (void)swapcontext(&from->place, &to->place);
#endif
    fibre_arrive();
}

#endif
