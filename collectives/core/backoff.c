#include "collectives/core/backoff.h"

#include <sched.h>
#include <time.h>

#include "base/trace.h"

/* A message of less is over before anybody could sleep. */
static const uint64_t short_bytes = 65536;
/* Of spinning, before others are let have the core. */
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

uint64_t dp_backoff_sleep_ns(const struct dp_backoff *p)
{
    const uint64_t waited = p->waited_ns;

    if (p->expect_ns > 0) {
        /* Overdue: an eighth of what it is by. */
        const uint64_t left =
            p->expect_ns > waited ? (p->expect_ns - waited) / 2 : (waited - p->expect_ns) / 8;
        return clamp(left, 50 * us, ms);
    }
    if (waited < p->spin_ns + 35 * ms) {
        return 20 * us;
    }
    return waited < p->spin_ns + 150 * ms ? 100 * us : ms;
}

bool dp_backoff_wait(struct dp_backoff *p)
{
    const uint64_t now = dp_now_ns();

    if (p->cancel != NULL && atomic_load_explicit(p->cancel, memory_order_relaxed) != 0) {
        return false;
    }
    p->begin_ns = p->begin_ns == 0 ? now : p->begin_ns;
    p->waited_ns = now - p->begin_ns;
    if (p->waited_ns >= p->spin_ns) {
        const struct timespec nap = {0, (long)dp_backoff_sleep_ns(p)};
        (void)nanosleep(&nap, NULL);
    } else if (p->waited_ns < pause_ns) {
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
