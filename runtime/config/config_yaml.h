/*
 * config_yaml.h - YAML text as a tree of nodes that know their places.
 *
 * The part of YAML that a configuration needs: mappings, lists, scalars. Scalars stay text, since
 * only the option tables know their types. Aliases, anchors, tags and second documents are refused.
 */
#ifndef DP_RUNTIME_CONFIG_CONFIG_YAML_H
#define DP_RUNTIME_CONFIG_CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "runtime/config/config_pool.h"

enum {
    DP_YAML_BYTES = 1 << 20, /* longest file */
    DP_YAML_DEPTH = 64       /* deepest nesting */
};

/* Where something was written. */
struct dp_place {
    const char
        *origin; /* "models/lenet.cfg", "--set train.seed=1", "DP_TRAIN_SEED"; NULL: a default */
    int line, column; /* from 1; line 0: the origin has no lines */
};

enum dp_yaml_kind { DP_YAML_SCALAR, DP_YAML_LIST, DP_YAML_MAP };

struct dp_yaml_node {
    enum dp_yaml_kind kind;
    const char *text; /* scalar: its value, "" if empty */
    bool plain;       /* scalar: unquoted, so it may be a number */
    struct dp_place at;
    struct dp_yaml_node *first; /* list, map: its entries, in order */
    struct dp_yaml_node *next;  /* the next entry */
    const char *key;            /* as entry of a map */
    struct dp_place key_at;
    const void *built; /* what the configuration built from it: the state of a layer, for
                        * printing */
};

/*
 * Parses text[0..length) into a tree in the pool. An empty text gives an empty scalar.
 *
 *   origin  in  of all places; `lines`: with line and column
 *   key     in  the key being read, for error messages; NULL: none
 *
 * Errors: DP_ERR_CONFIG (logged as "model.cfg:3:5: not valid YAML: ..."), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_yaml_parse(struct dp_pool *pool, const char *text, size_t length,
                                   const char *origin, bool lines, const char *key,
                                   struct dp_yaml_node **root);

/* Writes "model.cfg:12:5", or only the origin if there are no lines, or "default". Returns
 * `text`. */
const char *dp_place_text(const struct dp_place *place, char *text, size_t size);

/* Logs "model.cfg:12:5: key: message" as this run's error; `place` and `key` may be NULL. Returns
 * DP_ERR_CONFIG. */
dp_status dp_config_refuse(const struct dp_place *place, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Logs that memory ran out. Returns DP_ERR_NOMEM. */
dp_status dp_config_no_memory(void);

/* The entry of a map with that key, and the entry of a list with that index; or NULL. */
struct dp_yaml_node *dp_yaml_child(const struct dp_yaml_node *map, const char *key, size_t length);
struct dp_yaml_node *dp_yaml_item(const struct dp_yaml_node *list, size_t index);

/* "nothing", "'abc'", "a list", "a section": a description of the node, for error messages. */
const char *dp_yaml_found(const struct dp_yaml_node *node, char *text, size_t size);

/* Whether the value is empty: "key:", "key: null". */
bool dp_yaml_is_null(const struct dp_yaml_node *node);

/* Makes an empty value ("comm:") an empty section. */
void dp_yaml_as_map(struct dp_yaml_node *node);

/* Turns a scalar, as in "- relu", into the map of "- relu: {}". */
DP_CHECKED dp_status dp_yaml_write_out(struct dp_pool *pool, struct dp_yaml_node *node);

/* One step of a dotted path such as "model.layers[3].dense": a name, or an index. */
struct dp_path_step {
    const char *name; /* NULL: an index */
    size_t length, index;
};

/* Parses the first step of `path`. Returns the rest ("" after the last), or NULL if the path is
 * malformed. */
const char *dp_path_next(const char *path, struct dp_path_step *step);

/* The node at the end of a path, or NULL. */
struct dp_yaml_node *dp_yaml_find(struct dp_yaml_node *root, const char *path);

#endif
