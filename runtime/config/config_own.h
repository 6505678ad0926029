/*
 * config_own.h - what the files config*.c share; nobody else includes it.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_OWN_H
#define DP_RUNTIME_CONFIG_CONFIG_OWN_H

#include <stddef.h>

#include "runtime/config/config.h"
#include "runtime/config/config_yaml.h"

/* ---- config_tables.c: every key outside of `model` ---- */

/* A section of model.cfg: the table of its keys, and where its struct lies in struct dp_config. */
struct dp_config_section {
    const char *path; /* "optimizer.schedule"; "" for the keys at the top */
    const struct dp_option *options;
    size_t offset;
    const char *help;
};

/* Section `i`, or NULL behind the last; a section stands before the sections inside it. */
const struct dp_config_section *dp_config_section_at(int i);

/* The section with that path, or NULL. */
const struct dp_config_section *dp_config_section_find(const char *path);

/* Whether the section at index `i` lies directly inside `path`, and its own name there. */
const char *dp_config_section_inside(int i, const char *path);

/* What `repeat` takes besides its layers; not a layer type, since it is gone once unrolled. */
struct dp_config_repeat {
    int times;
};
extern const struct dp_option dp_config_repeat_options[];

/* model.input as it is written; struct dp_shape as it is used. */
struct dp_config_input {
    struct dp_numbers input;
};
extern const struct dp_option dp_config_input_options[];

/* ---- config_load.c ---- */

/* A configuration that is being made; the pool becomes the configuration's. */
struct dp_draft {
    struct dp_pool *pool;
    struct dp_yaml_node *root;
    struct dp_config *config; /* in the pool */
    int layer_count;          /* so far, unrolled, those inside residuals included */
};

/* Reads a node into the field of `row` in the struct at `base`; `key` is its whole path. */
DP_CHECKED dp_status dp_config_apply(const struct dp_option *row, void *base,
                                     const struct dp_yaml_node *node, const char *key);

/* Refuses an entry of the map at `path` whose key stands there twice. */
DP_CHECKED dp_status dp_config_once(const struct dp_yaml_node *map,
                                    const struct dp_yaml_node *entry, const char *path);

/* Refuses an entry whose key is unknown; `nearest` may be NULL. */
DP_CHECKED dp_status dp_config_unknown(const struct dp_yaml_node *entry, const char *path,
                                       const char *nearest);

/* "path.key", or "key" at the top; in the pool. NULL: no memory. */
char *dp_config_join(struct dp_pool *pool, const char *path, const char *key);

/* ---- config_layers.c ---- */

/* Fills config->model from the node of `model`. */
DP_CHECKED dp_status dp_config_build_model(struct dp_draft *draft, struct dp_yaml_node *model);

/* ---- config_override.c ---- */

/* Puts the DP_* variables, then the texts of --set, into the tree. */
DP_CHECKED dp_status dp_config_override(struct dp_draft *draft, char *const *environment,
                                        const char *const *sets, int set_count);

/* ---- config_print.c ---- */

/* Writes the resolved text, tail included; owned by the caller (dp_free). */
DP_CHECKED dp_status dp_config_print(const struct dp_draft *draft, char **text);

/* Gives the nodes of a resolved text the places that its tail names. */
DP_CHECKED dp_status dp_config_read_tail(struct dp_pool *pool, const char *text,
                                         struct dp_yaml_node *root);

#endif
