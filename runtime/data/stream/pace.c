#include "runtime/data/stream/pace.h"

/* Batches between two looks; and shares of the time, in thousandths: with more waiting a thread is
 * added, with less one is taken away where fewer would do. */
enum { WINDOW = 8, MANY = 20, FEW = 5 };

/* Threads whose work fits into the time that steps compute; one, where there was no work. */
static uint64_t needed(const struct dp_pace *p)
{
    if (p->step_ns == 0) {
        return (uint64_t)p->most;
    }
    return p->work_ns == 0 ? 1 : (p->work_ns + p->step_ns - 1) / p->step_ns;
}

int dp_pace_note(struct dp_pace *p, uint64_t wait_ns, uint64_t step_ns, uint64_t work_ns)
{
    p->batches++;
    p->wait_ns += wait_ns;
    p->step_ns += step_ns;
    p->work_ns += work_ns;
    if (p->batches < WINDOW) {
        return p->active;
    }
    const uint64_t all = p->wait_ns + p->step_ns, wanted = needed(p);

    if (p->wait_ns * 1000 > all * MANY) {
        const uint64_t more = (uint64_t)p->active + 1, next = wanted > more ? wanted : more;
        p->active = next > (uint64_t)p->most ? p->most : (int)next;
    } else if (p->wait_ns * 1000 < all * FEW && wanted < (uint64_t)p->active) {
        p->active--;
    }
    p->batches = p->wait_ns = p->step_ns = p->work_ns = 0;
    return p->active;
}
