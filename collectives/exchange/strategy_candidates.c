#include "collectives/exchange/strategy_candidates.h"

#include <string.h>

#include "collectives/strategies/strategy.h"

/* Candidates besides the names in strategies.def, where nodes have several ranks. even: nodes must
 * have the same number of ranks. free: only where no order is needed; else hier chooses the same by
 * itself. */
static const struct {
    const char *text;
    bool even, free;
} variants[] = {{"hier:outer=direct", false, true}, {"hier:rails=1", true, false}};

/* Whether `text` is a candidate in any group with this group's nodes. */
static bool is_listed(const struct dp_group *group, const char *text)
{
    const bool several = group->nodes > 1 && group->nodes < group->size;

    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        if (strcmp(text, variants[i].text) == 0) {
            return several && (dp_group_even(group) || !variants[i].even) &&
                   !(group->ordered && variants[i].free);
        }
    }
    return dp_plugin_find(&dp_strategies, text, strlen(text)) != NULL;
}

const char *dp_strategy_candidate(int i)
{
    const struct dp_plugin *plugin = dp_plugin_at(&dp_strategies, i);
    const int variant = i - dp_strategies.count - dp_strategies.added_count;

    if (plugin != NULL) {
        return plugin->name;
    }
    return variant >= 0 && variant < (int)(sizeof(variants) / sizeof(variants[0]))
               ? variants[variant].text
               : NULL;
}

bool dp_strategy_candidate_runs(const struct dp_group *group, const char *text)
{
    const struct dp_plugin *plugin = dp_plugin_find(&dp_strategies, text, strcspn(text, ":"));
    const struct dp_strategy *strategy = (const struct dp_strategy *)plugin;
    const char *why_not;

    return is_listed(group, text) && strategy->sum != NULL && !strategy->compares &&
           !strategy->gpus && strategy->supports(group, &why_not) &&
           (!group->ordered || dp_strategy_ordered(text, group));
}
