#include "runtime/trainer/update/local_steps.h"

#include "runtime/trainer/trainer_parts.h"

/* The first step that does not share its gradients. */
static uint64_t first_local(const struct dp_trainer *t)
{
    return (uint64_t)t->config->train.local_after;
}

bool dp_local_steps_now(const struct dp_trainer *t)
{
    return t->config->train.local_steps > 1 && t->group->size > 1 &&
           t->state.step >= first_local(t);
}

bool dp_local_steps_end(const struct dp_trainer *t)
{
    const uint64_t period = (uint64_t)t->config->train.local_steps;

    return t->modes.unaveraged && (t->state.step + 1 - first_local(t)) % period == 0;
}
