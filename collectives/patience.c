#include "collectives/patience.h"

#include <time.h>

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool dp_patience_turn(struct dp_patience *p)
{
    struct timespec nap = {0, 20000};

    if (p->cancel != NULL && atomic_load_explicit(p->cancel, memory_order_relaxed) != 0) {
        return false;
    }
    p->turns++;
    if (p->turns <= p->spins) {
        pause_core();
        return true;
    }
    /* 20 us for the first milliseconds, then 100 us, then 1 ms. */
    if (p->turns > p->spins + 1500) {
        nap.tv_nsec = 1000000;
    } else if (p->turns > p->spins + 500) {
        nap.tv_nsec = 100000;
    }
    (void)nanosleep(&nap, NULL);
    return true;
}
