#include "kernels/algo_choices.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"

#define SCHEMA "lockstep.choices/1"

enum { FIRST_CAPACITY = 64 };

struct entry {
    char *name, *value; /* owned; value NULL: unknown */
    double ms;          /* 0: unknown */
    bool asked, fresh;
    bool tried; /* asked for, or noted, since a try began */
};

struct dp_algo_choices {
    char machine[DP_ALGO_CHOICE_MACHINE];
    struct entry *list; /* owned; sorted by name */
    size_t count, capacity;
    bool frozen, follows, trying;
};

dp_status dp_algo_choices_create(const char *machine, struct dp_algo_choices **out)
{
    struct dp_algo_choices *c = dp_zalloc(1, sizeof(*c));

    if (c != NULL) {
        (void)snprintf(c->machine, sizeof(c->machine), "%s", machine);
        c->list = dp_zalloc(FIRST_CAPACITY, sizeof(*c->list));
        c->capacity = FIRST_CAPACITY;
    }
    if (c == NULL || c->list == NULL) {
        dp_algo_choices_destroy(c);
        return DP_FAIL(DP_ERR_NOMEM, "choices of algorithms");
    }
    *out = c;
    return DP_OK;
}

void dp_algo_choices_destroy(struct dp_algo_choices *c)
{
    if (c == NULL) {
        return;
    }
    for (size_t i = 0; c->list != NULL && i < c->count; i++) {
        dp_free(c->list[i].name);
        dp_free(c->list[i].value);
    }
    dp_free(c->list);
    dp_free(c);
}

/* ---- the list ---- */

/* The first entry whose name is not smaller than this one. */
static size_t place_of(const struct dp_algo_choices *c, const char *name)
{
    size_t low = 0, high = c->count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strcmp(c->list[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct entry *find(const struct dp_algo_choices *c, const char *name)
{
    const size_t at = place_of(c, name);

    return at < c->count && strcmp(c->list[at].name, name) == 0 ? &c->list[at] : NULL;
}

static dp_status grow(struct dp_algo_choices *c)
{
    struct entry *longer;

    if (c->count < c->capacity) {
        return DP_OK;
    }
    longer = dp_zalloc(2 * c->capacity, sizeof(*longer));
    if (longer == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "%zu choices of algorithms", c->count + 1);
    }
    memcpy(longer, c->list, c->count * sizeof(*longer));
    dp_free(c->list);
    c->list = longer;
    c->capacity *= 2;
    return DP_OK;
}

/* Finds the entry of that name, or adds one without a value. */
static dp_status find_or_make(struct dp_algo_choices *c, const char *name, struct entry **out)
{
    const size_t at = place_of(c, name);
    char *copy;

    if (at == c->count || strcmp(c->list[at].name, name) != 0) {
        DP_TRY(grow(c));
        copy = dp_strdup(name);
        if (copy == NULL) {
            return DP_FAIL(DP_ERR_NOMEM, "a choice of an algorithm");
        }
        memmove(&c->list[at + 1], &c->list[at], (c->count - at) * sizeof(*c->list));
        c->list[at] = (struct entry){.name = copy};
        c->count++;
    }
    *out = &c->list[at];
    return DP_OK;
}

static dp_status set_value(struct entry *entry, const char *value, double ms)
{
    char *copy = dp_strdup(value);

    if (copy == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "a choice of an algorithm");
    }
    dp_free(entry->value);
    entry->value = copy;
    entry->ms = ms;
    return DP_OK;
}

/* ---- preparing ---- */

static void mark(const struct dp_algo_choices *c, struct entry *entry)
{
    entry->tried = entry->tried || c->trying;
    entry->asked = entry->asked || !c->trying;
}

static void name_of(const char *machine, const char *key, char name[DP_ALGO_CHOICE_NAME])
{
    (void)snprintf(name, DP_ALGO_CHOICE_NAME, "%s\n%s", machine, key);
}

dp_status dp_algo_choices_ask(struct dp_algo_choices *c, const char *key, const char **value)
{
    char name[DP_ALGO_CHOICE_NAME];
    struct entry *entry;

    *value = NULL;
    if (c == NULL) {
        return DP_OK;
    }
    name_of(c->machine, key, name);
    if (c->frozen) {
        entry = find(c, name);
    } else {
        DP_TRY(find_or_make(c, name, &entry));
        mark(c, entry);
    }
    *value = entry != NULL ? entry->value : NULL;
    return DP_OK;
}

bool dp_algo_choices_open(const struct dp_algo_choices *c)
{
    return c != NULL && !c->frozen;
}

bool dp_algo_choices_follows(const struct dp_algo_choices *choices)
{
    return choices->follows;
}

dp_status dp_algo_choices_note(struct dp_algo_choices *c, const char *key, const char *value,
                               double ms)
{
    char name[DP_ALGO_CHOICE_NAME];
    struct entry *entry;

    dp_trace_beat();
    name_of(c->machine, key, name);
    DP_TRY(find_or_make(c, name, &entry));
    mark(c, entry);
    entry->fresh = true;
    return set_value(entry, value, ms);
}

void dp_algo_choices_try(struct dp_algo_choices *c)
{
    if (c != NULL) {
        c->trying = true;
    }
}

void dp_algo_choices_tried(struct dp_algo_choices *c, bool taken)
{
    for (size_t i = 0; c != NULL && i < c->count; i++) {
        struct entry *entry = &c->list[i];
        if (entry->tried && !taken && entry->fresh && !entry->asked) {
            dp_free(entry->value);
            entry->value = NULL;
            entry->fresh = false;
        }
        entry->asked = entry->asked || (entry->tried && taken);
        entry->tried = false;
    }
    if (c != NULL) {
        c->trying = false;
    }
}

/* ---- running ---- */

void dp_algo_choices_follow(struct dp_algo_choices *choices)
{
    choices->follows = true;
}

void dp_algo_choices_freeze(struct dp_algo_choices *c)
{
    c->frozen = true;
}

static bool is_used(const struct entry *entry)
{
    return entry->asked && entry->value != NULL;
}

struct dp_algo_choices_count dp_algo_choices_count(const struct dp_algo_choices *c)
{
    struct dp_algo_choices_count count = {0, 0};

    for (size_t i = 0; i < c->count; i++) {
        count.used += is_used(&c->list[i]) ? 1 : 0;
        count.fresh += is_used(&c->list[i]) && c->list[i].fresh ? 1 : 0;
    }
    return count;
}

bool dp_algo_choices_next(const struct dp_algo_choices *c, size_t *at,
                          struct dp_algo_choice *choice)
{
    const struct entry *entry;

    while (*at < c->count && !is_used(&c->list[*at])) {
        (*at)++;
    }
    if (*at == c->count) {
        return false;
    }
    entry = &c->list[(*at)++];
    *choice = (struct dp_algo_choice){entry->name, entry->value, entry->ms};
    return true;
}

/* The entry that such a choice belongs into. */
static dp_status open_entry(struct dp_algo_choices *c, const struct dp_algo_choice *choice,
                            struct entry **entry)
{
    const char *name = choice->name;
    const size_t machine = strcspn(name, "\n");

    if (name[machine] == '\0' || machine >= DP_ALGO_CHOICE_MACHINE ||
        strlen(name + machine + 1) >= DP_ALGO_CHOICE_KEY ||
        strlen(choice->value) >= DP_ALGO_CHOICE_VALUE) {
        return DP_FAIL(DP_ERR_DATA, "no choice of an algorithm: %.80s", name);
    }
    return find_or_make(c, name, entry);
}

dp_status dp_algo_choices_add(struct dp_algo_choices *c, const struct dp_algo_choice *choice)
{
    struct entry *entry;

    DP_TRY(open_entry(c, choice, &entry));
    return entry->value == NULL ? set_value(entry, choice->value, choice->ms) : DP_OK;
}

bool dp_algo_choices_lacks(const struct dp_algo_choices *c, const struct dp_algo_choice *choice)
{
    const struct entry *entry = find(c, choice->name);

    return entry == NULL || entry->value == NULL ||
           (choice->ms > entry->ms && strcmp(choice->value, entry->value) != 0);
}

dp_status dp_algo_choices_replace(struct dp_algo_choices *c, const struct dp_algo_choice *choice)
{
    struct entry *entry;

    DP_TRY(open_entry(c, choice, &entry));
    return set_value(entry, choice->value, choice->ms);
}

dp_status dp_algo_choices_adopt(struct dp_algo_choices *c, const struct dp_algo_choices *agreed,
                                bool *changed)
{
    *changed = false;
    for (size_t i = 0; i < agreed->count; i++) {
        const struct entry *theirs = &agreed->list[i];
        struct entry *mine;
        DP_TRY(find_or_make(c, theirs->name, &mine));
        if (mine->value == NULL || strcmp(mine->value, theirs->value) != 0) {
            *changed = *changed || mine->asked;
            mine->fresh = true;
            DP_TRY(set_value(mine, theirs->value, theirs->ms));
        }
        mine->asked = true;
    }
    return DP_OK;
}

/* ---- as JSON ---- */

/* With its time, or the value alone. */
static dp_status put_choice(const struct entry *entry, bool timed, struct dp_json *keys)
{
    const char *key = strchr(entry->name, '\n') + 1;
    struct dp_json *choice;

    if (!timed || entry->ms <= 0.0) {
        return dp_json_set_text(keys, key, entry->value);
    }
    choice = dp_json_set_object(keys, key);
    DP_TRY(dp_json_set_text(choice, "how", entry->value));
    return dp_json_set_real(choice, "ms", entry->ms);
}

dp_status dp_algo_choices_put(const struct dp_algo_choices *c, bool all, struct dp_json *object)
{
    struct dp_json *machines, *keys = NULL;
    const char *before = "";

    DP_TRY(dp_json_set_text(object, "schema", SCHEMA));
    DP_TRY(dp_json_set_text(object, "build", DP_VERSION));
    machines = dp_json_set_object(object, "machines");
    if (machines == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "choices of algorithms");
    }
    for (size_t i = 0; i < c->count; i++) {
        const struct entry *entry = &c->list[i];
        const size_t length = strcspn(entry->name, "\n");
        char machine[DP_ALGO_CHOICE_MACHINE];
        if (entry->value == NULL || !(all || entry->asked)) {
            continue;
        }
        if (strncmp(before, entry->name, length + 1) != 0) {
            (void)snprintf(machine, sizeof(machine), "%.*s", (int)length, entry->name);
            keys = dp_json_set_object(machines, machine);
            before = entry->name;
        }
        DP_TRY(put_choice(entry, all, keys));
    }
    return DP_OK;
}

dp_status dp_algo_choices_text(const struct dp_algo_choices *c, bool all, char **text)
{
    struct dp_json *object = dp_json_create();
    dp_status status = object != NULL ? dp_algo_choices_put(c, all, object)
                                      : DP_FAIL(DP_ERR_NOMEM, "choices of algorithms");

    if (status == DP_OK) {
        status = dp_json_dump(object, 0, DP_JSON_READABLE, text);
    }
    dp_json_destroy(object);
    return status;
}

static dp_status take_machine(struct dp_algo_choices *c, const struct dp_json_member *machine,
                              const char *source)
{
    struct dp_json_member key = {0};
    char name[DP_ALGO_CHOICE_NAME];

    while (dp_json_next(machine->value, &key)) {
        const bool timed = dp_json_is_object(key.value);
        struct dp_algo_choice choice = {
            name, dp_json_text(timed ? dp_json_get(key.value, "how") : key.value), 0.0};
        if (choice.value == NULL || strlen(machine->key) >= DP_ALGO_CHOICE_MACHINE ||
            strlen(key.key) >= DP_ALGO_CHOICE_KEY) {
            return DP_FAIL(DP_ERR_DATA, "%s: no choice of an algorithm: %.80s", source, key.key);
        }
        name_of(machine->key, key.key, name);
        (void)dp_json_real(dp_json_get(key.value, "ms"), &choice.ms);
        DP_TRY(dp_algo_choices_add(c, &choice));
    }
    return DP_OK;
}

dp_status dp_algo_choices_take(struct dp_algo_choices *c, const struct dp_json *object,
                               const char *source)
{
    const char *schema = dp_json_text(dp_json_get(object, "schema"));
    const char *build = dp_json_text(dp_json_get(object, "build"));
    const struct dp_json *machines = dp_json_get(object, "machines");
    struct dp_json_member machine = {0};

    if (schema == NULL || build == NULL || !dp_json_is_object(machines)) {
        return DP_FAIL(DP_ERR_DATA, "%s: no choices of algorithms", source);
    }
    if (strcmp(schema, SCHEMA) != 0 || strcmp(build, DP_VERSION) != 0) {
        DP_DEBUG("%s: choices of %.40s, build %.40s, are ignored", source, schema, build);
        return DP_OK;
    }
    while (dp_json_next(machines, &machine)) {
        DP_TRY(take_machine(c, &machine, source));
    }
    return DP_OK;
}
