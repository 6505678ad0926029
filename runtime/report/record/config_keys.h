/*
 * config_keys.h - config.yaml as keys and values: "train.seed" "1", "model.layers[3].dense.units"
 * "64".
 *
 * It reads the form in which a run prints its configuration (runtime/config/config_print.h): one
 * key a line, indented by two, lists with "- ", maps in braces. Of other YAML it makes what it can:
 * keys are compared, not obeyed.
 */
#ifndef DP_RUNTIME_REPORT_RECORD_CONFIG_KEYS_H
#define DP_RUNTIME_REPORT_RECORD_CONFIG_KEYS_H

#include <stdbool.h>

#include "base/status.h"

enum { DP_CONFIG_KEY_BYTES = 128, DP_CONFIG_VALUE_BYTES = 128, DP_CONFIG_KEYS_MOST = 4096 };

struct dp_config_entry {
    char key[DP_CONFIG_KEY_BYTES], value[DP_CONFIG_VALUE_BYTES]; /* what is longer is cut off */
};

struct dp_config_keys {
    struct dp_config_entry *entries; /* owned, [count] */
    int count;
    bool cut; /* there are more than DP_CONFIG_KEYS_MOST */
};

/* text NULL: no keys. After success dp_config_keys_release() must be called. Errors:
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_config_keys_parse(const char *text, struct dp_config_keys *out);
void dp_config_keys_release(struct dp_config_keys *keys);

/* The value of a key, or NULL. */
const char *dp_config_keys_find(const struct dp_config_keys *keys, const char *key);

#endif
