/*
 * test_choose_onednn.c - which of oneDNN's implementations computes a convolution where they may be
 * measured: a known choice, or what is noted as the fastest; and the preferred one elsewhere.
 */
#include <stdbool.h>

#include "tests/support/arrays.h"

#if DP_HAVE_ONEDNN

#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/float_bits.h"
#include "kernels/cpu/onednn/choose_onednn.h"
#include "kernels/cpu/onednn/conv_desc_onednn.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/op_path.h"
#include "kernels/ref/window.h"

enum { SIDE = 12, ROWS = 4, MOST_NAMES = 16 };

static const struct dp_window three = {.in_h = SIDE,
                                       .in_w = SIDE,
                                       .in_c = 16,
                                       .out_h = SIDE,
                                       .out_w = SIDE,
                                       .out_c = 16,
                                       .kernel_h = 3,
                                       .kernel_w = 3,
                                       .stride = 1,
                                       .padding = 1};
static const struct dp_window pointwise = {.in_h = SIDE,
                                           .in_w = SIDE,
                                           .in_c = 32,
                                           .out_h = SIDE,
                                           .out_w = SIDE,
                                           .out_c = 32,
                                           .kernel_h = 1,
                                           .kernel_w = 1,
                                           .stride = 1};
static const struct dp_window many = {.in_h = SIDE,
                                      .in_w = SIDE,
                                      .in_c = 32,
                                      .out_h = SIDE,
                                      .out_w = SIDE,
                                      .out_c = 32,
                                      .kernel_h = 3,
                                      .kernel_w = 3,
                                      .stride = 1,
                                      .padding = 1};

/* What is tested. */
static const struct dp_window *window;
static enum dp_type type;

static const unsigned uses[] = {DP_CONV_FORWARD, DP_CONV_BACKWARD_DATA, DP_CONV_BACKWARD_WEIGHTS};

/* ---- what oneDNN has ---- */

struct names {
    char text[MOST_NAMES][64];
    int count;
};

static bool add_name(void *context, const_dnnl_primitive_desc_t desc)
{
    struct names *names = context;

    (void)snprintf(names->text[names->count++], sizeof(names->text[0]), "%s",
                   dp_onednn_desc_code(desc));
    return names->count == MOST_NAMES;
}

static struct names names_of(unsigned use)
{
    struct dp_onednn_conv conv = {NULL, window, ROWS, use, type};
    struct names names = {.count = 0};

    assert_int_equal(dnnl_engine_create(&conv.engine, dnnl_cpu, 0), dnnl_success);
    OK(dp_onednn_each_conv(&conv, add_name, &names));
    (void)dnnl_engine_destroy(conv.engine);
    for (int own = 0; own < DP_PREPARED_OWNS; own++) {
        const struct dp_prepared_key key = {*window, ROWS, use, type};
        if (dp_prepared_has_own(own, &key) && names.count < MOST_NAMES) {
            (void)snprintf(names.text[names.count++], sizeof(names.text[0]), "%s",
                           dp_prepared_own_code(own));
        }
    }
    return names;
}

/* ---- what computes ---- */

struct result {
    char path[DP_OP_PATH_BYTES];
    float *values; /* what the use computes */
    size_t count;
    double spared; /* FLOPs */
};

/* Numbers of the type, in -1..1. */
static float *numbers(size_t count, uint32_t seed)
{
    float *array = uniform(count, seed, -1, 1);
    uint16_t *narrow = (uint16_t *)(void *)array;

    for (size_t i = 0; i < count && type == DP_TYPE_BF16; i++) {
        narrow[i] = (uint16_t)(dp_bits_of(array[i]) >> 16);
    }
    return array;
}

/* Of the type before. */
static void widen(float *array, size_t count)
{
    const uint16_t *narrow = (const uint16_t *)(const void *)array;

    for (size_t i = count; i-- > 0 && type == DP_TYPE_BF16;) {
        array[i] = dp_float_of((uint32_t)narrow[i] << 16);
    }
}

/* Prepares and computes one use with these choices, on a stream of its own unless there is one. */
static struct result compute(unsigned use, size_t rows, struct dp_algo_choices *choices,
                             struct dp_stream *given)
{
    struct dp_stream *s = given != NULL ? given : stream_on("cpu", 1);
    const size_t pixels = rows * dp_window_in(window), weights = dp_window_weights(window);
    const bool forward = (use & DP_CONV_FORWARD) != 0, back = (use & DP_CONV_BACKWARD_DATA) != 0;
    float *x = numbers(pixels, 1), *w = numbers(weights, 2);
    float *b = numbers(window->out_c, 3), *bias = (use & DP_CONV_BIAS) != 0 ? b : NULL;
    struct result result = {.path = "", .count = forward || back ? pixels : weights};

    result.values = zeros(result.count);
    s->algo_choices = choices;
    dp_stream_set_type(s, type);
    OK(s->ops->conv_prepare(s, window, rows, use));
    s->path = result.path;
    s->spared = &result.spared;
    if (forward) {
        OK(s->ops->conv_forward(s, result.values, x, w, bias, window, rows, DP_ACT_NONE));
    } else if (back) {
        OK(s->ops->conv_backward_data(s, result.values, x, w, window, rows));
    } else {
        OK(s->ops->conv_backward_weights(s, result.values, bias, x, x, window, rows, 0));
    }
    if (forward || back) {
        widen(result.values, result.count);
    }
    s->path = NULL;
    s->spared = NULL;
    if (given == NULL) {
        stream_close(s);
    }
    dp_free(x);
    dp_free(w);
    dp_free(b);
    return result;
}

/* The code of a path, "oneDNN CODE" or "own CODE". */
static const char *code_in(const char *path)
{
    const bool own = strncmp(path, "own ", 4) == 0;

    assert_true(own || strncmp(path, "oneDNN ", 7) == 0);
    return path + (own ? 4 : 7);
}

/* That of what computes it. */
static const char *code_of(unsigned use, size_t rows, struct dp_algo_choices *choices,
                           struct dp_stream *given)
{
    static char code[2 * DP_OP_PATH_BYTES];
    struct result result = compute(use, rows, choices, given);

    (void)snprintf(code, sizeof(code), "%s", code_in(result.path));
    dp_free(result.values);
    return code;
}

/* ---- choices ---- */

static struct dp_algo_choices *table(void)
{
    struct dp_algo_choices *choices = NULL;
    const struct dp_device *device = NULL;
    char machine[DP_ALGO_CHOICE_MACHINE];

    OK(dp_device_find("cpu", &device));
    device->machine(machine, sizeof(machine));
    assert_true(strstr(machine, "oneDNN") != NULL);
    assert_int_equal(strstr(machine, DP_PREPARED_AMX) != NULL, dp_amx_has());
    assert_int_equal(strstr(machine, DP_PREPARED_DENSE_AMX) != NULL, dp_amx_has());
    assert_int_equal(strstr(machine, DP_PREPARED_POINTWISE) != NULL, dp_amx_has());
    assert_int_equal(strstr(machine, DP_PREPARED_CONV) != NULL, dp_amx_has());
    assert_int_equal(strstr(machine, DP_PREPARED_CONV_SPLIT) != NULL, dp_amx_has());
    OK(dp_algo_choices_create(machine, &choices));
    return choices;
}

/* The only choice of a table. */
static struct dp_algo_choice only(const struct dp_algo_choices *choices)
{
    struct dp_algo_choice choice = {NULL, NULL, 0}, other;
    size_t at = 0;

    assert_true(dp_algo_choices_next(choices, &at, &choice));
    assert_false(dp_algo_choices_next(choices, &at, &other));
    return choice;
}

/* A table in which this use is known to be computed by `code`. */
static struct dp_algo_choices *known(unsigned use, const char *code)
{
    struct dp_algo_choices *measured = table(), *choices = table();
    struct dp_algo_choice choice;

    (void)code_of(use, ROWS, measured, NULL);
    choice = only(measured);
    choice.value = code;
    OK(dp_algo_choices_add(choices, &choice));
    dp_algo_choices_destroy(measured);
    return choices;
}

/* ---- tests ---- */

static const struct dp_window *const windows[] = {&pointwise, &three, &many};

static void each_window_and_use(void (*check)(unsigned use))
{
    for (size_t i = 0; i < DP_COUNT(windows) * DP_COUNT(uses); i++) {
        window = windows[i / DP_COUNT(uses)];
        check(uses[i % DP_COUNT(uses)]);
    }
}

static void check_fastest(unsigned use)
{
    struct dp_algo_choices *choices = table();
    const struct names names = names_of(use);
    const char *code = code_of(use, ROWS, choices, NULL);
    const struct dp_algo_choice choice = only(choices);
    bool found = false;

    assert_string_equal(choice.value, code);
    assert_true(choice.ms > 0);
    for (int i = 0; i < names.count; i++) {
        found = found || strcmp(names.text[i], code) == 0;
    }
    assert_true(found);
    dp_algo_choices_destroy(choices);
}

static void what_is_fastest_is_noted_and_computes(void **state)
{
    (void)state;
    each_window_and_use(check_fastest);
}

static void check_known(unsigned use)
{
    const struct names names = names_of(use);
    struct result preferred = compute(use, ROWS, NULL, NULL);

    for (int i = 0; i < names.count; i++) {
        struct dp_algo_choices *choices = known(use, names.text[i]);
        struct result result = compute(use, ROWS, choices, NULL);
        assert_string_equal(code_in(result.path), names.text[i]);
        assert_near(result.values, preferred.values, result.count, 1e-3, 1e-4);
        assert_true((result.spared > 0) == (strcmp(names.text[i], DP_PREPARED_WINOGRAD) == 0));
        assert_int_equal(dp_algo_choices_count(choices).fresh, 0);
        dp_free(result.values);
        dp_algo_choices_destroy(choices);
    }
    assert_true(names.count > 1);
    dp_free(preferred.values);
}

static void a_known_choice_is_taken_and_computes_the_same(void **state)
{
    (void)state;
    each_window_and_use(check_known);
}

/* Only of its type, and without a bias. */
static void check_tiles(enum dp_prepared_own own, unsigned use, bool bias)
{
    const unsigned whole = use | (bias ? (unsigned)DP_CONV_BIAS : 0u);
    const enum dp_type other = type == DP_TYPE_F32 ? DP_TYPE_BF16 : DP_TYPE_F32;
    const struct dp_prepared_key key = {*window, ROWS, use, other};
    const char *code = dp_prepared_own_code(own);
    struct dp_algo_choices *choices = known(whole, code);
    struct result preferred = compute(whole, ROWS, NULL, NULL);
    struct result result = compute(whole, ROWS, choices, NULL);

    assert_true(strncmp(preferred.path, "oneDNN ", 7) == 0);
    assert_string_equal(code_in(result.path), bias ? code_in(preferred.path) : code);
    assert_int_equal(strncmp(result.path, "own ", 4) == 0, !bias);
    assert_near(result.values, preferred.values, result.count, 1e-3,
                type == DP_TYPE_BF16 ? 1.0 / 128 : 1e-4);
    assert_false(dp_prepared_has_own(own, &key));
    dp_free(result.values);
    dp_free(preferred.values);
    dp_algo_choices_destroy(choices);
}

static void tiles_are_of_their_type_and_without_a_bias(void **state)
{
    static const struct {
        const struct dp_window *window;
        enum dp_prepared_own own;
        enum dp_type type;
    } ways[] = {{&pointwise, DP_OWN_POINTWISE, DP_TYPE_F32},
                {&pointwise, DP_OWN_CONV_SPLIT, DP_TYPE_F32},
                {&many, DP_OWN_CONV_SPLIT, DP_TYPE_F32},
                {&many, DP_OWN_CONV, DP_TYPE_BF16},
                {&pointwise, DP_OWN_CONV, DP_TYPE_BF16}};
    (void)state;

    if (!dp_amx_has()) {
        skip();
    }
    for (size_t i = 0; i < DP_COUNT(ways) * DP_COUNT(uses); i++) {
        const unsigned use = uses[i % DP_COUNT(uses)];
        const enum dp_prepared_own own = ways[i / DP_COUNT(uses)].own;
        window = ways[i / DP_COUNT(uses)].window;
        type = ways[i / DP_COUNT(uses)].type;
        check_tiles(own, use, false);
        if (use != DP_CONV_BACKWARD_DATA) {
            check_tiles(own, use, true);
        }
    }
}

static void without_measuring_the_preferred_one_computes(void **state)
{
    struct dp_algo_choices *frozen = table(), *unknown = known(DP_CONV_FORWARD, "no such code");
    char preferred[2 * DP_OP_PATH_BYTES];
    (void)state;

    (void)snprintf(preferred, sizeof(preferred), "%s", code_of(DP_CONV_FORWARD, ROWS, NULL, NULL));
    dp_algo_choices_freeze(frozen);
    assert_string_equal(code_of(DP_CONV_FORWARD, ROWS, frozen, NULL), preferred);
    assert_int_equal(dp_algo_choices_count(frozen).used, 0);
    assert_string_equal(code_of(DP_CONV_FORWARD, ROWS, unknown, NULL), preferred);
    dp_algo_choices_destroy(unknown);
    dp_algo_choices_destroy(frozen);
}

static void a_rank_that_follows_notes_the_preferred_one(void **state)
{
    struct dp_algo_choices *choices = table();
    struct dp_algo_choice choice;
    char preferred[2 * DP_OP_PATH_BYTES];
    (void)state;

    (void)snprintf(preferred, sizeof(preferred), "%s", code_of(DP_CONV_FORWARD, ROWS, NULL, NULL));
    dp_algo_choices_follow(choices);
    assert_string_equal(code_of(DP_CONV_FORWARD, ROWS, choices, NULL), preferred);
    choice = only(choices);
    assert_string_equal(choice.value, preferred);
    assert_true(choice.ms == 0);
    dp_algo_choices_destroy(choices);
}

static void check_follows(unsigned use, bool measures)
{
    struct dp_algo_choices *choices = table();
    struct dp_algo_choice choice;
    const char *code;

    dp_algo_choices_follow(choices);
    code = code_of(use, ROWS, choices, NULL);
    choice = only(choices);
    assert_string_equal(choice.value, code);
    assert_int_equal(choice.ms > 0, measures);
    dp_algo_choices_destroy(choices);
}

static void a_rank_that_follows_measures_where_there_may_be_tiles(void **state)
{
    (void)state;

    for (size_t i = 0; i < DP_COUNT(windows) * DP_COUNT(uses); i++) {
        window = windows[i / DP_COUNT(uses)];
        check_follows(uses[i % DP_COUNT(uses)], window != &three && dp_amx_has());
    }
    window = &pointwise;
    check_follows(DP_CONV_FORWARD | DP_CONV_BIAS, false);
}

static void row_counts_up_to_a_power_of_two_share_a_choice(void **state)
{
    static const struct {
        size_t rows;
        int used;
    } steps[] = {{3, 1}, {4, 1}, {5, 2}, {8, 2}, {1, 3}};
    struct dp_algo_choices *choices = table();
    (void)state;

    for (size_t i = 0; i < DP_COUNT(steps); i++) {
        (void)code_of(DP_CONV_FORWARD, steps[i].rows, choices, NULL);
        assert_int_equal(dp_algo_choices_count(choices).used, steps[i].used);
    }
    dp_algo_choices_destroy(choices);
}

/* As ranks do that have agreed on what another one measured. */
static void what_was_forgotten_is_prepared_by_the_new_choice(void **state)
{
    const struct names names = names_of(DP_CONV_FORWARD);
    struct dp_stream *s = stream_on("cpu", 1);
    (void)state;

    for (int i = 0; i < names.count; i++) {
        struct dp_algo_choices *choices = known(DP_CONV_FORWARD, names.text[i]);
        OK(s->device->forget(s));
        assert_string_equal(code_of(DP_CONV_FORWARD, ROWS, choices, s), names.text[i]);
        dp_algo_choices_destroy(choices);
    }
    stream_close(s);
}

static void what_is_measured_with_is_not_all_the_same(void **state)
{
    enum { COUNT = 1024 };
    uint16_t numbers[COUNT];
    int changes = 0, negative = 0;
    (void)state;

    dp_onednn_fill(numbers, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const float value = dp_float_of((uint32_t)numbers[i] << 16);
        assert_true(fabsf(value) >= 0.5f && fabsf(value) < 1.0f);
        changes += i > 0 && numbers[i] != numbers[i - 1] ? 1 : 0;
        negative += value < 0 ? 1 : 0;
    }
    assert_true(changes > COUNT * 9 / 10);
    assert_in_range(negative, COUNT / 3, COUNT * 2 / 3);
}

static int start(void **state)
{
    (void)state;
    window = &three;
    type = DP_TYPE_F32;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_measured_with_is_not_all_the_same, start),
        cmocka_unit_test_setup(what_is_fastest_is_noted_and_computes, start),
        cmocka_unit_test_setup(a_known_choice_is_taken_and_computes_the_same, start),
        cmocka_unit_test_setup(tiles_are_of_their_type_and_without_a_bias, start),
        cmocka_unit_test_setup(without_measuring_the_preferred_one_computes, start),
        cmocka_unit_test_setup(a_rank_that_follows_notes_the_preferred_one, start),
        cmocka_unit_test_setup(a_rank_that_follows_measures_where_there_may_be_tiles, start),
        cmocka_unit_test_setup(row_counts_up_to_a_power_of_two_share_a_choice, start),
        cmocka_unit_test_setup(what_was_forgotten_is_prepared_by_the_new_choice, start),
    };

    return cmocka_run_group_tests_name("choose_onednn", tests, NULL, NULL);
}

#else

int main(void)
{
    print_message("skipped: built without oneDNN\n");
    return 77;
}

#endif
