/* test_class_names.c - names of classes are kept as they are, and others are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/run/dataset/class_names.h"

static const char *const animals[] = {"cat", "dog", "fox"};

/* The state that a run with these names writes. */
static struct dp_json *state_of(const char *const *names, int count)
{
    struct dp_class_names kept;
    struct dp_json *state = dp_json_create();

    assert_int_equal(dp_class_names_copy(&kept, names, count), DP_OK);
    assert_int_equal(dp_class_names_write(&kept, state), DP_OK);
    dp_class_names_release(&kept);
    return state;
}

/* What is said about going on from it with these names; NULL: it is taken. */
static const char *refusal(const struct dp_json *state, const char *const *names, int count)
{
    static struct dp_log_capture capture;
    struct dp_class_names now;
    dp_status status;

    assert_int_equal(dp_class_names_copy(&now, names, count), DP_OK);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    status = dp_class_names_check(&now, state, "step-7");
    dp_log_capture_end(&capture, DP_LOG_DROP);
    dp_class_names_release(&now);
    assert_true(status == DP_OK || status == DP_ERR_CONFIG);
    return status == DP_OK ? NULL : dp_log_captured(&capture);
}

static void the_same_names_are_taken(void **state)
{
    struct dp_json *then = state_of(animals, 3);
    (void)state;

    assert_int_equal(dp_json_length(dp_json_get(then, "classes")), 3);
    assert_null(refusal(then, animals, 3));
    dp_json_destroy(then);
}

static void the_first_name_that_differs_is_named(void **state)
{
    static const char *const others[] = {"cat", "dog\"", "fox"};
    static const char *const more[] = {"cat", "dog", "fox", "owl"};
    struct dp_json *then = state_of(animals, 3);
    (void)state;

    assert_non_null(strstr(refusal(then, others, 3), "class 1 (counted from 0) was 'dog', and is "
                                                     "'dog\"' now"));
    assert_non_null(strstr(refusal(then, more, 4), "3 classes, and the data set has 4"));
    assert_non_null(strstr(refusal(then, more, 4), "was none, and is 'owl'"));
    assert_non_null(strstr(refusal(then, animals, 2), "was 'fox', and is none now"));
    dp_json_destroy(then);
}

static void what_has_no_names_is_taken(void **state)
{
    struct dp_json *then = state_of(animals, 3), *nameless = state_of(NULL, 10);
    (void)state;

    assert_null(dp_json_get(nameless, "classes"));
    assert_null(refusal(then, NULL, 3));
    assert_null(refusal(nameless, animals, 3));
    assert_null(refusal(NULL, animals, 3));
    dp_json_destroy(then);
    dp_json_destroy(nameless);
}

/* A damaged state is no reason to crash. */
static void a_state_of_another_form_is_refused(void **state)
{
    static const char text[] = "{\"classes\": [\"cat\", 7, \"fox\"]}";
    struct dp_json *then = NULL;
    (void)state;

    assert_int_equal(dp_json_parse(text, strlen(text), "state.json", &then), DP_OK);
    assert_non_null(strstr(refusal(then, animals, 3), "was none, and is 'dog' now"));
    dp_json_destroy(then);
}

static void more_text_than_a_checkpoint_takes_is_refused(void **state)
{
    static char longest[3 << 20];
    const char *const names[] = {longest};
    struct dp_class_names kept;
    (void)state;

    memset(longest, 'a', sizeof(longest) - 1);
    assert_int_equal(dp_class_names_copy(&kept, names, 1), DP_ERR_DATA);
    assert_null(kept.at);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_class_names_copy(&kept, animals, 3), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_names_are_taken),
        cmocka_unit_test(the_first_name_that_differs_is_named),
        cmocka_unit_test(what_has_no_names_is_taken),
        cmocka_unit_test(a_state_of_another_form_is_refused),
        cmocka_unit_test(more_text_than_a_checkpoint_takes_is_refused),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
