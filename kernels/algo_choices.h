/*
 * algo_choices.h - which of several algorithms computes what, found by measuring, and kept.
 *
 * A device whose library has several algorithms for an operation of some shape may measure them
 * when that is prepared. What it then takes is a choice: a key that says what is computed, and a
 * value that says how, texts of the device's own. Algorithms differ in bits, and time is never the
 * same twice; so whoever runs several ranks, or runs again, makes all of them take the same
 * choices: runtime/run/algo_tuning.h.
 *
 * Choices hold on machines of one kind (struct dp_device.machine). A table may have those of
 * several, each of which sees its own alone. As JSON it is one object:
 *
 *   {"schema": "lockstep.choices/1", "build": "0.1.0",
 *    "machines": {"NVIDIA H200 ...": {"product 128x1024x784 ...": "0c00...", ...}, ...}}
 *
 * Of another schema or build it counts as empty.
 *
 * One thread prepares at a time. A table that is settled does not change any more, and several
 * threads may ask it.
 */
#ifndef DP_KERNELS_ALGO_CHOICES_H
#define DP_KERNELS_ALGO_CHOICES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/status.h"

/* Bytes of texts, NULs included. A name is the machine, a line end, and the key. */
enum {
    DP_ALGO_CHOICE_MACHINE = 256,
    DP_ALGO_CHOICE_KEY = 192,
    DP_ALGO_CHOICE_NAME = 448,
    DP_ALGO_CHOICE_VALUE = 512
};

struct dp_algo_choices;

/* An empty table for a process on such a machine. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_create(const char *machine, struct dp_algo_choices **out);
void dp_algo_choices_destroy(struct dp_algo_choices *choices); /* NULL is allowed */

/* ---- for devices, while they prepare; there may be no table (NULL) ---- */

/* What is known for a key, NULL: nothing. It is borrowed until the key is noted. That it was asked
 * for is remembered until the table is settled. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_ask(struct dp_algo_choices *algo_choices, const char *key,
                                         const char **value);

/* Whether what is not known, or cannot be used, may be measured; then it is to be noted. */
bool dp_algo_choices_open(const struct dp_algo_choices *algo_choices);

/* What was measured, instead of what was known. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_note(struct dp_algo_choices *algo_choices, const char *key,
                                          const char *value);

/* ---- for whoever runs ---- */

/* From now on nothing is measured. */
void dp_algo_choices_settle(struct dp_algo_choices *choices);

/* How many were asked for and are known; of these, how many were not there when the table was
 * filled (dp_algo_choices_add, _take). */
struct dp_algo_choices_count {
    int used, fresh;
};

struct dp_algo_choices_count dp_algo_choices_count(const struct dp_algo_choices *choices);

/* The choices that were asked for, one after another, in an order that is the same for equal
 * tables: begin with *at = 0. Texts are borrowed. */
bool dp_algo_choices_next(const struct dp_algo_choices *algo_choices, size_t *at, const char **name,
                          const char **value);

/* Unless there is one of that name. Errors: DP_ERR_DATA (no name and value of a choice),
 * DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_add(struct dp_algo_choices *algo_choices, const char *name,
                                         const char *value);
bool dp_algo_choices_has(const struct dp_algo_choices *algo_choices, const char *name);

/* Takes over what ranks have agreed on, as if it had been asked for. *changed: something that was
 * asked for is another one now. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_adopt(struct dp_algo_choices *algo_choices,
                                           const struct dp_algo_choices *agreed, bool *changed);

/* Writes them into an empty object: all, or those that were asked for. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_put(const struct dp_algo_choices *algo_choices, bool all,
                                         struct dp_json *object);

/* The same as text in one line, owned by the caller (dp_free). Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_text(const struct dp_algo_choices *algo_choices, bool all,
                                          char **text);

/* Adds what an object has. `source` stands in front of messages. Errors: DP_ERR_DATA, DP_ERR_NOMEM;
 * what came before the fault has been added. */
DP_CHECKED dp_status dp_algo_choices_take(struct dp_algo_choices *algo_choices,
                                          const struct dp_json *object, const char *source);

#endif
