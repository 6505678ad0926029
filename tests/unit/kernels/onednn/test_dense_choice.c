/*
 * test_dense_choice.c - which of oneDNN's product and ours computes a dense layer, in float32 and,
 * where there are tiles, in bfloat16: a known choice, or the faster one by a clock of this test's.
 */
#include <stdbool.h>

#include "tests/support/arrays.h"

#if DP_HAVE_ONEDNN

#include <time.h>

#include "kernels/cpu/amx/amx.h"
#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/onednn/choose_dense.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/op_path.h"

enum { ROWS = 21, IN = 40, OUT = 50, BEGIN = 17 /* of the second part of the columns */ };

static const unsigned uses[] = {DP_DENSE_FORWARD, DP_DENSE_BACKWARD_DATA,
                                DP_DENSE_BACKWARD_WEIGHTS};

/* A type, and how the names of its ways begin: theirs, then ours. */
struct kind {
    enum dp_type type;
    const char *names[DP_DENSE_WAYS];
};

static const struct kind kinds[] = {
    {DP_TYPE_F32, {"sgemm", DP_PREPARED_GEMM, DP_PREPARED_GEMM_AMX}},
    {DP_TYPE_BF16, {"brg", DP_PREPARED_DENSE_AMX}},
};

/* ---- in the place of the system's ---- */

/* The clock of a thread's own time. Two readings are TICK_MS apart, and `later_ms` more where a way
 * is measured: of `ways`, one after the other, theirs first. */
static const double TICK_MS = 1.0;
static double now_ms, later_ms[DP_DENSE_WAYS];
static int readings, ways = 1;

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_THREAD_CPUTIME_ID) {
        return timespec_get(time, TIME_UTC) == TIME_UTC ? 0 : -1;
    }
    now_ms += TICK_MS + (readings % 2 == 1 ? later_ms[readings / 2 % ways] : 0.0);
    readings++;
    time->tv_sec = (time_t)(now_ms / 1e3);
    time->tv_nsec = (long)((now_ms - (double)time->tv_sec * 1e3) * 1e6);
    return 0;
}

/* ---- what computes ---- */

/* Theirs and ours; 1: this processor cannot compute ours. */
static int ways_of(const struct kind *kind)
{
    const struct dp_matmul product = {.order_a = DP_PLAIN, .order_b = DP_PLAIN};

    return 1 + (kind->type == DP_TYPE_F32 && dp_gemm_can(&product)) + dp_amx_has();
}

static struct dp_stream *stream_of(const struct kind *kind, struct dp_algo_choices *choices)
{
    struct dp_stream *s = stream_on("cpu", 1);

    dp_stream_set_type(s, kind->type);
    s->algo_choices = choices;
    return s;
}

/* Prepares one use, and returns the choice that the table has then. */
static struct dp_algo_choice prepare(struct dp_stream *s, unsigned use)
{
    struct dp_algo_choice choice = {NULL, NULL, 0}, other;
    size_t at = 0;

    OK(s->ops->dense_prepare(s, ROWS, IN, OUT, use | DP_DENSE_BIAS));
    assert_true(dp_algo_choices_next(s->algo_choices, &at, &choice));
    assert_non_null(strstr(choice.name, s->type == DP_TYPE_F32 ? "float32" : "bfloat16"));
    assert_false(dp_algo_choices_next(s->algo_choices, &at, &other));
    return choice;
}

/* Numbers of the stream's type, and float32 of such. */
static void *numbers(const struct dp_stream *s, size_t count, uint32_t seed)
{
    float *values = uniform(count, seed, -1, 1);

    for (size_t i = 0; i < count && s->type == DP_TYPE_BF16; i++) {
        ((uint16_t *)(void *)values)[i] = dp_bfloat_of(values[i]);
    }
    return values;
}

static float *widened(const struct dp_stream *s, void *values, size_t count)
{
    float *wide = zeros(count);

    for (size_t i = 0; i < count; i++) {
        wide[i] = s->type == DP_TYPE_BF16 ? dp_of_bfloat(((const uint16_t *)values)[i])
                                          : ((const float *)values)[i];
    }
    dp_free(values);
    return wide;
}

static void forward(struct dp_stream *s, void *y, const void *x, const void *w, const void *b)
{
    const struct dp_range parts[] = {{BEGIN, OUT - BEGIN}, {0, BEGIN}};

    if (s->ops->dense_forward_part == NULL) {
        OK(s->ops->dense_forward(s, y, x, w, b, ROWS, IN, OUT, DP_ACT_RELU));
        return;
    }
    for (int i = 0; i < 2; i++) {
        OK(s->ops->dense_forward_part(s, y, x, w, b, ROWS, IN, OUT, parts[i], DP_ACT_RELU));
    }
}

/* What a use computes from the same numbers each time; owned by the caller. Forward computes the
 * columns in two parts, the second one first, where the type has parts. */
static float *compute(struct dp_stream *s, unsigned use)
{
    void *x = numbers(s, (size_t)ROWS * IN, 1), *w = numbers(s, (size_t)IN * OUT, 2);
    void *y = numbers(s, (size_t)ROWS * OUT, 3), *b = numbers(s, OUT, 4);
    float *dw = uniform((size_t)IN * OUT, 5, -1, 1), *result = dw;

    if (use == DP_DENSE_FORWARD) {
        forward(s, y, x, w, b);
        result = widened(s, y, (size_t)ROWS * OUT);
        dp_free(x);
    } else if (use == DP_DENSE_BACKWARD_DATA) {
        OK(s->ops->dense_backward_data(s, x, y, w, ROWS, IN, OUT));
        result = widened(s, x, (size_t)ROWS * IN);
        dp_free(y);
    } else {
        OK(s->ops->dense_backward_weights(s, dw, y, x, ROWS, IN, OUT, 1.0f));
        dp_free(x);
        dp_free(y);
    }
    dp_free(b);
    dp_free(w);
    if (result != dw) {
        dp_free(dw);
    }
    return result;
}

static size_t result_count(unsigned use)
{
    return use == DP_DENSE_FORWARD         ? (size_t)ROWS * OUT
           : use == DP_DENSE_BACKWARD_DATA ? (size_t)ROWS * IN
                                           : (size_t)IN * OUT;
}

/* A bfloat may round to a neighbour: 2^-7 of it. */
static void check_computes(struct dp_stream *s, const struct kind *kind, unsigned use, int way)
{
    const bool narrow = kind->type == DP_TYPE_BF16 && use != DP_DENSE_BACKWARD_WEIGHTS;
    char taken[DP_OP_PATH_BYTES] = "", begin[DP_OP_PATH_BYTES];
    struct dp_stream *other = stream_of(kind, NULL); /* nothing is measured: theirs computes */
    float *values, *expected;

    OK(other->ops->dense_prepare(other, ROWS, IN, OUT, use | DP_DENSE_BIAS));
    expected = compute(other, use);
    stream_close(other);
    s->path = taken;
    values = compute(s, use);
    s->path = NULL;
    (void)snprintf(begin, sizeof(begin), "%s %s%s", way > 0 ? "own" : "oneDNN", kind->names[way],
                   way > 0 ? ";" : "");
    (void)strncat(taken, ";", sizeof(taken) - strlen(taken) - 1);
    assert_memory_equal(taken, begin, strlen(begin));
    assert_near(values, expected, result_count(use), 1e-5, narrow ? 0x1p-7 : 0);
    dp_free(expected);
    dp_free(values);
}

static struct dp_stream *measuring_stream(const struct kind *kind, struct dp_algo_choices **choices)
{
    OK(dp_algo_choices_create("machine", choices));
    return stream_of(kind, *choices);
}

static void check_name(const struct dp_algo_choice *choice, const struct kind *kind, int way)
{
    const char *name = kind->names[way];

    if (way > 0) {
        assert_string_equal(choice->value, name);
    } else {
        assert_memory_equal(choice->value, name, strlen(name));
    }
}

/* ---- tests ---- */

/* Runs a check for each type that has ours, and each use. */
static void each_product(void (*check)(const struct kind *kind, unsigned use))
{
    for (size_t k = 0; k < DP_COUNT(kinds); k++) {
        for (size_t u = 0; u < DP_COUNT(uses) && ways_of(&kinds[k]) > 1; u++) {
            check(&kinds[k], uses[u]);
        }
    }
}

/* Theirs takes a twenty-fifth more than the fastest of ours, or a twelfth; another one of ours
 * still more. */
static void check_faster(const struct kind *kind, unsigned use)
{
    ways = ways_of(kind);
    for (int fastest = 0; fastest < ways; fastest++) {
        struct dp_algo_choices *choices;
        struct dp_stream *s = measuring_stream(kind, &choices);
        readings = 0;
        for (int way = 0; way < ways; way++) {
            later_ms[way] = TICK_MS * (way == 0         ? fastest == 0 ? 0.04 : 0.08
                                       : way == fastest ? 0
                                                        : 0.02 * (fastest > 0));
        }
        const struct dp_algo_choice choice = prepare(s, use);
        check_name(&choice, kind, fastest);
        assert_true(fabs(choice.ms - TICK_MS - later_ms[fastest]) < 1e-4);
        check_computes(s, kind, use, fastest);
        stream_close(s);
        dp_algo_choices_destroy(choices);
    }
}

/* A twentieth is within the noise of measuring. */
static void ours_computes_where_it_is_clearly_faster(void **state)
{
    (void)state;
    each_product(check_faster);
}

static void check_known(const struct kind *kind, unsigned use)
{
    ways = ways_of(kind);
    for (int way = 0; way < ways; way++) {
        struct dp_algo_choices *choices, *known;
        struct dp_stream *s = measuring_stream(kind, &choices);
        struct dp_algo_choice choice = prepare(s, use);
        choice.value = kind->names[way];
        OK(dp_algo_choices_create("machine", &known));
        OK(dp_algo_choices_add(known, &choice));
        stream_close(s);
        s = stream_of(kind, known);
        (void)prepare(s, use);
        check_computes(s, kind, use, way);
        stream_close(s);
        dp_algo_choices_destroy(known);
        dp_algo_choices_destroy(choices);
    }
}

static void a_known_choice_is_taken(void **state)
{
    (void)state;
    each_product(check_known);
}

/* A rank that follows, which measures ways by tiles alone, and one that may not measure. */
static void check_unmeasured(const struct kind *kind, unsigned use)
{
    ways = ways_of(kind);
    for (int follows = 0; follows < 2; follows++) {
        struct dp_algo_choices *choices;
        int way = 0;
        struct dp_stream *s = measuring_stream(kind, &choices);
        if (follows != 0) {
            dp_algo_choices_follow(choices);
            readings = 0;
            later_ms[0] = later_ms[1] = TICK_MS;
            later_ms[2] = 0;
            const struct dp_algo_choice choice = prepare(s, use);
            way = ways > 2 ? 2 : 0; /* tiles, which ranks may share */
            check_name(&choice, kind, way);
            assert_true((choice.ms > 0.0) == (ways > 2));
            assert_int_equal(readings > 0, ways > 2);
        } else {
            dp_algo_choices_freeze(choices);
            OK(s->ops->dense_prepare(s, ROWS, IN, OUT, use | DP_DENSE_BIAS));
        }
        check_computes(s, kind, use, way);
        stream_close(s);
        dp_algo_choices_destroy(choices);
    }
}

static void what_is_not_measured_is_computed_by_theirs(void **state)
{
    (void)state;
    each_product(check_unmeasured);
}

/* Layers that small are not worth measuring. In float32 a use that was not prepared is theirs. */
static void only_what_is_large_and_prepared_is_ours(void **state)
{
    (void)state;

    for (size_t k = 0; k < DP_COUNT(kinds) && ways_of(&kinds[k]) > 1; k++) {
        struct dp_algo_choices *choices;
        struct dp_stream *s = measuring_stream(&kinds[k], &choices);
        struct dp_algo_choice choice;
        size_t at = 0;
        OK(s->ops->dense_prepare(s, ROWS, IN, 10, DP_DENSE_FORWARD));
        OK(s->ops->dense_prepare(s, ROWS, 10, OUT, DP_DENSE_FORWARD));
        assert_false(dp_algo_choices_next(choices, &at, &choice));
        readings = 0;
        ways = ways_of(&kinds[k]);
        later_ms[0] = TICK_MS;
        later_ms[1] = later_ms[2] = 0;
        choice = prepare(s, DP_DENSE_FORWARD);
        check_name(&choice, &kinds[k], 1);
        if (kinds[k].type == DP_TYPE_F32) {
            check_computes(s, &kinds[k], DP_DENSE_BACKWARD_DATA, 0);
        }
        check_computes(s, &kinds[k], DP_DENSE_FORWARD, 1);
        stream_close(s);
        dp_algo_choices_destroy(choices);
    }
}

static struct dp_dense_arrays measured;

static dp_status note_arrays(struct dp_stream *s, const struct dp_dense_key *key,
                             const struct dp_dense_arrays *arrays, int way)
{
    (void)s;
    (void)key;
    (void)way;
    measured = *arrays;
    return DP_OK;
}

/* Whether `a` ends, at this many float32, before `b` begins, or the other way round. */
static bool are_apart(const void *a, size_t a_count, const void *b, size_t b_count)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x + a_count * sizeof(float) <= y || y + b_count * sizeof(float) <= x;
}

static void a_product_is_measured_into_an_array_of_its_own(void **state)
{
    static const struct dp_dense_ways two = {
        .count = 2, .way = {{"a", 0}, {"b", 1000 * sizeof(float)}}, .run = note_arrays};
    enum { X = ROWS * IN, Y = ROWS * OUT, W = IN * OUT };
    static const size_t counts[][3] = {{Y, X, W}, {X, Y, W}, {W, Y, X}}; /* c, a, b */
    struct dp_algo_choices *choices;
    struct dp_stream *s = measuring_stream(&kinds[0], &choices);
    (void)state;

    ways = two.count;
    for (size_t u = 0; u < DP_COUNT(uses); u++) {
        const struct dp_dense_key key = {ROWS, IN, OUT, uses[u], DP_TYPE_F32};
        OK(dp_dense_decide(s, &key, &two));
        const void *const arrays[] = {measured.c, measured.a, measured.b, measured.scratch};
        for (int i = 0; i < 3; i++) {
            for (int k = i + 1; k < 4; k++) {
                assert_true(
                    are_apart(arrays[i], counts[u][i], arrays[k], k < 3 ? counts[u][k] : 1000));
            }
        }
    }
    stream_close(s);
    dp_algo_choices_destroy(choices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ours_computes_where_it_is_clearly_faster),
        cmocka_unit_test(a_known_choice_is_taken),
        cmocka_unit_test(what_is_not_measured_is_computed_by_theirs),
        cmocka_unit_test(only_what_is_large_and_prepared_is_ours),
        cmocka_unit_test(a_product_is_measured_into_an_array_of_its_own),
    };

    for (size_t k = 0; k < DP_COUNT(kinds); k++) {
        if (ways_of(&kinds[k]) == 1) {
            print_message("skipped: %s, which this processor cannot compute\n", kinds[k].names[1]);
        }
    }
    return cmocka_run_group_tests_name("dense_choice", tests, NULL, NULL);
}

#else

int main(void)
{
    return 0;
}

#endif
