#include "runtime/trainer/update/weight_sync.h"

#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/state/state.h"
#include "runtime/trainer/trainer_parts.h"
#include "runtime/trainer/update/deferred_update.h"

static dp_status average(struct dp_trainer *t)
{
    const struct dp_flat *f = &t->state.flat;

    DP_TRY(dp_exchange_mean(t->exchange, f->master));
    for (int i = 0; i < 2 && f->slots[i] != NULL; i++) {
        DP_TRY(dp_exchange_mean(t->exchange, f->slots[i]));
    }
    t->modes.unaveraged = false;
    return dp_trainer_round(t);
}

dp_status dp_trainer_sync_weights(struct dp_trainer *t)
{
    DP_TRY(dp_deferred_update_finish(t));
    dp_modes_finish_copies(&t->modes);
    return t->modes.unaveraged ? average(t) : DP_OK;
}
