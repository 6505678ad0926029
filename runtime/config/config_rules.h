/*
 * config_rules.h - what a configuration may not contain: options that exclude each other. To add a
 * refusal, add a row to the table.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_RULES_H
#define DP_RUNTIME_CONFIG_CONFIG_RULES_H

#include <stdbool.h>

#include "runtime/config/config.h"

/* Options that contradict each other. */
struct dp_config_rule {
    const char *key; /* the key that errors name */
    bool (*applies)(const struct dp_config *config);
    const char *reason;
};

/* The first contradiction in a complete configuration, or NULL. */
const struct dp_config_rule *dp_config_rule_of_config(const struct dp_config *config);

#endif
