#include "runtime/optim/loss_scaler.h"

#include <stdio.h>

#include "base/log.h"

enum { FIRST_SCALE = 65536, GROW_AFTER = 2000, TOLD_EVERY = 100 };

void dp_loss_scaler_init(struct dp_loss_scaler *s, bool on)
{
    *s = (struct dp_loss_scaler){.on = on, .scale = on ? FIRST_SCALE : 1, .grow_after = GROW_AFTER};
}

bool dp_loss_scaler_tells(const struct dp_loss_scaler *s)
{
    return s->skipped % TOLD_EVERY == 0 || s->scale / 2 < 1;
}

static void back_off(struct dp_loss_scaler *s, const char *where, uint64_t step, bool speaks)
{
    const double next = s->scale / 2;

    (void)snprintf(s->where, sizeof(s->where), "%s", where);
    s->exhausted = next < 1;
    if (speaks && !s->exhausted && dp_loss_scaler_tells(s)) {
        DP_INFO("step %llu skipped: the gradient is not finite at loss scale %.0f, first in %s; "
                "now %.0f",
                (unsigned long long)step, s->scale, s->where, next);
    }
    s->scale = s->exhausted ? s->scale : next;
    s->good = 0;
    s->skipped++;
}

void dp_loss_scaler_step(struct dp_loss_scaler *s, bool overflowed, const char *where,
                         uint64_t step, bool speaks)
{
    if (s->on && overflowed) {
        back_off(s, where, step, speaks);
    } else if (s->on && ++s->good >= s->grow_after) {
        s->scale *= 2;
        s->good = 0;
    }
}
