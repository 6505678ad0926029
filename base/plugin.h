/*
 * plugin.h - one form for all families of plug-ins: strategies, layers, sources ...
 *
 * The first member of every vtable is a struct dp_plugin. A family is a table of such vtables made
 * from a .def file. Finding by name, listing and "did you mean" are written here once.
 */
#ifndef DP_BASE_PLUGIN_H
#define DP_BASE_PLUGIN_H

#include <stddef.h>

#include "base/option.h"
#include "base/status.h"

struct dp_plugin {
    const char *name;                /* as in model.cfg */
    const char *help;                /* one line for --list */
    const struct dp_option *options; /* offsets into the state; NULL: none */
    size_t state_bytes;              /* zeroed before open or plan */

    /* Why the options, each of them in its range, cannot be combined; NULL: they can. `key` is the
     * option to blame, or "" for none of them. May be NULL: any combination is valid. */
    const char *(*refuse)(const void *state, const char **key);
};

enum { DP_PLUGIN_ADDED_MAX = 32 };

struct dp_plugin_family {
    const char *noun;                    /* "strategy" */
    const struct dp_plugin *const *rows; /* from the .def file */
    int count;
    const struct dp_plugin *added[DP_PLUGIN_ADDED_MAX]; /* by dp_plugin_add */
    int added_count;
};

/*
 * One plug-in of a family, and the options of each. It is filled from a section of a configuration
 * that may contain options of all plug-ins, so that another one can be chosen without removing
 * them.
 */
struct dp_plugin_choice {
    const struct dp_plugin *plugin; /* the chosen one */
    const void *state;              /* its options */
    void *const *states;            /* the options of every plug-in, in the family's order */
};

/* Plug-in `i` of the family, or NULL after the last: loop until NULL. */
const struct dp_plugin *dp_plugin_at(const struct dp_plugin_family *family, int i);

/* The plug-in with that name, or NULL; `length` bounds the name (for "ring:segments=4"). */
const struct dp_plugin *dp_plugin_find(const struct dp_plugin_family *family, const char *name,
                                       size_t length);

/* The nearest name to `name`, or NULL if none is near enough. */
const char *dp_plugin_nearest(const struct dp_plugin_family *family, const char *name);

/* The names that are valid in some place: those of a family, and more. */
struct dp_plugin_names {
    const char *word; /* another valid word, such as "auto"; NULL: none */
    const struct dp_plugin_family *family, *more; /* the first one's noun is used in messages; NULL:
                                                   * no more */
};

/* Writes that `name` [length] is not valid: "unknown strategy 'rnig' (did you mean 'ring'?)", or
 * the list of valid names. */
void dp_plugin_say_unknown(const struct dp_plugin_names *names, const char *name, size_t length,
                           char *problem, size_t problem_size);

/* Writes the text of --list for a plug-in: its help, and its options with their defaults: "on half
 * the bytes; block=256". An option without a default has only its name. */
void dp_plugin_describe(const struct dp_plugin *plugin, char *text, size_t size);

/*
 * Parses "name" or "name:key=value,key=value": finds the plug-in and makes a zeroed state with its
 * options filled in. A value that has options itself must come last, and includes all that follows:
 * "zero1:over=hier:inner=shm,outer=ring".
 *
 *   state    out  owned by the caller, released with dp_free(); set only on success
 *   problem  out  on error: one line for people; nothing is logged
 *
 * Errors: DP_ERR_CONFIG (unknown name, unknown key, bad value), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_plugin_create(const struct dp_plugin_family *family, const char *text,
                                      const struct dp_plugin **plugin, void **state, char *problem,
                                      size_t problem_size);

/*
 * Writes the canonical spelling of `text`: the name and all options with their values, also
 * defaults. A text that cannot be parsed is copied.
 */
void dp_plugin_spell(const struct dp_plugin_family *family, const char *text, char *spelt,
                     size_t size);

/* Adds a plug-in of an embedding program. Call it before the family is used; the vtable must live
 * as long as the program. Errors: DP_ERR_ARG if the name is taken or the table is full. */
DP_CHECKED dp_status dp_plugin_add(struct dp_plugin_family *family, const struct dp_plugin *plugin);

#endif
