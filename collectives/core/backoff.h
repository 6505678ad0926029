/*
 * backoff.h - waiting for another rank or thread without wasting a core.
 *
 * Who has a core for itself spins for a moment, since the answer is mostly near, and lets others
 * have the core between two looks: where ranks share one, the rank that is waited for may need it.
 * Then the thread sleeps, longer and longer, so that a rank that waits for seconds costs nothing.
 * Every wait of this layer goes through here and looks at the cancel flag, so that a failure
 * elsewhere in the process ends it.
 */
#ifndef DP_COLLECTIVES_CORE_BACKOFF_H
#define DP_COLLECTIVES_CORE_BACKOFF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct dp_backoff {
    const atomic_int *cancel; /* borrowed; not 0: give up. May be NULL */
    uint64_t spin_ns;         /* before the first sleep: DP_SPIN_NS or 0 */
    uint64_t expect_ns;       /* how long the wait may be expected to take; 0: nobody knows */
    uint64_t begin_ns;        /* of the wait; 0: not yet begun */
    uint64_t waited_ns;       /* so far */
};

/* What a wait spins where nothing else wants the core. Longer than any wait of ranks that keep in
 * step, shorter than what a thread of another rank would miss. */
enum { DP_SPIN_NS = 1000000 };

/* One turn of waiting. false: cancelled. */
bool dp_backoff_wait(struct dp_backoff *patience);

/*
 * How long to sleep after `waited_ns`, of which `spin_ns` were not slept; the kernel adds its slack
 * of some 50 us.
 *
 * Without an expectation: 20 us for the first 35 ms, so that a step's computing, which the wait may
 * cover, is not followed by a long sleep; then 100 us; 1 ms after 150 ms.
 *
 * With one, half of what is left of it, from 50 us to 1 ms: each waking takes the core from whoever
 * computes, and what the kernel's buffers hold (a millisecond of 1 Gb/s is 125 KB) needs nobody.
 */
uint64_t dp_backoff_sleep_ns(const struct dp_backoff *patience);

/* What a wire carries, learnt from waits that had to sleep. Zeroed: nothing is known yet. */
struct dp_wire_pace {
    double ns_per_byte;
    uint64_t last_ns; /* when the last message came */
};

/* How long the next `bytes` may take; 0: nobody knows, or so few that latency counts. */
uint64_t dp_wire_pace_expect(const struct dp_wire_pace *pace, uint64_t bytes);

/* These bytes have come. Messages under way at a time share the wire, so what counts is the time
 * since the one before, or since `begin_ns`, when waiting began; 0: they were there already. */
void dp_wire_pace_note(struct dp_wire_pace *pace, uint64_t bytes, uint64_t begin_ns);

#endif
