#include "runtime/data/augment/augment.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/tensor.h"

#define DP_AUGMENTATION(name) extern const struct dp_augmentation dp_augmentation_##name;
#include "runtime/data/augment/augmentations.def"
#undef DP_AUGMENTATION

static const struct dp_plugin *const registry[] = {
#define DP_AUGMENTATION(name) &dp_augmentation_##name.plugin,
#include "runtime/data/augment/augmentations.def"
#undef DP_AUGMENTATION
};

struct dp_plugin_family dp_augmentations = {
    .noun = "augmentation", .rows = registry, .count = sizeof(registry) / sizeof(registry[0])};

enum { STAGES_MOST = 16, BLOCKS = 16 /* of random numbers a stage */ };

struct stage {
    const struct dp_augmentation *is;
    void *state; /* owned, unless the augment borrows */
};

struct dp_augment {
    struct stage stages[STAGES_MOST];
    int count;        /* of those that change a sample by itself */
    struct stage mix; /* comes after them; `is` NULL: none */
    bool borrows;     /* the states are another one's */
    struct dp_sample_shape shape;
    uint64_t seed;
    uint8_t *between[2]; /* within `memory`; what a stage makes for the next one */
    uint8_t *memory;     /* owned */
};

static dp_status add_stage(struct dp_augment *a, const char *text, char *problem, size_t size)
{
    const struct dp_plugin *plugin = NULL;
    struct stage stage = {NULL, NULL};
    const char *reason;

    if (a->mix.is != NULL) {
        (void)snprintf(problem, size, "%s must be the last one", a->mix.is->plugin.name);
        return DP_ERR_CONFIG;
    }
    if (a->count == STAGES_MOST) {
        (void)snprintf(problem, size, "more than %d augmentations", STAGES_MOST);
        return DP_ERR_CONFIG;
    }
    DP_TRY(dp_plugin_create(&dp_augmentations, text, &plugin, &stage.state, problem, size));
    stage.is = (const struct dp_augmentation *)(const void *)plugin; /* its first member */
    if (stage.is->share != NULL) {
        a->mix = stage;
        return DP_OK;
    }
    a->stages[a->count++] = stage;
    reason = a->shape.height == 0       ? "samples are no pictures"
             : stage.is->refuse != NULL ? stage.is->refuse(stage.state, &a->shape)
                                        : NULL;
    if (reason != NULL) {
        (void)snprintf(problem, size, "%s: %s", plugin->name, reason);
        return DP_ERR_CONFIG;
    }
    return DP_OK;
}

static dp_status add_stages(struct dp_augment *a, char *text, char *problem, size_t size)
{
    char *next;

    for (char *one = text; one != NULL; one = next) {
        next = strchr(one, ';');
        if (next != NULL) {
            *next++ = '\0';
        }
        DP_TRY(add_stage(a, one, problem, size));
    }
    return DP_OK;
}

static bool make_between(struct dp_augment *a)
{
    const size_t bytes = dp_round_up(dp_shape_bytes(&a->shape), DP_MEM_ALIGN);

    a->memory = dp_mem_arena(DP_MEM_DATA, 2 * bytes);
    a->between[0] = a->memory;
    a->between[1] = a->memory != NULL ? a->memory + bytes : NULL;
    return a->memory != NULL;
}

static dp_status fill(struct dp_augment *a, const char *text, char *problem, size_t size)
{
    char *copy = dp_strdup(text);
    dp_status status;

    if (copy == NULL || !make_between(a)) {
        dp_free(copy);
        (void)snprintf(problem, size, "no memory");
        return DP_ERR_NOMEM;
    }
    status = add_stages(a, copy, problem, size);
    dp_free(copy);
    return status;
}

dp_status dp_augment_create(const char *text, const struct dp_sample_shape *shape, uint64_t seed,
                            struct dp_augment **out, char *problem, size_t problem_size)
{
    struct dp_augment *a;
    dp_status status;

    if (text[0] == '\0') {
        *out = NULL;
        return DP_OK;
    }
    a = dp_zalloc(1, sizeof(*a));
    if (a == NULL) {
        (void)snprintf(problem, problem_size, "no memory");
        return DP_ERR_NOMEM;
    }
    a->shape = *shape;
    a->seed = seed;
    status = fill(a, text, problem, problem_size);
    if (status != DP_OK) {
        dp_augment_destroy(a);
        return status;
    }
    *out = a;
    return DP_OK;
}

dp_status dp_augment_share(const struct dp_augment *augment, struct dp_augment **out)
{
    struct dp_augment *a = dp_zalloc(1, sizeof(*a));

    if (a != NULL) {
        *a = *augment;
        a->borrows = true;
    }
    if (a == NULL || !make_between(a)) {
        dp_free(a);
        return DP_FAIL(DP_ERR_NOMEM, "augmentation of a thread");
    }
    *out = a;
    return DP_OK;
}

static struct dp_draw draw_of(const struct dp_augment *a, uint64_t epoch, uint64_t row, int stage)
{
    return (struct dp_draw){.seed = a->seed,
                            .row = row,
                            .what = DP_RANDOM_AUGMENT + (uint32_t)(stage * BLOCKS),
                            .epoch = (uint32_t)epoch};
}

/* All stages from `first` on. */
static void apply(struct dp_augment *a, int first, uint64_t epoch, uint64_t row, const uint8_t *in,
                  uint8_t *out)
{
    for (int i = first; i < a->count; i++) {
        const struct dp_draw draw = draw_of(a, epoch, row, i);
        uint8_t *to = i == a->count - 1 ? out : a->between[i % 2];

        a->stages[i].is->apply(a->stages[i].state, &a->shape, &draw, in, to);
        in = to;
    }
}

void dp_augment_sample(struct dp_augment *a, uint64_t epoch, uint64_t row, const uint8_t *in,
                       uint8_t *out)
{
    if (a->count == 0) {
        memcpy(out, in, dp_shape_bytes(&a->shape));
    }
    apply(a, 0, epoch, row, in, out);
}

/* ---- mixing ---- */

bool dp_augment_text_mixes(const char *text)
{
    for (const char *at = text; at != NULL; at = strchr(at, ';')) {
        const size_t length = strcspn(at += *at == ';', ":;");
        const struct dp_plugin *plugin = dp_plugin_find(&dp_augmentations, at, length);
        if (plugin != NULL &&
            ((const struct dp_augmentation *)(const void *)plugin)->share != NULL) {
            return true;
        }
    }
    return false;
}

bool dp_augment_changes(const struct dp_augment *a)
{
    return a->count > 0;
}

bool dp_augment_mixes(const struct dp_augment *a)
{
    return a->mix.is != NULL;
}

struct dp_mix dp_augment_mix(const struct dp_augment *a, uint64_t epoch, uint64_t row,
                             uint64_t count)
{
    const struct dp_draw draw = draw_of(a, epoch, row, a->count);
    const double share = a->mix.is->share(a->mix.state, &draw);
    uint32_t bits[4];
    double place; /* [0, 1), of 52 bits: no product with a count rounds to the count */

    dp_draw_block(&draw, 0, bits);
    place = (double)((uint64_t)bits[0] << 20 | bits[1] >> 12) / 4503599627370496.0;
    return (struct dp_mix){.row = (uint64_t)(place * (double)count),
                           .part = (uint32_t)lround(share * DP_MIX_WHOLE)};
}

void dp_augment_mix_samples(const struct dp_augment *a, const struct dp_mix *mix, uint8_t *sample,
                            const uint8_t *other)
{
    const uint32_t part = mix->part, rest = DP_MIX_WHOLE - part;
    const size_t count = a->shape.count;

    if (a->shape.element == DP_ELEMENT_FLOAT) {
        const float share = (float)part / DP_MIX_WHOLE, left = (float)rest / DP_MIX_WHOLE;
        const float *y = (const float *)(const void *)other;
        float *x = (float *)(void *)sample;
        for (size_t i = 0; i < count; i++) {
            x[i] = share * x[i] + left * y[i];
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        sample[i] = (uint8_t)((part * sample[i] + rest * other[i] + DP_MIX_WHOLE / 2) >> 16);
    }
}

/* The first stage that a part's decoding does not do. */
static int after_part(const struct dp_augment *a)
{
    return a->count > 1 && a->stages[1].is->mirrors != NULL ? 2 : 1;
}

bool dp_augment_takes_part(const struct dp_augment *a, bool *more)
{
    *more = a->count > after_part(a);
    return a->count > 0 && a->stages[0].is->part != NULL;
}

void dp_augment_part(const struct dp_augment *a, uint64_t epoch, uint64_t row, int height,
                     int width, struct dp_part *part)
{
    const struct dp_draw draw = draw_of(a, epoch, row, 0), next = draw_of(a, epoch, row, 1);

    a->stages[0].is->part(a->stages[0].state, height, width, &draw, part);
    part->mirrored = after_part(a) > 1 && a->stages[1].is->mirrors(a->stages[1].state, &next);
}

void dp_augment_rest(struct dp_augment *a, uint64_t epoch, uint64_t row, const uint8_t *in,
                     uint8_t *out)
{
    apply(a, after_part(a), epoch, row, in, out);
}

void dp_augment_destroy(struct dp_augment *a)
{
    if (a == NULL) {
        return;
    }
    for (int i = 0; i < a->count && !a->borrows; i++) {
        dp_free(a->stages[i].state);
    }
    if (!a->borrows) {
        dp_free(a->mix.state);
    }
    dp_free(a->memory);
    dp_free(a);
}
