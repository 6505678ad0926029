/*
 * fibres.cpp - see fibres.h.
 *
 * Stacks lie one after another in one mapping, each a little longer than a power of two: else the
 * same place of all of them would fall into the same few lines of every cache.
 */
#include "fibres.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_BYTES = (64 << 10) + 1088, FIBRES = 1024, MARK_BYTES = 64 };
static const uint64_t MARK = UINT64_C(0x5a5a5a5a5a5a5a5a);

static char *stacks; /* of FIBRES fibres; each begins with its mark */
static fibre fibres[FIBRES];
static void (*fibre_body)();

/* ---- what sanitizers want to know ---- */

#if CUDA_ON_HOST_WATCHED
static fibre *running, *before; /* before: who ran last */

void fibre_leave(fibre *from, fibre *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#else
    __tsan_switch_to_fiber(to->watched, 0);
#endif
    before = from;
    running = to;
}

void fibre_arrive()
{
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(running->fake_stack, &bottom, &bytes);
    before->bottom = bottom; /* a thread's own is known only now */
    before->bytes = bytes;
#endif
}
#endif

static void watch(fibre *f, char *stack)
{
#if CUDA_ON_HOST_WATCHED
    f->bottom = stack;
    f->bytes = stack != nullptr ? STACK_BYTES - MARK_BYTES : 0;
#endif
#if defined(__SANITIZE_THREAD__)
    f->watched = stack != nullptr ? __tsan_create_fiber(0) : __tsan_get_current_fiber();
#endif
    (void)f;
    (void)stack;
}

/* ---- switching ---- */

static void begin()
{
    fibre_arrive();
    fibre_body();
    abort();
}

#if defined(__x86_64__)
/* System V AMD64 ABI 1.0, section 3.2.1: rbx, rbp and r12 to r15 belong to the caller. */
__asm__(".text\n"
        ".globl cuda_on_host_switch\n"
        ".type cuda_on_host_switch, @function\n"
        "cuda_on_host_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size cuda_on_host_switch, .-cuda_on_host_switch\n");

/* What the function above pops, and an end for whoever walks up the stack. */
static void prepare(fibre *f, char *stack)
{
    enum { POPPED = 6 };
    void **top = reinterpret_cast<void **>(stack + (STACK_BYTES - MARK_BYTES) / 16 * 16);

    *--top = nullptr;
    *--top = reinterpret_cast<void *>(begin);
    for (int i = 0; i < POPPED; i++) {
        *--top = nullptr;
    }
    f->place = top;
}
#else
static void prepare(fibre *f, char *stack)
{
    (void)getcontext(&f->place);
    f->place.uc_stack.ss_sp = stack;
    f->place.uc_stack.ss_size = STACK_BYTES - MARK_BYTES;
    f->place.uc_link = nullptr;
    makecontext(&f->place, begin, 0);
}
#endif

/* ---- making ---- */

void fibre_of_thread(fibre *own)
{
    memset(own, 0, sizeof(*own));
    watch(own, nullptr);
}

fibre *fibre_new(unsigned number, void (*body)())
{
    if (stacks == nullptr) {
        void *memory = mmap(nullptr, size_t(FIBRES) * STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        stacks = memory != MAP_FAILED ? static_cast<char *>(memory) : nullptr;
    }
    if (stacks == nullptr || number >= FIBRES) {
        fprintf(stderr, "no stack for thread %u of a block\n", number);
        abort();
    }
    char *mark = stacks + size_t(number) * STACK_BYTES;
    for (size_t i = 0; i < MARK_BYTES; i += sizeof(MARK)) {
        memcpy(mark + i, &MARK, sizeof(MARK));
    }
    fibre_body = body;
    watch(&fibres[number], mark + MARK_BYTES);
    prepare(&fibres[number], mark + MARK_BYTES);
    return &fibres[number];
}

bool fibre_is_whole(const fibre *f)
{
    uint64_t words[MARK_BYTES / sizeof(uint64_t)];

    memcpy(words, stacks + size_t(f - fibres) * STACK_BYTES, MARK_BYTES);
    for (uint64_t word : words) {
        if (word != MARK) {
            return false;
        }
    }
    return true;
}
