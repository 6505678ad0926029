#include "base/fault.h"

#include <string.h>

#include "base/mem.h"

#define FAULT struct dp_fault

enum { INT_HIGH = 2147483647, BIT_HIGH = 31 };

/* clang-format off */
static const struct dp_option flip_options[] = {
    DP_INT(   FAULT, step,    "1",  1, INT_HIGH, "behind this step"),
    DP_INT(   FAULT, rank,    "0",  0, INT_HIGH, "on this rank"),
    DP_STRING(FAULT, tensor,  "",   "its name in model.safetensors"),
    DP_INT(   FAULT, element, "0",  0, INT_HIGH, "which one, in the order of model.safetensors"),
    DP_INT(   FAULT, bit,     "22", 0, BIT_HIGH, "of the float32; 0 is the lowest"),
    {0},
};
/* clang-format on */

const struct dp_plugin dp_fault_flip = {
    .name = "flip",
    .help = "one bit of a weight or running statistic: step, rank, tensor, element, bit",
    .options = flip_options,
    .state_bytes = sizeof(struct dp_fault),
};

static const struct dp_plugin *const kinds[] = {&dp_fault_flip};

struct dp_plugin_family dp_fault_kinds = {
    .noun = "fault", .rows = kinds, .count = sizeof(kinds) / sizeof(kinds[0])};

static dp_status read_fault(const char *text, struct dp_fault **out)
{
    const struct dp_plugin *kind;
    char problem[256];
    void *state;
    const dp_status status =
        dp_plugin_create(&dp_fault_kinds, text, &kind, &state, problem, sizeof(problem));

    if (status != DP_OK) {
        return DP_FAIL(status, DP_FAULT_VARIABLE ": %s", problem);
    }
    *out = state;
    (*out)->kind = kind;
    return DP_OK;
}

dp_status dp_faults_create(const char *text, struct dp_fault **out)
{
    struct dp_fault *first = NULL, **end = &first;
    char *copy = dp_strdup(text), *next;
    dp_status status = DP_OK;

    if (copy == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, DP_FAULT_VARIABLE);
    }
    for (char *one = *copy == '\0' ? NULL : copy; one != NULL && status == DP_OK; one = next) {
        next = strchr(one, ';');
        if (next != NULL) {
            *next++ = '\0';
        }
        status = read_fault(one, end);
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

void dp_faults_destroy(struct dp_fault *first)
{
    while (first != NULL) {
        struct dp_fault *next = first->next;
        dp_free(first);
        first = next;
    }
}
