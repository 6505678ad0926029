/*
 * test_dense_choice.c - which of oneDNN's sgemm and ours computes the products of a dense layer in
 * float32: a known choice, or the faster one by a clock of this test's.
 */
#include <stdbool.h>

#include "tests/support/arrays.h"

#if DP_HAVE_ONEDNN

#include <time.h>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/onednn/prepared_onednn.h"
#include "kernels/op_path.h"

enum { ROWS = 21, IN = 40, OUT = 50, BEGIN = 17 /* of the second part of the columns */ };

static const unsigned uses[] = {DP_DENSE_FORWARD, DP_DENSE_BACKWARD_DATA,
                                DP_DENSE_BACKWARD_WEIGHTS};
static const char sgemm_path[] = "oneDNN sgemm", own_path[] = "own " DP_PREPARED_GEMM;

/* ---- in the place of the system's ---- */

/* The clock of a thread's own time. Two readings are TICK_MS apart, and `later_ms` more each second
 * time that something is measured: sgemm is measured first. */
static const double TICK_MS = 1.0;
static double now_ms, later_ms;
static int readings;

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): theirs begin with __. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_THREAD_CPUTIME_ID) {
        return timespec_get(time, TIME_UTC) == TIME_UTC ? 0 : -1;
    }
    now_ms += TICK_MS + (readings++ % 4 == 1 ? later_ms : 0.0);
    time->tv_sec = (time_t)(now_ms / 1e3);
    time->tv_nsec = (long)((now_ms - (double)time->tv_sec * 1e3) * 1e6);
    return 0;
}

/* ---- what computes ---- */

static bool has_ours(void)
{
    const struct dp_matmul product = {.order_a = DP_PLAIN, .order_b = DP_PLAIN};

    return dp_gemm_can(&product);
}

/* Prepares one use, and returns the choice that the table has then. */
static struct dp_algo_choice prepare(struct dp_stream *s, unsigned use)
{
    struct dp_algo_choice choice = {NULL, NULL, 0}, other;
    size_t at = 0;

    OK(s->ops->dense_prepare(s, ROWS, IN, OUT, use));
    assert_true(dp_algo_choices_next(s->algo_choices, &at, &choice));
    assert_false(dp_algo_choices_next(s->algo_choices, &at, &other));
    return choice;
}

/* What a use computes from the same numbers each time; owned by the caller. Forward computes the
 * columns in two parts, the second one first. */
static float *compute(struct dp_stream *s, unsigned use)
{
    float *x = uniform((size_t)ROWS * IN, 1, -1, 1), *w = uniform((size_t)IN * OUT, 2, -1, 1);
    float *y = uniform((size_t)ROWS * OUT, 3, -1, 1), *b = uniform(OUT, 4, -1, 1);
    const struct dp_range parts[] = {{BEGIN, OUT - BEGIN}, {0, BEGIN}};

    for (int i = 0; i < 2 && use == DP_DENSE_FORWARD; i++) {
        OK(s->ops->dense_forward_part(s, y, x, w, b, ROWS, IN, OUT, parts[i], DP_ACT_RELU));
    }
    if (use == DP_DENSE_BACKWARD_DATA) {
        OK(s->ops->dense_backward_data(s, x, y, w, ROWS, IN, OUT));
    } else if (use == DP_DENSE_BACKWARD_WEIGHTS) {
        OK(s->ops->dense_backward_weights(s, w, y, x, ROWS, IN, OUT, 1.0f));
    }
    dp_free(b);
    dp_free(use == DP_DENSE_FORWARD ? x : y);
    dp_free(use == DP_DENSE_BACKWARD_WEIGHTS ? x : w);
    return use == DP_DENSE_FORWARD ? y : use == DP_DENSE_BACKWARD_DATA ? x : w;
}

static size_t result_count(unsigned use)
{
    return use == DP_DENSE_FORWARD         ? (size_t)ROWS * OUT
           : use == DP_DENSE_BACKWARD_DATA ? (size_t)ROWS * IN
                                           : (size_t)IN * OUT;
}

static void check_computes(struct dp_stream *s, unsigned use, const char *path)
{
    char taken[DP_OP_PATH_BYTES] = "";
    struct dp_stream *other = stream_on("cpu", 1); /* nothing is prepared: sgemm computes */
    float *values, *expected = compute(other, use);

    stream_close(other);
    s->path = taken;
    values = compute(s, use);
    s->path = NULL;
    assert_string_equal(taken, path);
    assert_near(values, expected, result_count(use), 1e-5, 0);
    dp_free(expected);
    dp_free(values);
}

static struct dp_stream *measuring_stream(struct dp_algo_choices **choices)
{
    struct dp_stream *s = stream_on("cpu", 1);

    OK(dp_algo_choices_create("machine", choices));
    s->algo_choices = *choices;
    return s;
}

/* ---- tests ---- */

/* A twentieth is within the noise of measuring. */
static void ours_computes_where_it_is_clearly_faster(void **state)
{
    static const struct {
        double later_ms;
        const char *name, *path;
    } cases[] = {{0.04, "sgemm", sgemm_path}, {0.08, DP_PREPARED_GEMM, own_path}};
    (void)state;

    for (size_t i = 0; i < DP_COUNT(cases) && has_ours(); i++) {
        for (size_t u = 0; u < DP_COUNT(uses); u++) {
            struct dp_algo_choices *choices;
            struct dp_stream *s = measuring_stream(&choices);
            readings = 0;
            later_ms = cases[i].later_ms * TICK_MS;
            const struct dp_algo_choice choice = prepare(s, uses[u]);
            assert_string_equal(choice.value, cases[i].name);
            assert_true(fabs(choice.ms - TICK_MS - (i == 0 ? later_ms : 0.0)) < 1e-4);
            check_computes(s, uses[u], cases[i].path);
            stream_close(s);
            dp_algo_choices_destroy(choices);
        }
    }
}

static void a_known_choice_is_taken(void **state)
{
    (void)state;

    for (size_t u = 0; u < DP_COUNT(uses) && has_ours(); u++) {
        for (int own = 0; own < 2; own++) {
            struct dp_algo_choices *choices, *known;
            struct dp_stream *s = measuring_stream(&choices);
            struct dp_algo_choice choice = prepare(s, uses[u]);
            choice.value = own != 0 ? DP_PREPARED_GEMM : "sgemm";
            OK(dp_algo_choices_create("machine", &known));
            OK(dp_algo_choices_add(known, &choice));
            stream_close(s);
            s = stream_on("cpu", 1);
            s->algo_choices = known;
            (void)prepare(s, uses[u]);
            check_computes(s, uses[u], own != 0 ? own_path : sgemm_path);
            stream_close(s);
            dp_algo_choices_destroy(known);
            dp_algo_choices_destroy(choices);
        }
    }
}

/* A rank that follows, and one that may not measure. */
static void what_is_not_measured_is_computed_by_sgemm(void **state)
{
    (void)state;

    for (int follows = 0; follows < 2 && has_ours(); follows++) {
        struct dp_algo_choices *choices;
        struct dp_stream *s = measuring_stream(&choices);
        if (follows != 0) {
            dp_algo_choices_follow(choices);
            assert_string_equal(prepare(s, DP_DENSE_FORWARD).value, "sgemm");
        } else {
            dp_algo_choices_freeze(choices);
            OK(s->ops->dense_prepare(s, ROWS, IN, OUT, DP_DENSE_FORWARD));
        }
        check_computes(s, DP_DENSE_FORWARD, sgemm_path);
        stream_close(s);
        dp_algo_choices_destroy(choices);
    }
}

/* Layers that small are not worth measuring; a use that was not prepared is sgemm's, too. */
static void only_what_is_large_and_prepared_is_ours(void **state)
{
    struct dp_algo_choices *choices;
    struct dp_stream *s;
    size_t at = 0;
    struct dp_algo_choice choice;
    (void)state;

    if (!has_ours()) {
        skip();
    }
    s = measuring_stream(&choices);
    OK(s->ops->dense_prepare(s, ROWS, IN, 10, DP_DENSE_FORWARD));
    OK(s->ops->dense_prepare(s, ROWS, 10, OUT, DP_DENSE_FORWARD));
    assert_false(dp_algo_choices_next(choices, &at, &choice));
    readings = 0;
    later_ms = TICK_MS;
    assert_string_equal(prepare(s, DP_DENSE_FORWARD).value, DP_PREPARED_GEMM);
    check_computes(s, DP_DENSE_BACKWARD_DATA, sgemm_path);
    check_computes(s, DP_DENSE_FORWARD, own_path);
    stream_close(s);
    dp_algo_choices_destroy(choices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ours_computes_where_it_is_clearly_faster),
        cmocka_unit_test(a_known_choice_is_taken),
        cmocka_unit_test(what_is_not_measured_is_computed_by_sgemm),
        cmocka_unit_test(only_what_is_large_and_prepared_is_ours),
    };

    return cmocka_run_group_tests_name("dense_choice", tests, NULL, NULL);
}

#else

int main(void)
{
    return 0;
}

#endif
