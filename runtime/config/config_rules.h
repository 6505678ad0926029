/*
 * config_rules.h - what the configuration may not ask for: values that this version does not offer,
 * and options that cannot go together. Two tables; to add a refusal, add a row. A third one names
 * keys without effect.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_RULES_H
#define DP_RUNTIME_CONFIG_CONFIG_RULES_H

#include <stdbool.h>

#include "runtime/config/config.h"

/* Why this version refuses the value `text` of `key`, or NULL. */
const char *dp_config_rule_of_value(const char *key, const char *text);

/* Whether nothing but the default of `key` is offered, or no value of it has an effect in this
 * version, so that --help leaves it out. */
bool dp_config_rule_hides(const char *key);

/* Options that contradict each other. */
struct dp_config_rule {
    const char *key; /* the one that is to blame: errors point at it */
    bool (*applies)(const struct dp_config *config);
    const char *reason;
};

/* The first contradiction in a complete configuration, or NULL. */
const struct dp_config_rule *dp_config_rule_of_config(const struct dp_config *config);

#endif
