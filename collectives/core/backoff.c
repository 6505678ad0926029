#include "collectives/core/backoff.h"

#include <sched.h>
#include <time.h>

#include "base/trace.h"

/* A shorter message arrives before a thread could sleep. */
static const uint64_t short_bytes = 65536;
/* Time to spin before the first sched_yield(). */
static const uint64_t pause_ns = 10000;
static const uint64_t us = 1000, ms = 1000000;

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    value = value < least ? least : value;
    return value > most ? most : value;
}

uint64_t dp_backoff_sleep_ns(const struct dp_backoff *b)
{
    const uint64_t waited = b->waited_ns;

    if (b->expect_ns > 0) {
        /* Overdue: sleep an eighth of the delay. */
        const uint64_t left =
            b->expect_ns > waited ? (b->expect_ns - waited) / 2 : (waited - b->expect_ns) / 8;
        return clamp(left, 50 * us, ms);
    }
    if (waited < b->spin_ns + 35 * ms) {
        return 20 * us;
    }
    return waited < b->spin_ns + 150 * ms ? 100 * us : clamp(waited / 256, ms, 20 * ms);
}

bool dp_backoff_wait(struct dp_backoff *b)
{
    const uint64_t now = dp_now_ns();

    if (b->cancel != NULL && atomic_load_explicit(b->cancel, memory_order_relaxed) != 0) {
        return false;
    }
    b->begin_ns = b->begin_ns == 0 ? now : b->begin_ns;
    b->waited_ns = now - b->begin_ns;
    if (b->waited_ns >= b->spin_ns) {
        const struct timespec nap = {0, (long)dp_backoff_sleep_ns(b)};
        (void)nanosleep(&nap, NULL);
    } else if (b->waited_ns < pause_ns) {
        pause_core();
    } else {
        (void)sched_yield();
    }
    return true;
}

uint64_t dp_wire_pace_expect(const struct dp_wire_pace *pace, uint64_t bytes)
{
    return bytes < short_bytes ? 0 : (uint64_t)(pace->ns_per_byte * (double)bytes);
}

void dp_wire_pace_note(struct dp_wire_pace *pace, uint64_t bytes, uint64_t begin_ns)
{
    const uint64_t now = dp_now_ns();
    const uint64_t since = begin_ns > pace->last_ns ? begin_ns : pace->last_ns;

    if (begin_ns > 0 && bytes >= short_bytes) {
        const double taken = (double)(now - since) / (double)bytes;
        pace->ns_per_byte += pace->ns_per_byte > 0.0 ? (taken - pace->ns_per_byte) / 8.0 : taken;
    }
    pace->last_ns = now;
}
