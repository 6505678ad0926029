/*
 * config_override.c - replaces values of the file: DP_* variables, then --set.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "runtime/config/config_load.h"
#include "runtime/config/config_own.h"

enum { VARIABLE_MAX = DP_VARIABLE };

/* The name that is preferred, and its alias. */
static const char *const prefixes[] = {"DP_", "DDP_"};

/* ---- setting a value in the tree ---- */

static dp_status add_entry(struct dp_draft *draft, struct dp_yaml_node *map,
                           const struct dp_path_step *step, const struct dp_place *place,
                           struct dp_yaml_node **entry)
{
    struct dp_yaml_node *fresh = dp_pool_take(draft->pool, sizeof(*fresh));
    struct dp_yaml_node **tail = &map->first;

    if (fresh == NULL ||
        (fresh->key = dp_pool_copy(draft->pool, step->name, step->length)) == NULL) {
        return dp_config_no_memory();
    }
    fresh->kind = DP_YAML_SCALAR;
    fresh->text = "";
    fresh->plain = true;
    fresh->at = fresh->key_at = *place;
    while (*tail != NULL) {
        tail = &(*tail)->next;
    }
    *tail = fresh;
    *entry = fresh;
    return DP_OK;
}

/* Goes one step down from *node; missing names are added. `path`: up to here. */
static dp_status enter(struct dp_draft *draft, struct dp_yaml_node **node, const char *path,
                       const struct dp_path_step *step, const struct dp_place *place)
{
    struct dp_yaml_node *inside;
    char found[128];

    if (step->name == NULL) {
        inside = dp_yaml_item(*node, step->index);
        if (inside == NULL && (*node)->kind == DP_YAML_LIST) {
            return dp_config_refuse(place, path, "the list has no entry [%zu]", step->index);
        }
        if (inside == NULL) {
            return dp_config_refuse(place, path, "expected a list, found %s",
                                    dp_yaml_found(*node, found, sizeof(found)));
        }
        *node = inside;
        return DP_OK;
    }
    dp_yaml_as_map(*node);
    if ((*node)->kind == DP_YAML_SCALAR && strlen((*node)->text) == step->length &&
        memcmp((*node)->text, step->name, step->length) == 0) {
        DP_TRY(dp_yaml_write_out(draft->pool, *node));
    }
    if ((*node)->kind != DP_YAML_MAP) {
        return dp_config_refuse(place, path, "expected a section, found %s",
                                dp_yaml_found(*node, found, sizeof(found)));
    }
    inside = dp_yaml_child(*node, step->name, step->length);
    if (inside == NULL) {
        DP_TRY(add_entry(draft, *node, step, place, &inside));
    }
    *node = inside;
    return DP_OK;
}

/* Whether all of it can be a key: nothing is entered for one that cannot. */
static bool is_path(const char *key)
{
    struct dp_path_step step;

    do {
        key = dp_path_next(key, &step);
    } while (key != NULL && *key != '\0');
    return key != NULL;
}

/* Replaces the value at `key` by `value`, whose place becomes the place of both. */
static dp_status put(struct dp_draft *draft, const char *key, const struct dp_yaml_node *value,
                     const struct dp_place *place)
{
    struct dp_yaml_node *node = draft->root;
    const char *rest = key;

    if (!is_path(key)) {
        return dp_config_refuse(place, NULL, "expected a key such as model.layers[3].dense.units");
    }
    do {
        const size_t length = (size_t)(rest - key);
        const size_t dot = length > 0 && key[length - 1] == '.' ? 1 : 0;
        const char *path = dp_pool_copy(draft->pool, key, length - dot);
        struct dp_path_step step;
        if (path == NULL) {
            return dp_config_no_memory();
        }
        rest = dp_path_next(rest, &step);
        DP_TRY(enter(draft, &node, path[0] != '\0' ? path : NULL, &step, place));
    } while (*rest != '\0');
    node->kind = value->kind;
    node->text = value->text;
    node->plain = value->plain;
    node->first = value->first;
    node->at = node->key_at = *place;
    return DP_OK;
}

/* The length of a run is given once: a later source also replaces the other key of the pair. */
static void drop_other_length(struct dp_draft *draft, const char *key)
{
    const char *other = strcmp(key, "train.steps") == 0    ? "epochs"
                        : strcmp(key, "train.epochs") == 0 ? "steps"
                                                           : NULL;
    struct dp_yaml_node *train = dp_yaml_find(draft->root, "train");

    if (other == NULL || train == NULL) {
        return;
    }
    for (struct dp_yaml_node **link = &train->first; *link != NULL; link = &(*link)->next) {
        if (strcmp((*link)->key, other) == 0) {
            *link = (*link)->next;
            return;
        }
    }
}

/* Whether YAML leaves out a part of the text as a comment: "/data/set #2". In one line of a shell
 * nobody means that. */
static bool has_comment(const struct dp_yaml_node *value, const char *text)
{
    bool blank = true, found = false;

    for (const char *c = text; *c != '\0' && !found; c++) {
        found = blank && *c == '#';
        blank = isspace((unsigned char)*c) != 0;
    }
    return found && value->kind == DP_YAML_SCALAR && value->plain;
}

static dp_status override(struct dp_draft *draft, const char *key, const char *text,
                          const char *origin)
{
    const struct dp_place place = {origin, 0, 0};
    struct dp_yaml_node *value;

    DP_TRY(dp_yaml_parse(draft->pool, text, strlen(text), origin, false, key, &value));
    if (has_comment(value, text)) {
        return dp_config_refuse(&place, key,
                                "from '#' on it is a comment: put the value in \"...\"");
    }
    DP_TRY(put(draft, key, value, &place));
    drop_other_length(draft, key);
    return DP_OK;
}

/* ---- the environment ---- */

/* "DP_OPTIMIZER_SCHEDULE_GAMMA" */
static void variable_name(const struct dp_config_section *section, const struct dp_option *row,
                          char *name)
{
    (void)snprintf(name, VARIABLE_MAX, "%s%s%s%s", prefixes[0], section->path,
                   section->path[0] != '\0' ? "_" : "", row->name);
    for (char *c = name; *c != '\0'; c++) {
        *c = (char)(*c == '.' ? '_' : toupper((unsigned char)*c));
    }
}

/* The value of the variable with exactly this name, or NULL. */
static const char *exact_variable(char *const *environment, const char *name)
{
    const size_t length = strlen(name);

    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
            return *environment + length + 1;
        }
    }
    return NULL;
}

dp_status dp_config_variable(char *const *environment, char name[DP_VARIABLE], const char **value)
{
    const struct dp_place place = {name, 0, 0};
    char alias[DP_VARIABLE];
    const char *other;

    (void)snprintf(alias, sizeof(alias), "%s%.120s", prefixes[1], name + strlen(prefixes[0]));
    *value = exact_variable(environment, name);
    other = exact_variable(environment, alias);
    if (*value != NULL && other != NULL && strcmp(*value, other) != 0) {
        return dp_config_refuse(&place, NULL, "its alias %s has another value: unset one", alias);
    }
    if (*value == NULL && other != NULL) {
        memcpy(name, alias, sizeof(alias));
        *value = other;
    }
    return DP_OK;
}

/* Sections whose keys have variables: those of the tables, then the parts of `model` other than
 * layers. */
static const struct dp_config_section *section_at(int i)
{
    static const struct dp_config_section model = {.path = "model",
                                                   .options = dp_config_model_options};
    const struct dp_config_section *section = dp_config_section_at(i);

    return section == NULL && i > 0 && dp_config_section_at(i - 1) != NULL ? &model : section;
}

static dp_status override_from(struct dp_draft *draft, const struct dp_config_section *section,
                               char *const *environment)
{
    const struct dp_option *row;

    for (int i = 0; (row = dp_config_key_at(section, i, NULL)) != NULL; i++) {
        char name[VARIABLE_MAX];
        const char *value, *epochs_value, *key, *origin;
        char epochs[VARIABLE_MAX] = "DP_TRAIN_EPOCHS";
        variable_name(section, row, name);
        DP_TRY(dp_config_variable(environment, name, &value));
        if (value == NULL) {
            continue;
        }
        key = dp_config_join(draft->pool, section->path, row->name);
        origin = dp_pool_format(draft->pool, "%s", name);
        if (key == NULL || origin == NULL) {
            return dp_config_no_memory();
        }
        DP_TRY(dp_config_variable(environment, epochs, &epochs_value));
        if (strcmp(key, "train.steps") == 0 && epochs_value != NULL) {
            const struct dp_place place = {origin, 0, 0};
            return dp_config_refuse(&place, key, "%s is set too; give one of them", epochs);
        }
        DP_TRY(override(draft, key, value, origin));
    }
    return DP_OK;
}

/* Names close to one of ours are probably misspelled; others belong to other programs. */
static void warn_if_misspelled(const char *entry)
{
    static const char layers[] = "MODEL_LAYERS";
    const size_t length = strcspn(entry, "=");
    char name[VARIABLE_MAX], known[VARIABLE_MAX], nearest[VARIABLE_MAX] = "";
    int best = VARIABLE_MAX;
    size_t skip = 0;

    for (int i = 0; i < 2 && skip == 0; i++) {
        const size_t prefix = strlen(prefixes[i]);
        skip = strncmp(entry, prefixes[i], prefix) == 0 ? prefix : 0;
    }
    if (skip == 0 || length >= sizeof(name)) {
        return;
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)length, entry);
    if (strncmp(name + skip, layers, sizeof(layers) - 1) == 0) {
        DP_WARN("%s is ignored: the list of layers has no variable; use the file, or --set "
                "model.layers[0].dense.units=64",
                name);
        return;
    }
    for (int i = 0; section_at(i) != NULL; i++) {
        const struct dp_config_section *section = section_at(i);
        const struct dp_option *row;
        for (int k = 0; (row = dp_config_key_at(section, k, NULL)) != NULL; k++) {
            int distance;
            variable_name(section, row, known);
            distance = dp_edit_distance(name + skip, known + 3);
            if (distance == 0) {
                return;
            }
            if (distance < best && dp_looks_like(name + skip, known + 3)) {
                best = distance;
                (void)snprintf(nearest, sizeof(nearest), "%s", known);
            }
        }
    }
    if (nearest[0] != '\0') {
        DP_WARN("unknown variable %s is ignored (did you mean %s?)", name, nearest);
    }
}

/* ---- all of it ---- */

static dp_status override_by_set(struct dp_draft *draft, const char *set)
{
    const char *equals = strchr(set, '=');
    const char *origin = dp_pool_format(draft->pool, "--set %s", set);
    const char *key;

    if (origin == NULL) {
        return dp_config_no_memory();
    }
    if (equals == NULL || equals == set) {
        const struct dp_place place = {origin, 0, 0};
        return dp_config_refuse(&place, NULL, "expected KEY=VALUE");
    }
    key = dp_pool_copy(draft->pool, set, (size_t)(equals - set));
    return key != NULL ? override(draft, key, equals + 1, origin) : dp_config_no_memory();
}

dp_status dp_config_override(struct dp_draft *draft, char *const *environment,
                             const char *const *sets, int set_count)
{
    if (environment != NULL) {
        for (int i = 0; section_at(i) != NULL; i++) {
            DP_TRY(dp_config_count(draft, override_from(draft, section_at(i), environment)));
        }
        for (char *const *entry = environment; *entry != NULL; entry++) {
            warn_if_misspelled(*entry);
        }
    }
    for (int i = 0; i < set_count; i++) {
        DP_TRY(dp_config_count(draft, override_by_set(draft, sets[i])));
    }
    return DP_OK;
}
