/*
 * test_model_lifetimes.c - values and gradients in one arena: what is in use at the same time does
 * not overlap, the arena is small, and what is not in use may be anything.
 */
#include "models/model_parts.h"
#include "runtime/config/config_load.h"
#include "tests/support/arrays.h"
#include "tests/support/models/pass_events.h"
#include "tests/support/models/shape_cases.h"
#include "tests/support/models/small_model.h"

enum { ROWS = 5 };

/* ---- models ---- */

static const char *const shipped[] = {"models/mlp.cfg", "models/lenet.cfg", "models/resnet20.cfg",
                                      "models/resnet50.cfg", "benchmarks/mlp8192.cfg"};

static struct small_model shipped_create(const char *path)
{
    static char *const no_environment[] = {NULL};
    struct small_model small = {NULL, NULL, NULL};
    char file[512], *text = NULL;

    (void)snprintf(file, sizeof(file), DP_SOURCE_DIR "/%s", path);
    OK(dp_config_resolve(file, no_environment, NULL, 0, &text));
    OK(dp_config_parse(text, file, &small.config));
    dp_free(text);
    OK(dp_model_create(small.config->model.layers, small.config->model.layer_count,
                       &small.config->model.input, &small.model));
    return small;
}

/* ---- the arena ---- */

/* For each block of the arena the memory that was written there last. */
struct ground {
    const struct dp_model *model;
    const struct dp_arena *arena;
    int *owner;
};

static void take(const struct ground *g, int memory)
{
    const size_t begin = g->arena->begin[memory], count = memory_count(g->model, memory);

    assert_int_equal(begin % DP_BLOCK, 0);
    assert_true(begin + count <= g->arena->size);
    for (size_t at = begin; at < begin + count; at += DP_BLOCK) {
        g->owner[at / DP_BLOCK] = memory;
    }
}

static void assert_there(const struct ground *g, int memory, int event)
{
    const size_t begin = g->arena->begin[memory], count = memory_count(g->model, memory);

    for (size_t at = begin; at < begin + count; at += DP_BLOCK) {
        if (g->owner[at / DP_BLOCK] != memory) {
            fail_msg("event %d: %d lies in %d", event, g->owner[at / DP_BLOCK], memory);
        }
    }
}

/* Goes through a pass: all that is in use must still be there. Returns how much that is at most. */
static size_t play(const struct dp_model *m, enum dp_pass_use use)
{
    const struct dp_arena *arena = &m->arenas[use];
    const struct ground ground = {m, arena,
                                  dp_zalloc(arena->size / DP_BLOCK + 1, sizeof(*ground.owner))};
    struct pass_events all = pass_events_of(m, use);
    size_t most = 0;

    assert_non_null(ground.owner);
    take(&ground, m->values[0].storage);
    for (int i = 0; i < all.count; i++) {
        const bool *used = all.used + (size_t)i * (size_t)all.memories;
        size_t sum = 0;
        for (int k = 0; k < all.events[i].write_count; k++) {
            take(&ground, all.events[i].writes[k]);
        }
        for (int memory = 0; memory < all.memories; memory++) {
            if (used[memory]) {
                assert_there(&ground, memory, i);
                sum += dp_round_up(memory_count(m, memory), DP_BLOCK);
            }
        }
        most = sum > most ? sum : most;
    }
    pass_events_release(&all);
    dp_free(ground.owner);
    return most;
}

/* Whatever the pass is for, whole and in as many parts as possible. Adds up how large the arenas
 * are, and what none can be smaller than. */
struct sums {
    size_t size[2], least[2]; /* whole; in parts */
};

static void check_arenas(struct dp_model *model, struct sums sums[DP_PASS_USES])
{
    int parts = 1;

    for (int cut = 0; cut < 2; cut++) {
        OK(dp_model_cut(model, parts));
        for (int use = 0; use < DP_PASS_USES; use++) {
            const size_t least = play(model, (enum dp_pass_use)use);
            assert_int_equal(model->arenas[use].least, least);
            sums[use].size[cut] += model->arenas[use].size;
            sums[use].least[cut] += least;
        }
        OK(dp_model_parts_most(model, &parts));
    }
}

/* The arenas may be so much larger than what is in use at some time. */
static void assert_small(const char *name, const struct sums sums[DP_PASS_USES], double most)
{
    static const char *const uses[DP_PASS_USES] = {"evaluates", "trains", "trains in fp16"};

    for (int i = 0; i < 2 * DP_PASS_USES; i++) {
        const size_t size = sums[i / 2].size[i % 2], least = sums[i / 2].least[i % 2];
        print_message("%s, %s, %s: %zu elements per sample, %zu in use\n", name, uses[i / 2],
                      i % 2 == 0 ? "whole" : "in parts", size, least);
        assert_true(size >= least);
        assert_true((double)size <= most * (double)least);
    }
}

/* All of them together: of a few, in parts, some memory is lost between what is in use. */
static void memory_in_use_at_the_same_time_does_not_overlap(void **state)
{
    struct sums sums[DP_PASS_USES] = {{{0}, {0}}};
    (void)state;

    for (size_t i = 0; i < shape_case_count; i++) {
        struct small_model small = small_model_create(shape_cases[i].input, shape_cases[i].layers);
        check_arenas(small.model, sums);
        small_model_destroy(&small);
    }
    assert_small("small models", sums, 1.02);
}

static void arenas_of_shipped_models_are_as_small_as_can_be(void **state)
{
    (void)state;
    for (size_t i = 0; i < DP_COUNT(shipped); i++) {
        struct small_model small = shipped_create(shipped[i]);
        struct sums sums[DP_PASS_USES] = {{{0}, {0}}};
        check_arenas(small.model, sums);
        assert_small(shipped[i], sums, 1.0);
        small_model_destroy(&small);
    }
}

/* What a careful planner needs: all that backward reads, and little for gradients, which lie where
 * values were. */
static void resnet50_trains_in_less_than_10000_mib(void **state)
{
    enum { BATCH = 256 };
    struct small_model small = shipped_create("models/resnet50.cfg");
    const struct dp_arena *arena = &small.model->arenas[DP_PASS_TRAINS];
    const double mib = (double)(arena->size * BATCH * dp_type_bytes(DP_TYPE_BF16)) / 1048576.0;
    (void)state;

    print_message("resnet50, %d rows in bf16: %.1f MiB\n", BATCH, mib);
    assert_true(mib > 9000.0 && mib < 10000.0);
    assert_int_equal(
        dp_model_activation_bytes(small.model, DP_TYPE_BF16, BATCH, (struct dp_tiles){0, 1}, true),
        BATCH * (2 * arena->size + small.model->saved_bytes));
    small_model_destroy(&small);
}

/* ---- what is not in use ---- */

/* Takes a node's place, and fills what is not in use with NaN before each call of its layer. */
struct spy {
    struct dp_layer_type type;
    const struct dp_layer_type *own;
    const void *state;
    int node;
};

static struct {
    struct dp_stream *stream;
    char *arena; /* of a pass of ROWS rows */
    struct pass_events events;
    bool *ran;   /* [nodes]: forward, in this pass */
    void *nan;   /* as large as the arena */
    int written; /* how often something was */
} spies;

/* Fills blocks [first, last) of the arena. */
static dp_status fill(size_t first, size_t last)
{
    const size_t block = (size_t)DP_BLOCK * ROWS * sizeof(float);

    spies.written += last > first;
    return last > first ? spies.stream->ops->copy(spies.stream, spies.arena + first * block,
                                                  spies.nan, (last - first) * block)
                        : DP_OK;
}

static dp_status spoil(enum event_kind kind, int node)
{
    const struct dp_model *m = spies.events.model;
    const struct dp_arena *arena = &m->arenas[DP_PASS_TRAINS];
    const bool *used = spies.events.used + (size_t)pass_event_find(&spies.events, kind, node) *
                                               (size_t)spies.events.memories;
    size_t first = 0;

    for (size_t at = 0; at < arena->size / DP_BLOCK; at++) {
        bool in_use = false;
        for (int i = 0; i < spies.events.memories; i++) {
            const size_t begin = arena->begin[i] / DP_BLOCK;
            in_use = in_use || (used[i] && begin <= at &&
                                at * DP_BLOCK < arena->begin[i] + memory_count(m, i));
        }
        if (in_use) {
            DP_TRY(fill(first, at));
            first = at + 1;
        }
    }
    return fill(first, arena->size / DP_BLOCK);
}

static dp_status spy_prepare(const void *state, struct dp_stream *stream, size_t rows,
                             bool training, bool first, enum dp_activation act)
{
    const struct spy *spy = state;

    return spy->own->prepare(spy->state, stream, rows, training, first, act);
}

static dp_status spy_forward(const void *state, const struct dp_layer_call *c)
{
    const struct spy *spy = state;
    const enum event_kind kind = spies.ran[spy->node] ? EVENT_AGAIN : EVENT_FORWARD;

    spies.ran[spy->node] = true;
    DP_TRY(spoil(kind, spy->node));
    return spy->own->forward(spy->state, c);
}

static dp_status spy_backward(const void *state, const struct dp_layer_call *c)
{
    const struct spy *spy = state;

    DP_TRY(spoil(EVENT_BACKWARD, spy->node));
    return spy->own->backward(spy->state, c);
}

static dp_status spy_backward_data(const void *state, const struct dp_layer_call *c)
{
    const struct spy *spy = state;

    DP_TRY(spoil(EVENT_BACKWARD_DATA, spy->node));
    return spy->own->backward_data(spy->state, c);
}

static dp_status spy_backward_whole(const void *state, const struct dp_layer_call *c)
{
    const struct spy *spy = state;

    DP_TRY(spoil(EVENT_BACKWARD, spy->node));
    return spy->own->backward_whole(spy->state, c);
}

static dp_status spy_forward_end(const void *state, const struct dp_layer_call *c)
{
    const struct spy *spy = state;

    return spy->own->forward_end(spy->state, c);
}

static dp_status spy_backward_end(const void *state, const struct dp_layer_call *c)
{
    const struct spy *spy = state;

    return spy->own->backward_end(spy->state, c);
}

static bool spy_masks(const void *state, const struct dp_layer_call *c)
{
    const struct spy *spy = state;

    return spy->own->masks(spy->state, c);
}

static bool spy_is_whole(const void *state, const struct dp_layer_call *c)
{
    const struct spy *spy = state;

    return spy->own->is_whole(spy->state, c);
}

/* A spy for each node. */
static struct spy *spies_create(struct dp_model *m)
{
    struct spy *all = dp_zalloc((size_t)m->node_count, sizeof(*all));

    assert_non_null(all);
    for (int n = 0; n < m->node_count; n++) {
        const struct dp_layer_type *own = m->nodes[n].type;
        all[n] = (struct spy){*own, own, m->nodes[n].state, n};
        all[n].type.prepare = own->prepare != NULL ? spy_prepare : NULL;
        all[n].type.forward = spy_forward;
        all[n].type.backward = spy_backward;
        all[n].type.backward_data = own->backward_data != NULL ? spy_backward_data : NULL;
        all[n].type.backward_whole = own->backward_whole != NULL ? spy_backward_whole : NULL;
        all[n].type.forward_end = own->forward_end != NULL ? spy_forward_end : NULL;
        all[n].type.backward_end = own->backward_end != NULL ? spy_backward_end : NULL;
        all[n].type.masks = own->masks != NULL ? spy_masks : NULL;
        all[n].type.is_whole = own->is_whole != NULL ? spy_is_whole : NULL;
        m->nodes[n].type = &all[n].type;
        m->nodes[n].state = &all[n];
    }
    return all;
}

static void spies_destroy(struct dp_model *m, struct spy *all)
{
    for (int n = 0; n < m->node_count; n++) {
        m->nodes[n].type = all[n].own;
        m->nodes[n].state = all[n].state;
    }
    dp_free(all);
}

static void spies_begin(const struct dp_model *m, struct dp_stream *stream, struct dp_pass *pass)
{
    const struct dp_arena *arena = &m->arenas[DP_PASS_TRAINS];
    const size_t row = ROWS * sizeof(float);

    spies.stream = stream;
    spies.arena = (char *)dp_pass_input(pass) - arena->begin[m->values[0].storage] * row;
    spies.events = pass_events_of(m, DP_PASS_TRAINS);
    spies.ran = dp_zalloc((size_t)m->node_count, sizeof(*spies.ran));
    spies.nan = dp_zalloc(arena->size, row);
    assert_non_null(spies.ran);
    assert_non_null(spies.nan);
    memset(spies.nan, 0xff, arena->size * row);
}

static void spies_end(void)
{
    pass_events_release(&spies.events);
    dp_free(spies.ran);
    dp_free(spies.nan);
}

/* One step of a new pass, whose results are there when this returns. */
static void step(const struct small_batch *batch, struct dp_stream *stream, bool spoils,
                 const struct dp_pass_call *call)
{
    const struct dp_pass_rows rows = {.images = (const uint8_t *)(const void *)batch->input,
                                      .labels = batch->labels,
                                      .count = ROWS};
    const float scale = 1.0f, shift = 0.0f;
    struct dp_pass *pass = NULL;

    OK(dp_pass_create(batch->model, stream, ROWS, true, &pass));
    OK(dp_pass_prepare(pass, ROWS, true));
    OK(dp_pass_load(pass, &rows, &scale, &shift, 1));
    if (spoils) {
        spies_begin(batch->model, stream, pass);
    }
    OK(dp_pass_forward(pass, call));
    OK(dp_pass_backward(pass, call));
    OK(stream->device->synchronize(stream));
    if (spoils) {
        spies_end();
    }
    dp_pass_destroy(pass);
}

/* With memory of their own for all that backward reads, where that changes no operation; in one
 * arena; and the same while what is not in use is NaN. */
static void compare_bits(struct small_model *small, struct dp_stream *stream, bool splits)
{
    struct dp_model *m = small->model;
    const struct dp_device *own = stream->device;
    struct dp_device device = *own;
    struct small_batch batch = small_batch_create(m, ROWS);
    const size_t count = grad_count(m);
    float *expected = zeros(count), *grad = zeros(count);
    struct dp_pass_call call = batch_call(&batch, 0, ROWS, expected, 0);
    struct spy *all;

    stream->device = &device;
    device.tile_bytes = splits ? (size_t)1 << 30 : 0;
    step(&batch, stream, false, &call);
    call.grad = grad;
    device.tile_bytes = 0;
    step(&batch, stream, false, &call);
    assert_same_bits(grad, expected, count);
    all = spies_create(m);
    memset(grad, 0, count * sizeof(*grad));
    step(&batch, stream, true, &call);
    assert_same_bits(grad, expected, count);
    assert_true(isfinite(grad[count - 2]));
    spies_destroy(m, all);
    stream->device = own;
    dp_free(expected);
    dp_free(grad);
    small_batch_destroy(&batch);
}

static void what_is_not_in_use_may_be_anything(void **state)
{
    const struct streams *streams = *state;
    struct dp_stream *both[] = {streams->ref, streams->tested[0]};

    spies.written = 0;
    for (size_t i = 0; i < 2 * shape_case_count; i++) {
        const struct shape_case *c = &shape_cases[i / 2];
        struct small_model small = small_model_create(c->input, c->layers);
        int most = 1;
        small.model->float_samples = true; /* as a batch has them */
        compare_bits(&small, both[i % 2], c->splits);
        OK(dp_model_parts_most(small.model, &most));
        OK(dp_model_cut(small.model, most));
        compare_bits(&small, both[i % 2], c->splits);
        small_model_destroy(&small);
    }
    assert_true(spies.written > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_in_use_at_the_same_time_does_not_overlap),
        cmocka_unit_test(arenas_of_shipped_models_are_as_small_as_can_be),
        cmocka_unit_test(resnet50_trains_in_less_than_10000_mib),
        cmocka_unit_test(what_is_not_in_use_may_be_anything),
    };

    return run_reached_tests(tests, streams_open, streams_close);
}
