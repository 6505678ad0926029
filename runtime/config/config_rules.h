/*
 * config_rules.h - what a configuration may not contain: values that this version does not offer,
 * and options that exclude each other. Each is a table; to add a refusal, add a row. A third table
 * lists keys without effect.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_RULES_H
#define DP_RUNTIME_CONFIG_CONFIG_RULES_H

#include <stdbool.h>

#include "runtime/config/config.h"

/* Why this version refuses the value `text` of `key`, or NULL. */
const char *dp_config_rule_of_value(const char *key, const char *text);

/* Whether only the default of `key` is offered, or the key has no effect in this version, so that
 * --help leaves it out. */
bool dp_config_rule_hides(const char *key);

/* Options that contradict each other. */
struct dp_config_rule {
    const char *key; /* the key that errors name */
    bool (*applies)(const struct dp_config *config);
    const char *reason;
};

/* The first contradiction in a complete configuration, or NULL. */
const struct dp_config_rule *dp_config_rule_of_config(const struct dp_config *config);

#endif
