/*
 * test_choose_fastest.c - of the implementations of a convolution the fastest is chosen, by a clock
 * of this test's: what each of them takes is made up here. oneDNN does not compute.
 */
#include <stdbool.h>

#include "tests/support/arrays.h"

#if DP_HAVE_ONEDNN

#include <time.h>

#include "base/trace.h"
#include "kernels/cpu/onednn/choose_onednn.h"
#include "kernels/cpu/onednn/conv_desc_onednn.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/op_path.h"

enum { SIDE = 12, CHANNELS = 16, TILES = 32, ROWS = 4, MOST_NAMES = 16 };

static const struct dp_window seven = {.in_h = SIDE,
                                       .in_w = SIDE,
                                       .in_c = CHANNELS,
                                       .out_h = SIDE,
                                       .out_w = SIDE,
                                       .out_c = CHANNELS,
                                       .kernel_h = 7,
                                       .kernel_w = 7,
                                       .stride = 1,
                                       .padding = 3}; /* none of ours (own_conv.c) */
static const struct dp_window pointwise = {.in_h = SIDE,
                                           .in_w = SIDE,
                                           .in_c = TILES,
                                           .out_h = SIDE,
                                           .out_w = SIDE,
                                           .out_c = TILES,
                                           .kernel_h = 1,
                                           .kernel_w = 1,
                                           .stride = 1};
static const struct dp_window three = {.in_h = SIDE,
                                       .in_w = SIDE,
                                       .in_c = TILES,
                                       .out_h = SIDE,
                                       .out_w = SIDE,
                                       .out_c = TILES,
                                       .kernel_h = 3,
                                       .kernel_w = 3,
                                       .stride = 1,
                                       .padding = 1};

/* What is tested. */
static const struct dp_window *window;
static enum dp_type type;
static unsigned use;

/* ---- in the place of the library's and the system's ---- */

static struct {
    int count, owns;
    char name[MOST_NAMES][64]; /* of implementations: the preferred one, `owns` of ours, others */
    double first_ms, ms[MOST_NAMES];
    int runs[MOST_NAMES];
    int quick[MOST_NAMES]; /* the run, not the first, that takes 0.1 ms; 0: none */
    double now_ms;
    char path[DP_OP_PATH_BYTES]; /* of the stream: what has run since the clock was read */
} fake;

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                     int nargs, const dnnl_exec_arg_t *args)
{
    (void)primitive;
    (void)stream;
    (void)nargs;
    (void)args;
    return dnnl_success;
}

/* Time that passes while one of them runs: "oneDNN CODE" or "own CODE". */
static void pass_time(void)
{
    const char *code = strchr(fake.path, ' ');

    for (int i = 0; i < fake.count && code != NULL; i++) {
        if (strcmp(fake.name[i], code + 1) == 0) {
            const int run = fake.runs[i]++;
            fake.now_ms += run == 0 ? fake.first_ms : run == fake.quick[i] ? 0.1 : fake.ms[i];
        }
    }
    fake.path[0] = '\0';
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_THREAD_CPUTIME_ID) {
        return timespec_get(time, TIME_UTC) == TIME_UTC ? 0 : -1;
    }
    pass_time();
    time->tv_sec = (time_t)(fake.now_ms / 1e3);
    time->tv_nsec = (long)((fake.now_ms - (double)time->tv_sec * 1e3) * 1e6);
    return 0;
}

/* ---- what there is ---- */

static void add_code(const char *code)
{
    (void)snprintf(fake.name[fake.count++], sizeof(fake.name[0]), "%s", code);
}

static bool add_name(void *context, const_dnnl_primitive_desc_t desc)
{
    const char *name = dp_onednn_desc_code(desc);
    (void)context;

    if (strncmp(name, "ref", 3) != 0 && strcmp(name, fake.name[0]) != 0) {
        add_code(name);
    }
    return fake.count == MOST_NAMES;
}

/* Whether it can compute what is tested. */
static bool has_own(enum dp_prepared_own own)
{
    const struct dp_prepared_key key = {*window, ROWS, use, type};

    return dp_prepared_has_own(own, &key);
}

static void find_names(void)
{
    struct dp_onednn_conv conv = {NULL, window, ROWS, use, type};
    dnnl_primitive_desc_t preferred = NULL;

    memset(&fake, 0, sizeof(fake));
    assert_int_equal(dnnl_engine_create(&conv.engine, dnnl_cpu, 0), dnnl_success);
    OK(dp_onednn_conv_desc(&conv, &preferred));
    add_code(dp_onednn_desc_code(preferred));
    (void)dnnl_primitive_desc_destroy(preferred);
    for (int own = 0; own < DP_PREPARED_OWNS; own++) {
        if (has_own(own)) {
            add_code(dp_prepared_own_code(own));
            fake.owns++;
        }
    }
    OK(dp_onednn_each_conv(&conv, add_name, NULL));
    (void)dnnl_engine_destroy(conv.engine);
}

/* ---- tests ---- */

/* What is chosen where the first run of each takes `first_ms`; *ms: what it is said to take. */
static const char *chosen(double first_ms, double *ms)
{
    static char code[64];
    struct dp_algo_choices *choices = NULL;
    struct dp_stream *s = stream_on("cpu", 1);
    struct dp_algo_choice choice;
    size_t at = 0;

    memset(fake.runs, 0, sizeof(fake.runs));
    fake.first_ms = first_ms;
    OK(dp_algo_choices_create("machine", &choices));
    s->algo_choices = choices;
    s->path = fake.path;
    dp_stream_set_type(s, type);
    OK(s->ops->conv_prepare(s, window, ROWS, use));
    assert_true(dp_algo_choices_next(choices, &at, &choice));
    assert_null(strstr(choice.name, "bias")); /* it has none */
    (void)snprintf(code, sizeof(code), "%s", choice.value);
    *ms = choice.ms;
    stream_close(s);
    dp_algo_choices_destroy(choices);
    return code;
}

/* Whether the first run, of which memory is new, takes longer or less than later ones. */
static void the_fastest_is_chosen_whatever_first_runs_take(void **state)
{
    static const double first_ms[] = {20, 0.01};
    (void)state;

    find_names();
    assert_true(fake.count > 1);
    for (int fastest = 0; fastest < fake.count; fastest++) {
        for (int k = 0; k < 2; k++) {
            double ms;
            for (int i = 0; i < fake.count; i++) {
                fake.ms[i] = i == fastest ? 1 : 1.2 + 0.01 * i;
            }
            assert_string_equal(chosen(first_ms[k], &ms), fake.name[fastest]);
            assert_true(fabs(ms - 1) < 1e-4);
        }
    }
}

/* A twentieth is within the noise of measuring. */
static void the_preferred_one_stays_unless_another_is_clearly_faster(void **state)
{
    double ms;
    (void)state;

    find_names();
    for (int i = 0; i < fake.count; i++) {
        fake.ms[i] = 1;
    }
    assert_string_equal(chosen(1, &ms), fake.name[0]);
    fake.ms[fake.count - 1] = 0.96;
    assert_string_equal(chosen(1, &ms), fake.name[0]);
    fake.ms[fake.count - 1] = 0.94;
    assert_string_equal(chosen(1, &ms), fake.name[fake.count - 1]);
}

/* Prepares with these times: of the preferred one, and of others. */
static void measure(double preferred_ms, double others_ms)
{
    double ms;

    find_names();
    fake.now_ms = 1000; /* of the thread, before */
    for (int i = 0; i < fake.count; i++) {
        fake.ms[i] = i == 0 ? preferred_ms : others_ms;
    }
    (void)chosen(0.01, &ms);
}

/* A time when nobody else used what a core shares says little of later ones. */
static void one_fast_round_is_not_enough(void **state)
{
    double ms;
    int last;
    (void)state;

    find_names();
    last = fake.count - 1;
    for (int i = 0; i < fake.count; i++) {
        fake.ms[i] = i == 0 ? 1 : 1.2;
    }
    fake.quick[last] = 2;
    assert_string_equal(chosen(1, &ms), fake.name[0]);
    assert_true(fabs(ms - 1) < 1e-4);
    fake.ms[last] = 0.8;
    assert_string_equal(chosen(1, &ms), fake.name[last]);
    assert_true(fabs(ms - 0.8) < 1e-4);
}

/* Once for new memory, then in nine rounds; far ones in three of these. */
static void each_is_measured_as_often_as_it_may_win(void **state)
{
    (void)state;

    measure(0.5, 0.5);
    for (int i = 0; i < fake.count; i++) {
        assert_int_equal(fake.runs[i], 1 + 9);
    }
    measure(0.5, 1);
    for (int i = 0; i < fake.count; i++) {
        assert_int_equal(fake.runs[i], i == 0 ? 1 + 9 : 1 + 3);
    }
    measure(1, 0.5); /* the preferred one always: others are compared with it */
    for (int i = 0; i < fake.count; i++) {
        assert_int_equal(fake.runs[i], 1 + 9);
    }
    measure(30, 30); /* long enough after three */
    for (int i = 0; i < fake.count; i++) {
        assert_int_equal(fake.runs[i], 1 + 3);
    }
}

/* Whether this one of ours is chosen where it takes so long, the preferred one 1 ms, others of
 * oneDNN's another time, and of ours 2 ms. What is noted is the time that it took. */
static bool is_chosen(enum dp_prepared_own own, double own_ms, double theirs_ms)
{
    const char *code = dp_prepared_own_code(own);
    double ms;
    bool is;

    find_names();
    for (int i = 0; i < fake.count; i++) {
        fake.ms[i] = i == 0                            ? 1
                     : strcmp(fake.name[i], code) == 0 ? own_ms
                     : i <= fake.owns                  ? 2
                                                       : theirs_ms;
    }
    is = strcmp(chosen(1, &ms), code) == 0;
    assert_true(!is || fabs(ms - own_ms) < 1e-4);
    return is;
}

static const struct {
    const struct dp_window *window;
    enum dp_type type;
    unsigned use;
    enum dp_prepared_own own;
    double share; /* of its time that counts */
} ours[] = {
    {&pointwise, DP_TYPE_F32, DP_CONV_FORWARD, DP_OWN_POINTWISE, 0.9},
    {&pointwise, DP_TYPE_F32, DP_CONV_BACKWARD_WEIGHTS, DP_OWN_CONV_SPLIT, 0.9},
    {&three, DP_TYPE_F32, DP_CONV_BACKWARD_DATA, DP_OWN_CONV_SPLIT, 0.9},
    {&three, DP_TYPE_F32, DP_CONV_FORWARD, DP_OWN_WINOGRAD, 1},
    {&three, DP_TYPE_BF16, DP_CONV_FORWARD, DP_OWN_CONV, 1},
    {&three, DP_TYPE_BF16, DP_CONV_BACKWARD_WEIGHTS, DP_OWN_AMX, 1},
};

/* Others use vectors, in float32, and no tiles that somebody else may use. */
static void nine_tenths_of_the_time_of_float32_by_tiles_count(void **state)
{
    (void)state;

    for (size_t i = 0; i < DP_COUNT(ours); i++) {
        window = ours[i].window;
        type = ours[i].type;
        use = ours[i].use;
        if (has_own(ours[i].own)) {
            assert_true(is_chosen(ours[i].own, 0.94 / ours[i].share, 2));
            assert_false(is_chosen(ours[i].own, 0.96 / ours[i].share, 2));
            assert_true(is_chosen(ours[i].own, 0.79 / ours[i].share, 0.8));
        }
    }
}

static void several_threads_are_measured_by_the_time_that_passes(void **state)
{
    struct dp_stream *s = stream_on("cpu", 2);
    const uint64_t before = dp_now_ns();
    const double ms = dp_onednn_now_ms(s);
    (void)state;

    assert_true(ms >= (double)before * 1e-6 && ms <= (double)dp_now_ns() * 1e-6);
    stream_close(s);
}

static void the_power_of_two_is_the_next_one(void **state)
{
    static const size_t powers[] = {1, 1, 2, 4, 4, 8, 8, 8, 8, 16};
    (void)state;

    for (size_t rows = 0; rows < DP_COUNT(powers); rows++) {
        assert_int_equal(dp_onednn_power_of_two_from(rows), powers[rows]);
    }
}

static int start(void **state)
{
    (void)state;
    window = &seven;
    type = DP_TYPE_F32;
    use = DP_CONV_FORWARD;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_fastest_is_chosen_whatever_first_runs_take, start),
        cmocka_unit_test_setup(the_preferred_one_stays_unless_another_is_clearly_faster, start),
        cmocka_unit_test_setup(one_fast_round_is_not_enough, start),
        cmocka_unit_test_setup(each_is_measured_as_often_as_it_may_win, start),
        cmocka_unit_test(nine_tenths_of_the_time_of_float32_by_tiles_count),
        cmocka_unit_test(several_threads_are_measured_by_the_time_that_passes),
        cmocka_unit_test(the_power_of_two_is_the_next_one),
    };

    return cmocka_run_group_tests_name("choose_fastest", tests, NULL, NULL);
}

#else

int main(void)
{
    print_message("skipped: built without oneDNN\n");
    return 77;
}

#endif
