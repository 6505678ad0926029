/*
 * config_own.h - shared by the files config*.c; no other file includes it.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_OWN_H
#define DP_RUNTIME_CONFIG_CONFIG_OWN_H

#include <stddef.h>

#include "runtime/config/config.h"
#include "runtime/config/config_yaml.h"

/* ---- config_tables.c: every key outside of `model` ---- */

/*
 * A section of model.cfg: the table of its keys, and the offset of its struct in struct dp_config.
 * If the section has a family, its key `name` chooses one of the plug-ins; the options of all
 * plug-ins are keys of the section, too.
 */
struct dp_config_section {
    const char *path; /* "optimizer.schedule"; "" for the keys at the top */
    const struct dp_option *options;
    size_t offset;
    const char *help;
    const struct dp_plugin_family *family; /* NULL: none */
    size_t choice;                         /* offset of a struct dp_plugin_choice in struct
                                            * dp_config */
    int before;                            /* rows of `options` that are printed before those of
                                            * plug-ins */
};

/* Section `i`, or NULL after the last; a section comes before the sections inside it. */
const struct dp_config_section *dp_config_section_at(int i);

/* The section with that path, or NULL. */
const struct dp_config_section *dp_config_section_find(const char *path);

/* The section's own name if the one at index `i` is directly inside `path`, else NULL. */
const char *dp_config_section_inside(int i, const char *path);

/* The options of `repeat` besides its layers; not a layer type, since it disappears when
 * unrolled. */
struct dp_config_repeat {
    int times;
};
extern const struct dp_option dp_config_repeat_options[];

/* The keys of `model` besides its layers, as they are written; see struct dp_model_config. */
struct dp_config_model {
    struct dp_numbers input;
    const char *recompute;
};
enum { DP_CONFIG_MODEL_INPUT, DP_CONFIG_MODEL_RECOMPUTE }; /* rows of the table */
extern const struct dp_option dp_config_model_options[];

/* ---- config_keys.c: the keys of sections, including those of plug-ins ---- */

/* Key `i` of a section, or NULL after the last. A key that several plug-ins have comes once, as the
 * last one's. *plugins (may be NULL): whether it is an option of plug-ins. */
const struct dp_option *dp_config_key_at(const struct dp_config_section *section, int i,
                                         bool *plugins);

/* The key of that name, or NULL; the name that `name` may be a misspelling of, or NULL. */
const struct dp_option *dp_config_key_find(const struct dp_config_section *section,
                                           const char *name, bool *plugins);
const char *dp_config_key_nearest(const struct dp_config_section *section, const char *name);

/* Finds the row of a key that counts, and the struct with its value. false: the chosen plug-in does
 * not have the key, and those that do have different defaults. */
bool dp_config_key_value(const struct dp_config_section *section, const struct dp_config *config,
                         const char *name, const struct dp_option **row, const void **base);

/* ---- config_load.c ---- */

/* A configuration under construction; the pool becomes the configuration's. */
struct dp_draft {
    struct dp_pool *pool;
    struct dp_yaml_node *root;
    struct dp_config *config; /* in the pool */
    int layer_count;          /* so far, unrolled, including those inside residuals */
    int mistakes;             /* so far: all are reported, but no more than DP_CONFIG_MISTAKES */
};

enum { DP_CONFIG_MISTAKES = 10 };

/* Counts a mistake that does not keep the rest from being read, and makes it DP_OK unless there are
 * too many; passes on what is none. */
DP_CHECKED dp_status dp_config_count(struct dp_draft *draft, dp_status status);

/* Reads a node into the field of `row` in the struct at `base`; `key` is its whole path. */
DP_CHECKED dp_status dp_config_apply(const struct dp_option *row, void *base,
                                     const struct dp_yaml_node *node, const char *key);

/* Refuses an entry of the map at `path` whose key is repeated. */
DP_CHECKED dp_status dp_config_once(const struct dp_yaml_node *map,
                                    const struct dp_yaml_node *entry, const char *path);

/* Refuses an entry whose key is unknown; `nearest` may be NULL. */
DP_CHECKED dp_status dp_config_unknown(const struct dp_yaml_node *entry, const char *path,
                                       const char *nearest);

/* Refuses the value of `key` in the section at `path`, or the whole section if `key` is "". */
DP_CHECKED dp_status dp_config_refuse_key(const struct dp_draft *draft, const char *path,
                                          const char *key, const char *reason);

/* "path.key", or "key" at the top; in the pool. NULL: no memory. */
char *dp_config_join(struct dp_pool *pool, const char *path, const char *key);

/* ---- config_choice.c ---- */

/* For a section with a family whose own keys are filled in: finds the plug-in, and fills in the
 * options of all plug-ins. */
DP_CHECKED dp_status dp_config_choose(struct dp_draft *draft,
                                      const struct dp_config_section *section);

/* ---- config_layers.c ---- */

/* Fills config->model from the node of `model`. */
DP_CHECKED dp_status dp_config_build_model(struct dp_draft *draft, struct dp_yaml_node *model);

/* ---- config_plugins.c ---- */

/* Makes the node of a list of plug-ins (DP_KEY_PLUGINS) a scalar, the text of the list. */
DP_CHECKED dp_status dp_config_read_plugins(struct dp_pool *pool, struct dp_yaml_node *node,
                                            const char *key);

/* The list that such a text is, as it is written in model.cfg. */
void dp_config_write_plugins(const char *text, char *out, size_t size);

/* ---- config_folders.c ---- */

/* Makes the node of a list of folders (DP_KEY_FOLDERS) a scalar, the text of the list. */
DP_CHECKED dp_status dp_config_read_folders(struct dp_pool *pool, struct dp_yaml_node *node,
                                            const char *key);

/* ---- config_override.c ---- */

/* Sets the DP_* variables, then the texts of --set, in the tree. */
DP_CHECKED dp_status dp_config_override(struct dp_draft *draft, char *const *environment,
                                        const char *const *sets, int set_count);

/* ---- config_print.c ---- */

/* Writes the resolved text, with its tail; owned by the caller (dp_free). */
DP_CHECKED dp_status dp_config_print(const struct dp_draft *draft, char **text);

/* Sets the places of a resolved text's nodes from its tail. */
DP_CHECKED dp_status dp_config_read_tail(struct dp_pool *pool, const char *text,
                                         struct dp_yaml_node *root);

#endif
