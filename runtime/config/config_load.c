#include "runtime/config/config_load.h"

#include <stdio.h>
#include <string.h>

#include "base/files/input.h"
#include "base/mem.h"
#include "base/text.h"
#include "runtime/config/config_own.h"
#include "runtime/config/config_print.h"
#include "runtime/config/config_rules.h"
#include "runtime/config/config_synonyms.h"

enum { NAME_MAX_BYTES = 128 };

dp_status dp_config_count(struct dp_draft *draft, dp_status status)
{
    if (status != DP_ERR_CONFIG) {
        return status;
    }
    draft->mistakes++;
    return draft->mistakes < DP_CONFIG_MISTAKES ? DP_OK : status;
}

/* ---- one value ---- */

/* Numbers and switches are unquoted: "5" in quotes is a text. */
static bool needs_plain(const struct dp_option *row)
{
    return row->kind != DP_OPTION_STRING && row->kind != DP_OPTION_CHOICE &&
           row->kind != DP_OPTION_WORDS;
}

static dp_status refuse_kind(const struct dp_option *row, const struct dp_yaml_node *node,
                             const char *key)
{
    char expected[256], found[128];

    dp_option_describe(row, expected, sizeof(expected));
    return dp_config_refuse(&node->at, key, "expected %s, found %s", expected,
                            dp_yaml_found(node, found, sizeof(found)));
}

/* Applies each value of a list by itself first, so that an error names its place. */
static dp_status apply_list(const struct dp_option *row, void *base,
                            const struct dp_yaml_node *node, const char *key)
{
    const char *texts[DP_NUMBERS_MAX];
    char problem[512];
    int count = 0;

    for (const struct dp_yaml_node *item = node->first; item != NULL; item = item->next) {
        if (count == DP_NUMBERS_MAX) {
            return dp_config_refuse(&item->at, key, "more than %d values", DP_NUMBERS_MAX);
        }
        if (item->kind != DP_YAML_SCALAR || (needs_plain(row) && !item->plain)) {
            return refuse_kind(row, item, key);
        }
        if (dp_option_apply(row, base, &item->text, 1, problem, sizeof(problem)) != DP_OK) {
            return dp_config_refuse(&item->at, key, "%s", problem);
        }
        texts[count++] = item->text;
    }
    if (dp_option_apply(row, base, texts, count, problem, sizeof(problem)) != DP_OK) {
        return dp_config_refuse(&node->at, key, "%s", problem);
    }
    return DP_OK;
}

dp_status dp_config_apply(const struct dp_option *row, void *base, const struct dp_yaml_node *node,
                          const char *key)
{
    char problem[512];

    if (node->kind == DP_YAML_LIST && dp_option_is_list(row)) {
        return apply_list(row, base, node, key);
    }
    if (node->kind != DP_YAML_SCALAR || (needs_plain(row) && !node->plain) ||
        (!needs_plain(row) && dp_yaml_is_null(node))) {
        return refuse_kind(row, node, key);
    }
    if (dp_option_apply(row, base, &node->text, 1, problem, sizeof(problem)) != DP_OK) {
        return dp_config_refuse(&node->at, key, "%s", problem);
    }
    return DP_OK;
}

/* ---- sections ---- */

char *dp_config_join(struct dp_pool *pool, const char *path, const char *key)
{
    return path[0] == '\0' ? dp_pool_format(pool, "%s", key)
                           : dp_pool_format(pool, "%s.%s", path, key);
}

static const char *path_or_null(const char *path)
{
    return path[0] == '\0' ? NULL : path;
}

dp_status dp_config_once(const struct dp_yaml_node *map, const struct dp_yaml_node *entry,
                         const char *path)
{
    const struct dp_yaml_node *first = map->first;

    while (first != entry && strcmp(first->key, entry->key) != 0) {
        first = first->next;
    }
    if (first == entry) {
        return DP_OK;
    }
    if (first->key_at.line > 0) {
        return dp_config_refuse(&entry->key_at, path_or_null(path),
                                "repeated key '%s' (first in line %d)", entry->key,
                                first->key_at.line);
    }
    return dp_config_refuse(&entry->key_at, path_or_null(path), "repeated key '%s'", entry->key);
}

dp_status dp_config_unknown(const struct dp_yaml_node *entry, const char *path, const char *nearest)
{
    if (nearest != NULL) {
        return dp_config_refuse(&entry->key_at, path_or_null(path),
                                "unknown key '%.100s' (did you mean '%s'?)", entry->key, nearest);
    }
    return dp_config_refuse(&entry->key_at, path_or_null(path), "unknown key '%.100s'", entry->key);
}

/* The key that an unknown one in the section at `path` may be a misspelling of: an option, or a
 * section. */
static const char *nearest_key(const struct dp_config_section *section, const char *key)
{
    const char *nearest = dp_config_synonym(section->path, key);
    const char *name;

    if (nearest != NULL) {
        return nearest;
    }
    nearest = dp_config_key_nearest(section, key);
    for (int i = 0; dp_config_section_at(i) != NULL; i++) {
        name = dp_config_section_inside(i, section->path);
        if (name != NULL && dp_looks_like(key, name) &&
            (nearest == NULL || dp_edit_distance(key, name) < dp_edit_distance(key, nearest))) {
            nearest = name;
        }
    }
    if (nearest == NULL && section->path[0] == '\0' && dp_looks_like(key, "model")) {
        return "model";
    }
    return nearest;
}

/* Whether a value says that there is none of an option whose default is none. A name there is
 * always. */
static bool is_no_text(const struct dp_option *row, const struct dp_yaml_node *node,
                       const char *path)
{
    return row->kind == DP_OPTION_STRING && row->initial != NULL && row->initial[0] == '\0' &&
           node->kind == DP_YAML_SCALAR && (node->text[0] == '\0' || dp_yaml_is_null(node)) &&
           strcmp(path, "name") != 0;
}

static dp_status fill_key(struct dp_draft *draft, const struct dp_option *row, void *base,
                          struct dp_yaml_node *entry, const char *path)
{
    if (is_no_text(row, entry, path)) {
        return DP_OK; /* which is the default */
    }
    if ((row->flags & DP_KEY_PLUGINS) != 0) {
        const bool empty = entry->kind == DP_YAML_LIST && entry->first == NULL;

        DP_TRY(dp_config_read_plugins(draft->pool, entry, path));
        if (empty) {
            return DP_OK; /* which is the default */
        }
    }
    if ((row->flags & DP_KEY_FOLDERS) != 0) {
        DP_TRY(dp_config_read_folders(draft->pool, entry, path));
    }
    return dp_config_apply(row, base, entry, path);
}

/* Samples are normalised by numbers, or not at all. */
static bool is_no_normalize(const struct dp_yaml_node *entry, const char *path)
{
    return entry->kind == DP_YAML_SCALAR && entry->plain && strcmp(entry->text, "none") == 0 &&
           strcmp(path, "data.normalize") == 0;
}

static dp_status fill_section(struct dp_draft *draft, const struct dp_config_section *section,
                              struct dp_yaml_node *node);

/* An entry of a section: a key, or a section inside it. */
static dp_status fill_entry(struct dp_draft *draft, const struct dp_config_section *section,
                            const struct dp_yaml_node *node, struct dp_yaml_node *entry)
{
    const struct dp_option *row = dp_option_find(section->options, entry->key);
    const char *path = dp_config_join(draft->pool, section->path, entry->key);
    const struct dp_config_section *inside;
    char found[128];

    if (path == NULL) {
        return dp_config_no_memory();
    }
    DP_TRY(dp_config_once(node, entry, section->path));
    if (row != NULL) {
        return fill_key(draft, row, (char *)draft->config + section->offset, entry, path);
    }
    if (dp_config_key_find(section, entry->key, NULL) != NULL) {
        return DP_OK;
    }
    inside = entry->key[0] != '\0' && strchr(entry->key, '.') == NULL ? dp_config_section_find(path)
                                                                      : NULL;
    if (is_no_normalize(entry, path)) {
        return DP_OK; /* which is the default */
    }
    if (inside == NULL) {
        return strcmp(path, "model") == 0
                   ? DP_OK
                   : dp_config_unknown(entry, section->path, nearest_key(section, entry->key));
    }
    dp_yaml_as_map(entry);
    return entry->kind == DP_YAML_MAP
               ? fill_section(draft, inside, entry)
               : dp_config_refuse(&entry->at, path, "expected a section, found %s",
                                  dp_yaml_found(entry, found, sizeof(found)));
}

/* Fills a section, and the sections inside it, from its node; `model` and the options of plug-ins
 * are filled in later. */
static dp_status fill_section(struct dp_draft *draft, const struct dp_config_section *section,
                              struct dp_yaml_node *node)
{
    for (struct dp_yaml_node *entry = node->first; entry != NULL; entry = entry->next) {
        DP_TRY(dp_config_count(draft, fill_entry(draft, section, node, entry)));
    }
    return DP_OK;
}

/* ---- the whole ---- */

static dp_status check_length(struct dp_yaml_node *root)
{
    const struct dp_yaml_node *epochs = dp_yaml_find(root, "train.epochs");
    const struct dp_yaml_node *steps = dp_yaml_find(root, "train.steps");
    const struct dp_yaml_node *last = steps;

    if (epochs == NULL || steps == NULL) {
        return DP_OK;
    }
    for (const struct dp_yaml_node *node = steps; node != NULL; node = node->next) {
        last = node == epochs ? epochs : last;
    }
    return dp_config_refuse(&last->key_at, "train", "epochs and steps cannot both be given");
}

/* Checks the name of a run, which is also the name of its folder. */
static dp_status check_name(const struct dp_draft *draft)
{
    const char *name = draft->config->name;
    const struct dp_yaml_node *node = dp_yaml_find(draft->root, "name");

    if (strchr(name, '/') == NULL && name[0] != '.' && strlen(name) <= NAME_MAX_BYTES) {
        return DP_OK;
    }
    return dp_config_refuse(node != NULL ? &node->at : NULL, "name",
                            "expected the name of a file, of at most %d bytes, without '/' and "
                            "without '.' in front, found '%.60s'",
                            NAME_MAX_BYTES, name);
}

dp_status dp_config_refuse_key(const struct dp_draft *draft, const char *path, const char *key,
                               const char *reason)
{
    const char *whole = key[0] != '\0' ? dp_config_join(draft->pool, path, key) : path;
    const struct dp_yaml_node *node;

    if (whole == NULL) {
        return dp_config_no_memory();
    }
    node = dp_yaml_find(draft->root, whole);
    return dp_config_refuse(node != NULL ? &node->at : NULL, whole, "%s", reason);
}

static dp_status check_refusals(const struct dp_draft *draft)
{
    const struct dp_config_rule *refusal = dp_config_rule_of_config(draft->config);

    return refusal == NULL ? DP_OK : dp_config_refuse_key(draft, "", refusal->key, refusal->reason);
}

/* The stem of a path, with characters replaced that no file name should have; "run" if nothing is
 * left. */
static const char *stem(struct dp_pool *pool, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const size_t length = dot != NULL ? (size_t)(dot - name) : strlen(name);
    char *copy = dp_pool_copy(pool, name, length < NAME_MAX_BYTES ? length : NAME_MAX_BYTES);

    if (copy == NULL || copy[0] == '\0') {
        return copy == NULL ? NULL : "run";
    }
    for (size_t at = 0, bytes; copy[at] != '\0'; at += bytes) {
        char piece[DP_TEXT_PIECE];

        bytes = dp_text_piece(copy + at, piece);
        if (strncmp(copy + at, piece, bytes) != 0 || (at == 0 && copy[0] == '.')) {
            memset(copy + at, '_', bytes);
        }
    }
    return copy;
}

/* Reads all sections, and the model; mistakes are counted. */
static dp_status fill_all(struct dp_draft *draft)
{
    struct dp_yaml_node *model = dp_yaml_find(draft->root, "model");

    DP_TRY(fill_section(draft, dp_config_section_at(0), draft->root));
    for (int i = 0; dp_config_section_at(i) != NULL; i++) {
        DP_TRY(dp_config_count(draft, dp_config_choose(draft, dp_config_section_at(i))));
    }
    if (draft->mistakes == 0) { /* else it has been said, or the key may be there, misspelled */
        DP_TRY(dp_config_count(draft, check_length(draft->root)));
        if (model == NULL) {
            return dp_config_refuse(&draft->root->at, NULL, "missing key 'model'");
        }
    }
    DP_TRY(dp_config_count(draft, check_name(draft)));
    return model != NULL ? dp_config_count(draft, dp_config_build_model(draft, model)) : DP_OK;
}

/* Builds draft->config from draft->root, and checks it. */
static dp_status build(struct dp_draft *draft, const char *path)
{
    struct dp_config *config = dp_pool_take(draft->pool, sizeof(*config));
    char found[128];

    if (config == NULL || (config->name = stem(draft->pool, path)) == NULL) {
        return dp_config_no_memory();
    }
    draft->config = config;
    draft->layer_count = 0;
    for (int i = 1; dp_config_section_at(i) != NULL; i++) {
        const struct dp_config_section *section = dp_config_section_at(i);
        dp_option_defaults(section->options, (char *)config + section->offset);
    }
    dp_yaml_as_map(draft->root);
    if (draft->root->kind != DP_YAML_MAP) {
        return dp_config_refuse(&draft->root->at, NULL, "expected keys and values, found %s",
                                dp_yaml_found(draft->root, found, sizeof(found)));
    }
    DP_TRY(fill_all(draft));
    if (draft->mistakes > 0) {
        return DP_ERR_CONFIG;
    }
    if (dp_yaml_find(draft->root, "train.steps") != NULL) {
        config->train.epochs = 0;
    }
    config->optimizer.global_batch = config->train.global_batch;
    if (strcmp(config->device.name, "gpu") == 0) {
        config->device.name = "cuda";
    }
    return check_refusals(draft);
}

static dp_status resolve(struct dp_draft *draft, const char *content, size_t length,
                         const char *path, char *const *environment, const char *const *sets,
                         int set_count, char **text)
{
    DP_TRY(dp_yaml_parse(draft->pool, content, length, path, true, NULL, &draft->root));
    DP_TRY(dp_config_count(draft, check_length(draft->root)));
    dp_yaml_as_map(draft->root);
    if (draft->root->kind == DP_YAML_MAP) { /* else build() refuses it, whatever is set */
        DP_TRY(dp_config_override(draft, environment, sets, set_count));
    }
    DP_TRY(build(draft, path));
    return dp_config_print(draft, text);
}

dp_status dp_config_resolve_text(const char *content, size_t length, const char *path,
                                 char *const *environment, const char *const *sets, int set_count,
                                 char **text)
{
    struct dp_draft draft = {.pool = NULL};
    dp_status status;

    if (length > DP_YAML_BYTES) {
        const struct dp_place place = {path, 0, 0};
        return dp_config_refuse(&place, NULL, "larger than 1 MiB: not a configuration");
    }
    draft.pool = dp_pool_create();
    if (draft.pool == NULL) {
        return dp_config_no_memory();
    }
    status = resolve(&draft, content, length, path, environment, sets, set_count, text);
    dp_pool_destroy(draft.pool);
    return status;
}

dp_status dp_config_resolve(const char *path, char *const *environment, const char *const *sets,
                            int set_count, char **text)
{
    const size_t size = DP_YAML_BYTES + 1; /* one byte above the limit is refused later */
    char *content = dp_zalloc(1, size);
    size_t length = 0;
    dp_status status;

    if (content == NULL) {
        return dp_config_no_memory();
    }
    DP_TRY_GOTO(dp_input_read(path, content, size, &length), status, done);
    status = dp_config_resolve_text(content, length, path, environment, sets, set_count, text);
done:
    dp_free(content);
    return status;
}

dp_status dp_config_parse(const char *text, const char *source, struct dp_config **out)
{
    struct dp_draft draft = {.pool = dp_pool_create()};
    dp_status status;

    if (draft.pool == NULL) {
        return dp_config_no_memory();
    }
    source = dp_pool_format(draft.pool, "%s", source);
    if (source == NULL) {
        status = dp_config_no_memory();
        goto failed;
    }
    DP_TRY_GOTO(dp_yaml_parse(draft.pool, text, dp_config_text_length(text), source, true, NULL,
                              &draft.root),
                status, failed);
    DP_TRY_GOTO(dp_config_read_tail(draft.pool, text, draft.root), status, failed);
    DP_TRY_GOTO(build(&draft, source), status, failed);
    draft.config->root = draft.root;
    draft.config->texts = draft.pool;
    *out = draft.config;
    return DP_OK;

failed:
    dp_pool_destroy(draft.pool);
    return status;
}

void dp_config_destroy(struct dp_config *config)
{
    if (config != NULL) {
        dp_pool_destroy(config->texts); /* the configuration is in this memory */
    }
}

const char *dp_config_where(const struct dp_config *config, const char *key, char *text,
                            size_t size)
{
    const struct dp_yaml_node *node = dp_yaml_find(config->root, key);
    size_t used;

    text[0] = '\0';
    if (node != NULL && node->at.origin != NULL) {
        (void)dp_place_text(&node->at, text, size);
        used = strlen(text);
        (void)snprintf(text + used, size - used, ": ");
    }
    used = strlen(text);
    (void)snprintf(text + used, size - used, "%s", key);
    return text;
}
