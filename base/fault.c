#include "base/fault.h"

#include <string.h>

#include "base/mem.h"

#define FAULT struct dp_fault

enum { INT_HIGH = 2147483647, BIT_HIGH = 31, MS_HIGH = 86400000, MB_HIGH = 1048576 };

/* clang-format off */
static const struct dp_option flip_options[] = {
    DP_INT(   FAULT, step,    "1",  1, INT_HIGH, "after this step"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "on this rank"),
    DP_CHOICE(FAULT, what,    "weight", "weight|optimizer|message|gradient|data",
              "what is changed"),
    DP_STRING(FAULT, tensor,  "",   "its name in model.safetensors; empty: the first weight"),
    DP_INT(   FAULT, bucket,  "0",  0, INT_HIGH, "of a gradient: in that step, after it is summed"),
    DP_INT(   FAULT, element, "0",  0, INT_HIGH, "as in model.safetensors; of data: byte"),
    DP_INT(   FAULT, bit,     "22", 0, BIT_HIGH, "of the float32, or byte; 0 is the lowest"),
    {0},
};

static const struct dp_option end_options[] = {
    DP_INT(   FAULT, step,    "1",  1, INT_HIGH, "after this step"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "this rank"),
    DP_INT(   FAULT, bucket,  "-1", -1, INT_HIGH, "in that step, before it waits for this bucket"),
    {0},
};

static const struct dp_option stop_options[] = {
    DP_INT(   FAULT, step,    "1",  1, INT_HIGH, "after this step"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "this rank"),
    DP_INT(   FAULT, bucket,  "-1", -1, INT_HIGH, "in that step, before it waits for this bucket"),
    DP_INT(   FAULT, beat,    "0",  0, INT_HIGH, "at this part of what ranks measure together"),
    DP_INT(   FAULT, write,   "0",  0, INT_HIGH, "before this call that changes a file, from 1"),
    {0},
};

static const struct dp_option kill_options[] = {
    DP_INT(   FAULT, step,    "1",  1, INT_HIGH, "after this step"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "this rank"),
    DP_INT(   FAULT, bucket,  "-1", -1, INT_HIGH, "in that step, before it waits for this bucket"),
    DP_INT(   FAULT, write,   "0",  0, INT_HIGH, "before this call that changes a file, from 1"),
    {0},
};

static const struct dp_option write_options[] = {
    DP_INT(   FAULT, write,   "1",  1, INT_HIGH, "at this call that changes a file, from 1"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "of this rank"),
    {0},
};

static const struct dp_option alloc_options[] = {
    DP_INT(   FAULT, alloc,   "1",  1, INT_HIGH, "this one, from 1"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "of this rank"),
    {0},
};

static const struct dp_option slow_options[] = {
    DP_INT(   FAULT, step,    "0",  0, INT_HIGH, "after this step; 0: after every step"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "this rank"),
    DP_INT(   FAULT, bucket,  "-1", -1, INT_HIGH, "in that step, before it waits for this bucket"),
    DP_INT(   FAULT, beat,    "0",  0, 1,        "1: instead at each part read or measured"),
    DP_INT(   FAULT, ms,      "100", 1, MS_HIGH, "milliseconds"),
    {0},
};

static const struct dp_option leak_options[] = {
    DP_INT(   FAULT, step,    "0",  0, INT_HIGH, "after this step; 0: after every step"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "this rank"),
    DP_INT(   FAULT, mb,      "1",  1, MB_HIGH,  "megabytes"),
    {0},
};
/* clang-format on */

const struct dp_plugin dp_fault_flip = {
    .name = "flip",
    .help = "one bit of a weight or running statistic, or of something else",
    .options = flip_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_kill = {
    .name = "kill",
    .help = "the rank is killed, as by the kernel when memory runs out",
    .options = kill_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_stop = {
    .name = "stop",
    .help = "the rank stands still until it gets SIGCONT",
    .options = stop_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_slow = {
    .name = "slow",
    .help = "the rank sleeps",
    .options = slow_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_spin = {
    .name = "spin",
    .help = "the rank computes for ever",
    .options = end_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_lock = {
    .name = "lock",
    .help = "the rank waits for ever for a lock that it holds itself",
    .options = end_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_swap = {
    .name = "swap",
    .help = "the rank reads pages for ever that the system has taken from it",
    .options = end_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_exit = {
    .name = "exit",
    .help = "the rank leaves with exit code 0, without a word to the others",
    .options = end_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_leak = {
    .name = "leak",
    .help = "the rank takes memory for activations, and keeps it",
    .options = leak_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_torn = {
    .name = "torn",
    .help = "the rank is killed when half of a write is done, or right after another change",
    .options = write_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_full = {
    .name = "full",
    .help = "from then on the disk is full",
    .options = write_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_eio = {
    .name = "eio",
    .help = "the disk fails once: input/output error",
    .options = write_options,
    .state_bytes = sizeof(struct dp_fault),
};

const struct dp_plugin dp_fault_nomem = {
    .name = "nomem",
    .help = "an allocation of memory fails",
    .options = alloc_options,
    .state_bytes = sizeof(struct dp_fault),
};

static const struct dp_plugin *const kinds[] = {
    &dp_fault_flip, &dp_fault_kill, &dp_fault_stop, &dp_fault_slow, &dp_fault_spin,
    &dp_fault_lock, &dp_fault_swap, &dp_fault_exit, &dp_fault_leak, &dp_fault_torn,
    &dp_fault_full, &dp_fault_eio,  &dp_fault_nomem};

struct dp_plugin_family dp_fault_kinds = {
    .noun = "fault", .rows = kinds, .count = sizeof(kinds) / sizeof(kinds[0])};

static bool has_bucket(const struct dp_plugin *kind)
{
    for (const struct dp_option *option = kind->options; option->name != NULL; option++) {
        if (strcmp(option->name, "bucket") == 0) {
            return true;
        }
    }
    return false;
}

static dp_status read_fault(const char *text, struct dp_fault **out)
{
    const struct dp_plugin *kind;
    char problem[256];
    void *state;
    dp_status status;

    if (*text == '\0') {
        return DP_FAIL(DP_ERR_CONFIG, DP_FAULT_VARIABLE ": there is no fault before a ';'");
    }
    status = dp_plugin_create(&dp_fault_kinds, text, &kind, &state, problem, sizeof(problem));
    if (status != DP_OK) {
        return DP_FAIL(status, DP_FAULT_VARIABLE ": %s", problem);
    }
    *out = state;
    (*out)->kind = kind;
    if (!has_bucket(kind) || (kind == &dp_fault_flip && (*out)->what != DP_FLIP_GRADIENT)) {
        (*out)->bucket = -1;
    }
    return DP_OK;
}

/* The text without spaces around it. */
static char *trimmed(char *text)
{
    size_t length;

    text += strspn(text, " ");
    length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') {
        text[--length] = '\0';
    }
    return text;
}

dp_status dp_faults_create(const char *text, struct dp_fault **out)
{
    struct dp_fault *first = NULL, **end = &first;
    char *copy = dp_strdup(text), *next;
    dp_status status = DP_OK;

    if (copy == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, DP_FAULT_VARIABLE);
    }
    for (char *one = *trimmed(copy) == '\0' ? NULL : copy; one != NULL && status == DP_OK;
         one = next) {
        next = strchr(one, ';');
        if (next != NULL) {
            *next++ = '\0';
            next = *trimmed(next) == '\0' ? NULL : next; /* a last ';' may end the text */
        }
        status = read_fault(trimmed(one), end);
        end = status == DP_OK ? &(*end)->next : end;
    }
    dp_free(copy);
    if (status != DP_OK) {
        dp_faults_destroy(first);
        return status;
    }
    *out = first;
    return DP_OK;
}

bool dp_fault_is_between_steps(const struct dp_fault *fault)
{
    return fault->bucket < 0 && fault->write == 0 && fault->alloc == 0 && fault->beat == 0;
}

void dp_faults_destroy(struct dp_fault *first)
{
    while (first != NULL) {
        struct dp_fault *next = first->next;
        dp_free(first);
        first = next;
    }
}
