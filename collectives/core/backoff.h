/*
 * backoff.h - waiting for another rank or thread without wasting a core.
 *
 * A thread with a core of its own spins for a short time, since the answer is usually near. It
 * yields between two checks: where ranks share a core, the awaited rank may need it. Then the
 * thread sleeps, for longer and longer, so that a rank that waits for seconds costs nothing. Every
 * wait of this layer goes through here and checks the cancel flag, so that a failure elsewhere in
 * the process ends it.
 */
#ifndef DP_COLLECTIVES_CORE_BACKOFF_H
#define DP_COLLECTIVES_CORE_BACKOFF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct dp_backoff {
    const atomic_int *cancel; /* borrowed; not 0: give up. May be NULL */
    uint64_t spin_ns;         /* time before the first sleep: DP_SPIN_NS or 0 */
    uint64_t expect_ns;       /* expected length of the wait; 0: unknown */
    uint64_t begin_ns;        /* start of the wait; 0: not started */
    uint64_t waited_ns;       /* time waited so far */
};

/* How long a wait spins where nothing else needs the core. Longer than any wait of ranks that keep
 * in step, and shorter than a delay that a thread of another rank would notice. */
enum { DP_SPIN_NS = 1000000 };

/* Does one iteration of waiting. Returns false when cancelled. */
bool dp_backoff_wait(struct dp_backoff *backoff);

/*
 * Returns how long to sleep after `waited_ns`; the thread spun for the first `spin_ns` of that. The
 * kernel adds a slack of about 50 us.
 *
 * Without an expectation: 20 us for the first 35 ms, 100 us until 150 ms, then a 256th of the time
 * waited so far, from 1 ms to 20 ms. The first value is small because the wait may cover a step's
 * computing, and no long sleep should follow that; the last ones are long because of hundreds of
 * ranks that wake every millisecond nobody on their cores could compute.
 *
 * With an expectation: half of the remaining time, from 50 us to 1 ms. Each wakeup takes the core
 * from a thread that computes, and the kernel's buffers empty without help (1 ms of 1 Gb/s is 125
 * KB).
 */
uint64_t dp_backoff_sleep_ns(const struct dp_backoff *backoff);

/* The measured speed of a wire, from waits that had to sleep. Zeroed: not known yet. */
struct dp_wire_pace {
    double ns_per_byte;
    uint64_t last_ns; /* arrival of the last message */
};

/* Returns how long the next `bytes` may take. 0: unknown, or so few that only latency counts. */
uint64_t dp_wire_pace_expect(const struct dp_wire_pace *pace, uint64_t bytes);

/* Records that `bytes` have arrived. Concurrent messages share the wire, so the time counts from
 * the previous arrival or from `begin_ns`, the start of the wait, whichever is later. begin_ns 0:
 * they had arrived before. */
void dp_wire_pace_note(struct dp_wire_pace *pace, uint64_t bytes, uint64_t begin_ns);

#endif
