/*
 * plugin.h - one form for all families of plug-ins: strategies, layers, sources ...
 *
 * The first member of every vtable is a struct dp_plugin. A family is a table of such vtables made
 * from a .def file; finding by name, listing and "did you mean" are written here once.
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
};

enum { DP_PLUGIN_ADDED_MAX = 32 };

struct dp_plugin_family {
    const char *noun;                    /* "strategy" */
    const struct dp_plugin *const *rows; /* from the .def file */
    int count;
    const struct dp_plugin *added[DP_PLUGIN_ADDED_MAX]; /* by dp_plugin_add */
    int added_count;
};

/* Plug-in `i` of the family, or NULL behind the last: loop until NULL. */
const struct dp_plugin *dp_plugin_at(const struct dp_plugin_family *family, int i);

/* The plug-in with that name, or NULL; `length` bounds the name (for "ring:segments=4"). */
const struct dp_plugin *dp_plugin_find(const struct dp_plugin_family *family, const char *name,
                                       size_t length);

/* The name nearest to `name`, or NULL when none is near enough to be meant. */
const char *dp_plugin_nearest(const struct dp_plugin_family *family, const char *name);

/* What may stand where a plug-in is named: those of a family, and more. */
struct dp_plugin_names {
    const char *word; /* that names none of them, such as "auto"; NULL: no such */
    const struct dp_plugin_family *family, *more; /* the first says what they are; NULL: no more */
};

/* Says that `name` [length] is none of them: "unknown strategy 'rnig' (did you mean 'ring'?)", or
 * which are known. */
void dp_plugin_say_unknown(const struct dp_plugin_names *names, const char *name, size_t length,
                           char *problem, size_t problem_size);

/*
 * Takes "name" or "name:key=value,key=value" apart: finds the plug-in and gives a zeroed state
 * with its options filled in. A value that has options itself must stand last, and takes all that
 * is left: "zero1:over=hier:inner=shm,outer=ring".
 *
 *   state    out  owned by the caller, released with dp_free(); set only on success
 *   problem  out  one line for people when the result is not DP_OK; nothing is logged
 *
 * Errors: DP_ERR_CONFIG (unknown name, unknown key, bad value), DP_ERR_NOMEM.
 */
DP_CHECKED dp_status dp_plugin_create(const struct dp_plugin_family *family, const char *text,
                                      const struct dp_plugin **plugin, void **state, char *problem,
                                      size_t problem_size);

/*
 * The same for every text that means the same: the name, and all options with their values, those
 * that `text` leaves out, too. What cannot be taken apart stays as it is.
 */
void dp_plugin_spell(const struct dp_plugin_family *family, const char *text, char *spelt,
                     size_t size);

/* Adds a plug-in of an embedding program. Call before the family is used; the vtable must live as
 * long as the program. Errors: DP_ERR_ARG if the name is taken or the table is full. */
DP_CHECKED dp_status dp_plugin_add(struct dp_plugin_family *family, const struct dp_plugin *plugin);

#endif
