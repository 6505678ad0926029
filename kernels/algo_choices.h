/*
 * algo_choices.h - which of several algorithms computes an operation, chosen by measuring, and
 * kept.
 *
 * If a device's library has several algorithms for an operation of some shape, the device may
 * measure them when the operation is prepared. The result is a choice: a key that says what is
 * computed, and a value that says how; both are texts of the device. The measured time is kept for
 * people to read. Algorithms differ in bits, and measured times vary. So all ranks, and later runs,
 * must use the same choices: runtime/run/plan/algo_tuning.h.
 *
 * Choices are valid on machines of one kind (struct dp_device.machine). A table may hold those of
 * several kinds; a process sees only its own. As JSON it is one object:
 *
 *   {"schema": "lockstep.choices/1", "build": "0.1.0",
 *    "machines": {"NVIDIA H200 ...": {"product 128x1024x784 ...": {"how": "0c00...", "ms": 0.012},
 *                                     "product 128x784x1024 ...": "0c01...", ...}, ...}}
 *
 * Only a table of all choices has times: plans and checkpoints with the same algorithms are equal.
 * With another schema or build it counts as empty.
 *
 * One thread prepares at a time. A frozen table no longer changes, and several threads may read
 * it.
 */
#ifndef DP_KERNELS_ALGO_CHOICES_H
#define DP_KERNELS_ALGO_CHOICES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/status.h"

/* Sizes of texts in bytes, with the NUL. A name is the machine, a line feed, and the key. */
enum {
    DP_ALGO_CHOICE_MACHINE = 256,
    DP_ALGO_CHOICE_KEY = 192,
    DP_ALGO_CHOICE_NAME = 448,
    DP_ALGO_CHOICE_VALUE = 512
};

struct dp_algo_choices;

/* Makes an empty table for a process on such a machine. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_create(const char *machine, struct dp_algo_choices **out);
void dp_algo_choices_destroy(struct dp_algo_choices *choices); /* NULL is allowed */

/* ---- for devices, while they prepare; the table may be NULL ---- */

/* Sets *value to the value of a key; NULL: unknown. It is borrowed until the key is noted. The
 * table marks the key as used until it is frozen. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_ask(struct dp_algo_choices *algo_choices, const char *key,
                                         const char **value);

/* Whether the device may measure what is unknown or unusable; it must then note the result. */
bool dp_algo_choices_open(const struct dp_algo_choices *algo_choices);

/* Whether another rank measures for this one, on the same processors: the device then notes what it
 * takes without measuring, with a time of 0. */
bool dp_algo_choices_follows(const struct dp_algo_choices *choices);

/* Sets the measured value of a key, and its time. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_note(struct dp_algo_choices *algo_choices, const char *key,
                                          const char *value, double ms);

/* Around preparing what may not be used: where it is not taken, keys that were asked for in between
 * do not become used, and what was measured in between is forgotten. The table may be NULL. */
void dp_algo_choices_try(struct dp_algo_choices *choices);
void dp_algo_choices_tried(struct dp_algo_choices *choices, bool taken);

/* ---- for the run ---- */

/* Leaves measuring to another rank. */
void dp_algo_choices_follow(struct dp_algo_choices *choices);

/* Ends measuring. */
void dp_algo_choices_freeze(struct dp_algo_choices *choices);

/* How many choices were used and are known; and how many of these were not there when the table was
 * filled (dp_algo_choices_add, _take). */
struct dp_algo_choices_count {
    int used, fresh;
};

struct dp_algo_choices_count dp_algo_choices_count(const struct dp_algo_choices *choices);

struct dp_algo_choice {
    const char *name, *value;
    double ms; /* 0: unknown */
};

/* Iterates over the used choices, in an order that is the same for equal tables: start with *at =
 * 0. Texts are borrowed. */
bool dp_algo_choices_next(const struct dp_algo_choices *algo_choices, size_t *at,
                          struct dp_algo_choice *choice);

/* Adds a choice unless there is one of that name. Errors: DP_ERR_DATA (not a name and value of a
 * choice), DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_add(struct dp_algo_choices *algo_choices,
                                         const struct dp_algo_choice *choice);

/* Whether a table that is to be agreed on lacks a choice of its name, or has another one that was
 * faster: ranks that wait for each other are as fast as the slowest. */
bool dp_algo_choices_lacks(const struct dp_algo_choices *agreed,
                           const struct dp_algo_choice *choice);

/* Takes a choice in place of any of its name. Errors: as dp_algo_choices_add(). */
DP_CHECKED dp_status dp_algo_choices_replace(struct dp_algo_choices *agreed,
                                             const struct dp_algo_choice *choice);

/* Takes over what ranks have agreed on, as if it had been used. *changed: a used choice has
 * changed. Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_adopt(struct dp_algo_choices *algo_choices,
                                           const struct dp_algo_choices *agreed, bool *changed);

/* Writes all choices with their times, or the used ones without, into an empty object.
 * Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_put(const struct dp_algo_choices *algo_choices, bool all,
                                         struct dp_json *object);

/* The same as text in one line, which the caller owns (dp_free). Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_algo_choices_text(const struct dp_algo_choices *algo_choices, bool all,
                                          char **text);

/* Adds the choices of an object. `source` begins error messages. Errors: DP_ERR_DATA, DP_ERR_NOMEM;
 * choices before the faulty one have been added. */
DP_CHECKED dp_status dp_algo_choices_take(struct dp_algo_choices *algo_choices,
                                          const struct dp_json *object, const char *source);

#endif
