/*
 * block.cpp - the threads of one block: see block.h.
 *
 * Threads run on fibres. One fibre runs thread after thread as long as none of them waits; one that
 * has to wait keeps its fibre, and another fibre goes on. So a kernel without barriers needs one,
 * and is as fast as a loop.
 *
 * Stricter than a GPU, which may go on where this ends the program: all threads of a block come to
 * the same __syncthreads(), in the same line, and none has returned before; all lanes that a mask
 * names come to the same call, in the same line, with the same mask, and take from lanes that it
 * names.
 */
#include "block.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fibres.h"
#include "inside.h"

dim3 gridDim, blockDim, blockIdx, threadIdx;

enum { THREADS = CUDA_ON_HOST_THREADS, WARP = CUDA_ON_HOST_WARP, WARPS = THREADS / WARP };
enum state { NEW, RUNS, AT_BARRIER, IN_WARP, ENDED };

struct thread {
    fibre *own;                    /* while it waits */
    const cuda_on_host_call *call; /* that it is in; on its stack */
    uint64_t value;                /* that it brings to a call of its warp, or gets there */
    unsigned mask, from;
    enum state state;
};

/* Lanes that are in a call. */
struct warp {
    unsigned arrived;
    const thread *first;
    bool alike; /* all of them are where the first one is, with the same mask */
};

/* The block that runs. */
static struct {
    const char *kernel;
    const std::function<void()> *body;
    unsigned threads, begun, ended;
    unsigned waiting, first_waiting; /* at the barrier: how many, and which one came first */
    unsigned first_warp;             /* the order: from here on round, */
    bool lanes_fall;                 /* and lanes from the last to the first */
    unsigned now;                    /* the thread that runs */
} block;

static thread all[THREADS];
static warp warps[WARPS];

/* Threads whose wait is over, first come first served. */
static unsigned ready[THREADS], ready_first, ready_count;

static fibre host, *idle[THREADS], *current;
static unsigned idle_count, fibre_count;

/* ---- what ends the program ---- */

static bool is_named(unsigned mask, unsigned lane)
{
    return (mask >> lane & 1) != 0;
}

static const char *file_of(const char *path)
{
    const char *name = strrchr(path, '/');

    return name != nullptr ? name + 1 : path;
}

static inline bool is_place(const cuda_on_host_call &a, const cuda_on_host_call &b)
{
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0) &&
           (a.name == b.name || strcmp(a.name, b.name) == 0);
}

static void print_call(const cuda_on_host_call &call)
{
    fprintf(stderr, "%s at %s:%d", call.name, file_of(call.file), call.line);
}

static void print_block()
{
    fprintf(stderr, "kernel %s, block %u of %u: ", block.kernel, blockIdx.x, gridDim.x);
}

static void print_state(unsigned number)
{
    fprintf(stderr, "thread %u ", number);
    if (all[number].state == AT_BARRIER || all[number].state == IN_WARP) {
        fprintf(stderr, "waits in ");
        print_call(*all[number].call);
    } else {
        fprintf(stderr, all[number].state == ENDED ? "has returned" : "is elsewhere");
    }
}

[[noreturn]] static void give_up()
{
    fputc('\n', stderr);
    abort();
}

[[noreturn]] static void end_mask(unsigned number, const char *verb, unsigned lane)
{
    print_block();
    print_call(*all[number].call);
    fprintf(stderr, " %s lane %u, which its mask %#x does not name", verb, lane, all[number].mask);
    give_up();
}

/* A lane that the mask names will not come. */
[[noreturn]] static void end_lane(unsigned number, unsigned other)
{
    print_block();
    print_call(*all[number].call);
    fprintf(stderr, " with the mask %#x waits for lane %u of warp %u, which does not come: ",
            all[number].mask, other % WARP, other / WARP);
    print_state(other);
    give_up();
}

[[noreturn]] static void end_barrier(unsigned number, unsigned other)
{
    print_block();
    print_call(*all[number].call);
    fprintf(stderr, " is reached by %u of %u threads: ", block.waiting, block.threads);
    print_state(other);
    give_up();
}

/* All threads wait or have returned: says for whom one of them waits. */
[[noreturn]] static void end_stuck()
{
    for (unsigned i = 0; i < block.threads; i++) {
        for (unsigned lane = 0; lane < WARP && all[i].state == IN_WARP; lane++) {
            const unsigned other = i / WARP * WARP + lane;
            if (is_named(all[i].mask, lane) && all[other].state != IN_WARP) {
                end_lane(i, other);
            }
        }
    }
    for (unsigned i = 0; i < block.threads; i++) {
        for (unsigned k = 0; k < block.threads && all[i].state == AT_BARRIER; k++) {
            if (all[k].state != AT_BARRIER) {
                end_barrier(i, k);
            }
        }
    }
    print_block();
    fprintf(stderr, "its threads wait for each other");
    give_up();
}

/* ---- who runs ---- */

static void make_ready(unsigned number)
{
    all[number].state = RUNS;
    ready[(ready_first + ready_count++) % THREADS] = number;
}

static void run_as(unsigned number)
{
    block.now = number;
    threadIdx = {number, 0, 0};
}

static void switch_to(fibre *next)
{
    fibre *own = current;

    current = next;
    fibre_switch(own, next);
}

static void fibre_body();

static fibre *take_idle()
{
    return idle_count > 0 ? idle[--idle_count] : fibre_new(fibre_count++, fibre_body);
}

/* To a thread that can go on, or one that has not begun; or the block is through. */
static void go_on()
{
    if (ready_count > 0) {
        const unsigned next = ready[ready_first];
        ready_first = (ready_first + 1) % THREADS;
        ready_count--;
        switch_to(all[next].own);
    } else if (block.ended == block.threads) {
        switch_to(&host);
    } else if (block.begun < block.threads) {
        switch_to(take_idle());
    } else {
        end_stuck();
    }
}

/* The k-th thread to begin. */
static unsigned order_of(unsigned k)
{
    const unsigned warp = (block.first_warp + k / WARP) % (block.threads / WARP), lane = k % WARP;

    return warp * WARP + (block.lanes_fall ? WARP - 1 - lane : lane);
}

/* Runs threads from the first to the last line, until others can go on that have begun before. */
static void fibre_body()
{
    for (;;) {
        while (ready_count == 0 && block.begun < block.threads) {
            const unsigned number = order_of(block.begun++);
            all[number].state = RUNS;
            run_as(number);
            (*block.body)();
            all[block.now].state = ENDED;
            block.ended++;
        }
        if (!fibre_is_whole(current)) {
            print_block();
            fprintf(stderr, "a thread needs more than its stack");
            give_up();
        }
        idle[idle_count++] = current;
        go_on();
    }
}

static void wait_here()
{
    const unsigned own = block.now;

    all[own].own = current;
    go_on();
    run_as(own);
}

/* ---- a barrier ---- */

void cuda_on_host_barrier(const cuda_on_host_call &call)
{
    thread &own = all[block.now];

    own.call = &call;
    own.state = AT_BARRIER;
    if (block.waiting++ == 0) {
        block.first_waiting = block.now;
    } else if (!is_place(call, *all[block.first_waiting].call)) {
        end_barrier(block.now, block.first_waiting);
    }
    if (block.waiting < block.threads) {
        wait_here();
        return;
    }
    block.waiting = 0;
    for (unsigned k = 0; k < block.threads; k++) {
        if (order_of(k) != block.now) {
            make_ready(order_of(k));
        }
    }
    own.state = RUNS;
}

/* ---- a warp ---- */

/* All lanes of the mask are here: each gets its result, and can go on. */
static void exchange(unsigned first, unsigned mask, bool ballots)
{
    uint64_t values[WARP], votes = 0;

    for (unsigned lane = 0; lane < WARP; lane++) {
        values[lane] = all[first + lane].value;
        votes |= is_named(mask, lane) && values[lane] != 0 ? uint64_t(1) << lane : 0;
    }
    for (unsigned lane = 0; lane < WARP; lane++) {
        thread &t = all[first + lane];
        if (is_named(mask, lane)) {
            t.value = ballots ? votes : values[t.from];
            if (first + lane != block.now) {
                make_ready(first + lane);
            }
        }
    }
}

/* Whether lanes of a mask are where they must be: else the program ends. */
static void check_alike(unsigned first, const thread &own)
{
    for (unsigned lane = 0; lane < WARP; lane++) {
        const thread &other = all[first + lane];
        if (is_named(own.mask, lane) &&
            (other.mask != own.mask || !is_place(*own.call, *other.call))) {
            end_lane(block.now, first + lane);
        }
    }
}

uint64_t cuda_on_host_meet(const cuda_on_host_call &call, unsigned mask, uint64_t value,
                           unsigned from)
{
    const unsigned lane = block.now % WARP, first = block.now - lane;
    thread &own = all[block.now];
    warp &w = warps[first / WARP];

    own.call = &call;
    own.mask = mask;
    own.value = value;
    own.from = from;
    own.state = IN_WARP;
    if (!is_named(mask, lane) || !is_named(mask, from)) {
        end_mask(block.now, is_named(mask, lane) ? "takes from" : "is called by",
                 is_named(mask, lane) ? from : lane);
    }
    if (w.arrived == 0) {
        w.first = &own;
        w.alike = true;
    } else {
        w.alike = w.alike && mask == w.first->mask && is_place(call, *w.first->call);
    }
    w.arrived |= 1u << lane;
    if ((w.arrived & mask) != mask) {
        wait_here();
        return own.value;
    }
    if (!w.alike) {
        check_alike(first, own);
    }
    w.arrived &= ~mask;
    w.alike = false; /* those left, if any, are not the first's */
    exchange(first, mask, call.ballots);
    own.state = RUNS;
    return own.value;
}

/* ---- a block ---- */

void cuda_on_host_run_block(const char *kernel, unsigned threads, const std::function<void()> &body)
{
    if (threads == 0 || threads > THREADS || threads % WARP != 0) {
        fprintf(stderr, "kernel %s: a block of %u threads is not a number of whole warps\n", kernel,
                threads);
        abort();
    }
    block = {kernel, &body, threads, 0, 0, 0, 0, 0, false, 0};
    block.first_warp = static_cast<unsigned>(cuda_on_host_random(threads / WARP));
    block.lanes_fall = cuda_on_host_random(2) == 0;
    for (unsigned i = 0; i < threads; i++) {
        all[i].state = NEW;
    }
    fibre_of_thread(&host);
    current = &host;
    switch_to(take_idle());
}
