/*
 * config_choice.c - finds the plug-in that a section names, and fills in the options of all
 * plug-ins of its family.
 */
#include <string.h>

#include "runtime/config/config_own.h"

/* Allocates the options of every plug-in, with their defaults; NULL when out of memory. */
static void **make_states(struct dp_draft *draft, const struct dp_plugin_family *family)
{
    const size_t count = (size_t)family->count + (size_t)family->added_count;
    void **made = dp_pool_take(draft->pool, count * sizeof(*made));
    const struct dp_plugin *plugin;

    for (int i = 0; made != NULL && (plugin = dp_plugin_at(family, i)) != NULL; i++) {
        made[i] = dp_pool_take(draft->pool, plugin->state_bytes + 1);
        if (made[i] == NULL) {
            return NULL;
        }
        dp_option_defaults(plugin->options, made[i]);
    }
    return made;
}

/* The name of the plug-in that the section chooses. */
static const char *name_in(const struct dp_draft *draft, const struct dp_config_section *section)
{
    const struct dp_option *row = dp_option_find(section->options, "name");

    return *(const char *const *)(const void *)((const char *)draft->config + section->offset +
                                                row->offset);
}

static dp_status find(struct dp_draft *draft, const struct dp_config_section *section,
                      struct dp_plugin_choice *choice)
{
    const struct dp_plugin_family *family = section->family;
    const char *name = name_in(draft, section);
    char problem[512];

    for (int i = 0; (choice->plugin = dp_plugin_at(family, i)) != NULL; i++) {
        if (strcmp(choice->plugin->name, name) == 0) {
            choice->state = choice->states[i];
            return DP_OK;
        }
    }
    dp_plugin_say_unknown(&(struct dp_plugin_names){.family = family}, name, strlen(name), problem,
                          sizeof(problem));
    return dp_config_refuse_key(draft, section->path, "name", problem);
}

/* A key applies to every plug-in that has it: they all have the same kind and range. */
static dp_status fill_key(struct dp_draft *draft, const struct dp_config_section *section,
                          void *const *states, const struct dp_yaml_node *entry)
{
    const char *path = dp_config_join(draft->pool, section->path, entry->key);
    const struct dp_plugin *plugin;

    if (path == NULL) {
        return dp_config_no_memory();
    }
    for (int i = 0; (plugin = dp_plugin_at(section->family, i)) != NULL; i++) {
        const struct dp_option *row = dp_option_find(plugin->options, entry->key);
        if (row != NULL) {
            DP_TRY(dp_config_apply(row, states[i], entry, path));
        }
    }
    return DP_OK;
}

static dp_status fill(struct dp_draft *draft, const struct dp_config_section *section,
                      void *const *states)
{
    const struct dp_yaml_node *node = dp_yaml_find(draft->root, section->path);
    const bool given = node != NULL && node->kind == DP_YAML_MAP;

    for (const struct dp_yaml_node *entry = given ? node->first : NULL; entry != NULL;
         entry = entry->next) {
        DP_TRY(dp_config_count(draft, fill_key(draft, section, states, entry)));
    }
    return DP_OK;
}

dp_status dp_config_choose(struct dp_draft *draft, const struct dp_config_section *section)
{
    struct dp_plugin_choice *choice;
    void **states;
    const char *key = "", *reason;
    const int before = draft->mistakes;

    if (section->family == NULL) {
        return DP_OK;
    }
    choice = (struct dp_plugin_choice *)(void *)((char *)draft->config + section->choice);
    states = make_states(draft, section->family);
    if (states == NULL) {
        return dp_config_no_memory();
    }
    choice->states = states;
    DP_TRY(find(draft, section, choice));
    DP_TRY(fill(draft, section, states));
    reason = draft->mistakes == before && choice->plugin->refuse != NULL
                 ? choice->plugin->refuse(choice->state, &key)
                 : NULL;
    return reason == NULL ? DP_OK : dp_config_refuse_key(draft, section->path, key, reason);
}
