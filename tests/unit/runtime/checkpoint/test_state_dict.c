/* test_state_dict.c - the list of what a resumed run needs: scalars are read as they were
 * written. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/checkpoint/state_dict.h"

struct all {
    float weights[3];
    uint32_t small;
    uint64_t large;
    int64_t whole;
    double real;
    bool flag;
};

static struct dp_state_dict list_of(struct all *all)
{
    struct dp_state_dict list = {.count = 0};

    dp_state_dict_add_array(&list, "weights", all->weights, 3, DP_STATE_WEIGHTS, DP_SPREAD_SAME);
    dp_state_dict_add_u32(&list, "small", &all->small);
    dp_state_dict_add_u64(&list, "large", &all->large);
    dp_state_dict_add_i64(&list, "whole", &all->whole);
    dp_state_dict_add_f64(&list, "real", &all->real);
    dp_state_dict_add_flag(&list, "flag", &all->flag);
    return list;
}

/* Through text, as a file does. */
static dp_status carry(const struct all *from, struct all *to)
{
    struct all source = *from;
    const struct dp_state_dict out = list_of(&source), in = list_of(to);
    struct dp_json *object = dp_json_create(), *again = NULL;
    char *text = NULL;
    dp_status status;

    assert_int_equal(dp_state_dict_write(&out, object), DP_OK);
    assert_int_equal(dp_json_length(object), 5); /* no array among them */
    assert_int_equal(dp_json_dump(object, 0, DP_JSON_EXACT, &text), DP_OK);
    assert_int_equal(dp_json_parse(text, strlen(text), "state.json", &again), DP_OK);
    status = dp_state_dict_read(&in, again, "state.json");
    dp_free(text);
    dp_json_destroy(again);
    dp_json_destroy(object);
    return status;
}

static void scalars_are_read_as_they_were_written(void **state)
{
    static const double reals[] = {
        0.1, -0.0, 1e300, DBL_TRUE_MIN, DBL_MAX, (double)INFINITY, 1.0 / 3, -(double)INFINITY};
    (void)state;

    for (size_t i = 0; i < sizeof(reals) / sizeof(reals[0]); i++) {
        const struct all from = {.small = UINT32_MAX,
                                 .large = UINT64_MAX - i,
                                 .whole = INT64_MIN + (int64_t)i,
                                 .real = reals[i],
                                 .flag = i % 2 == 0};
        struct all to = {.weights = {1, 2, 3}, .real = 7, .flag = i % 2 != 0};

        assert_int_equal(carry(&from, &to), DP_OK);
        assert_memory_equal(&to.real, &from.real, sizeof(double));
        assert_true(to.small == from.small && to.large == from.large && to.whole == from.whole &&
                    to.flag == from.flag);
        assert_true(to.weights[0] == 1 && to.weights[2] == 3);
    }
}

static void nan_stays_nan(void **state)
{
    const struct all from = {.real = (double)NAN};
    struct all to = {.real = 1};
    (void)state;

    assert_int_equal(carry(&from, &to), DP_OK);
    assert_true(isnan(to.real));
}

static void a_missing_row_keeps_its_value(void **state)
{
    struct all all = {.small = 5, .real = 2.5, .flag = true};
    const struct dp_state_dict list = list_of(&all);
    struct dp_json *object = dp_json_create();
    (void)state;

    assert_int_equal(dp_json_set_int(object, "small", 6), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_state_dict_read(&list, object, "state.json"), DP_OK);
    dp_log_set_level(DP_LOG_INFO);
    assert_true(all.small == 6 && all.real == 2.5 && all.flag);
    dp_json_destroy(object);
}

static void a_row_of_another_kind_is_refused(void **state)
{
    static const char *const texts[] = {
        "{\"small\": -1}", "{\"small\": 4294967296}", "{\"large\": 1.5}",     "{\"whole\": \"7\"}",
        "{\"real\": 1}",   "{\"real\": \"\"}",        "{\"real\": \"0x1q\"}", "{\"flag\": 1}"};
    struct all all = {.small = 5};
    const struct dp_state_dict list = list_of(&all);
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct dp_json *object = NULL;

        assert_int_equal(dp_json_parse(texts[i], strlen(texts[i]), "text", &object), DP_OK);
        assert_int_equal(dp_state_dict_read(&list, object, "state.json"), DP_ERR_DATA);
        dp_json_destroy(object);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void rows_are_found_by_name(void **state)
{
    struct all all = {.small = 5};
    const struct dp_state_dict list = list_of(&all);
    (void)state;

    assert_ptr_equal(dp_state_dict_find(&list, "whole")->data, &all.whole);
    assert_null(dp_state_dict_find(&list, "whol"));
    assert_true(dp_state_is_array(dp_state_dict_find(&list, "weights")));
    assert_false(dp_state_is_array(dp_state_dict_find(&list, "real")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_are_read_as_they_were_written),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(a_missing_row_keeps_its_value),
        cmocka_unit_test(a_row_of_another_kind_is_refused),
        cmocka_unit_test(rows_are_found_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
