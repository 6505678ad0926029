#include "runtime/data/stream/pace.h"

/* Batches between two looks; and shares of the time, in thousandths: with more waiting a thread is
 * added, with less one is taken away where fewer would do. */
enum { WINDOW = 8, MANY = 20, FEW = 5 };

static int clamp(uint64_t wanted, int most)
{
    return wanted < 1 ? 1 : wanted > (uint64_t)most ? most : (int)wanted;
}

/* Threads whose work fits into the time that steps compute. */
static uint64_t needed(const struct dp_pace *p)
{
    return p->step_ns == 0 ? (uint64_t)p->most : (p->work_ns + p->step_ns - 1) / p->step_ns;
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
        const uint64_t more = (uint64_t)p->active + 1;
        p->active = clamp(wanted > more ? wanted : more, p->most);
    } else if (p->wait_ns * 1000 < all * FEW && wanted < (uint64_t)p->active) {
        p->active--;
    }
    p->batches = p->wait_ns = p->step_ns = p->work_ns = 0;
    return p->active;
}
