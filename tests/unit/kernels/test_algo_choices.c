/* test_algo_choices.c - what was measured is found again, on machines of its kind, and survives
 * being written and read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "kernels/algo_choices.h"
#include "tests/support/stderr_text.h"

static struct dp_algo_choices *table(const char *machine)
{
    struct dp_algo_choices *c = NULL;

    assert_int_equal(dp_algo_choices_create(machine, &c), DP_OK);
    return c;
}

static const char *asked(struct dp_algo_choices *c, const char *key)
{
    const char *value = "unset";

    assert_int_equal(dp_algo_choices_ask(c, key, &value), DP_OK);
    return value;
}

static void note(struct dp_algo_choices *c, const char *key, const char *value)
{
    assert_int_equal(dp_algo_choices_note(c, key, value, 0.0), DP_OK);
}

static dp_status add(struct dp_algo_choices *c, const char *name, const char *value)
{
    const struct dp_algo_choice choice = {name, value, 0.0};

    return dp_algo_choices_add(c, &choice);
}

static bool has(const struct dp_algo_choices *c, const char *name)
{
    const struct dp_algo_choice choice = {name, "", 0.0};

    return !dp_algo_choices_lacks(c, &choice);
}

static dp_status take(struct dp_algo_choices *c, const char *text)
{
    struct dp_json *json = NULL;
    dp_status status;

    assert_int_equal(dp_json_parse(text, strlen(text), "here", &json), DP_OK);
    status = dp_algo_choices_take(c, json, "here");
    dp_json_destroy(json);
    return status;
}

/* Writes one table and reads it into a new one. */
static struct dp_algo_choices *written_and_read(const struct dp_algo_choices *c, bool all,
                                                const char *machine)
{
    struct dp_algo_choices *read = table(machine);
    char *text = NULL;

    assert_int_equal(dp_algo_choices_text(c, all, &text), DP_OK);
    assert_int_equal(take(read, text), DP_OK);
    dp_free(text);
    return read;
}

static void noted_choices_are_found(void **state)
{
    struct dp_algo_choices *c = table("gpu");
    char key[32];
    (void)state;

    assert_null(asked(NULL, "a"));
    assert_false(dp_algo_choices_open(NULL));
    assert_true(dp_algo_choices_open(c));
    assert_null(asked(c, "b"));
    for (int i = 199; i >= 0; i--) { /* more than there is room for at first */
        (void)snprintf(key, sizeof(key), "key %d", i);
        note(c, key, key + 4);
    }
    for (int i = 0; i < 200; i++) {
        (void)snprintf(key, sizeof(key), "key %d", i);
        assert_string_equal(asked(c, key), key + 4);
    }
    note(c, "key 7", "another");
    assert_string_equal(asked(c, "key 7"), "another");
    assert_int_equal(dp_algo_choices_count(c).used, 200);
    assert_int_equal(dp_algo_choices_count(c).fresh, 200);
    dp_algo_choices_destroy(c);
}

static void a_frozen_table_answers_and_takes_nothing_more(void **state)
{
    struct dp_algo_choices *c = table("gpu");
    (void)state;

    note(c, "a", "1");
    dp_algo_choices_freeze(c);
    assert_false(dp_algo_choices_open(c));
    assert_string_equal(asked(c, "a"), "1");
    assert_null(asked(c, "b"));
    assert_int_equal(dp_algo_choices_count(c).used, 1);
    dp_algo_choices_destroy(c);
}

static void writing_and_reading_changes_nothing(void **state)
{
    struct dp_algo_choices *c = table("gpu \"1\""), *read;
    (void)state;

    note(c, "product 1x2x3", "0c00");
    note(c, "convolution", "1 0 2");
    assert_null(asked(c, "asked for in vain"));
    read = written_and_read(c, true, "gpu \"1\"");
    assert_string_equal(asked(read, "product 1x2x3"), "0c00");
    assert_string_equal(asked(read, "convolution"), "1 0 2");
    assert_null(asked(read, "asked for in vain"));
    assert_int_equal(dp_algo_choices_count(read).used, 2);
    assert_int_equal(dp_algo_choices_count(read).fresh, 0);
    dp_algo_choices_destroy(read);
    dp_algo_choices_destroy(c);
}

/* The cache keeps them; the record of a run, which must be reproducible, does not. */
static void times_are_stored_with_the_choices(void **state)
{
    struct dp_algo_choices *c = table("gpu"), *read;
    struct dp_algo_choice choice = {0};
    char *text = NULL;
    size_t at = 0;
    (void)state;

    assert_int_equal(dp_algo_choices_note(c, "a", "1", 0.125), DP_OK);
    note(c, "b", "2");
    assert_int_equal(dp_algo_choices_text(c, false, &text), DP_OK);
    assert_null(strstr(text, "ms"));
    dp_free(text);
    read = written_and_read(c, true, "gpu");
    assert_string_equal(asked(read, "a"), "1");
    assert_string_equal(asked(read, "b"), "2");
    assert_true(dp_algo_choices_next(read, &at, &choice));
    assert_string_equal(choice.name, "gpu\na");
    assert_true(choice.ms == 0.125);
    assert_true(dp_algo_choices_next(read, &at, &choice));
    assert_true(choice.ms == 0.0);
    assert_false(dp_algo_choices_next(read, &at, &choice));
    dp_algo_choices_destroy(read);
    dp_algo_choices_destroy(c);
}

/* Of two machines each sees its own, in one table. */
static void choices_of_another_machine_are_ignored(void **state)
{
    struct dp_algo_choices *c = table("gpu A"), *other, *again;
    (void)state;

    note(c, "a", "1");
    other = written_and_read(c, true, "gpu B");
    assert_null(asked(other, "a"));
    note(other, "a", "2");
    again = written_and_read(other, true, "gpu A");
    assert_string_equal(asked(again, "a"), "1");
    dp_algo_choices_destroy(again);
    again = written_and_read(other, true, "gpu B");
    assert_string_equal(asked(again, "a"), "2");
    dp_algo_choices_destroy(again);
    dp_algo_choices_destroy(other);
    dp_algo_choices_destroy(c);
}

static void a_run_records_only_choices_that_it_used(void **state)
{
    struct dp_algo_choices *c = table("gpu"), *cache, *run;
    (void)state;

    note(c, "a", "1");
    note(c, "b", "2");
    cache = written_and_read(c, true, "gpu");
    assert_string_equal(asked(cache, "b"), "2");
    run = written_and_read(cache, false, "gpu");
    assert_null(asked(run, "a"));
    assert_string_equal(asked(run, "b"), "2");
    dp_algo_choices_destroy(run);
    dp_algo_choices_destroy(cache);
    dp_algo_choices_destroy(c);
}

/* Of what is tried and not taken nothing is left, unless it was known or used before. */
static void what_is_tried_counts_only_if_it_is_taken(void **state)
{
    (void)state;

    for (int taken = 0; taken < 2; taken++) {
        struct dp_algo_choices *c = table("gpu");
        assert_int_equal(add(c, "gpu\nknown", "1"), DP_OK);
        note(c, "used", "2");
        dp_algo_choices_try(c);
        assert_string_equal(asked(c, "known"), "1");
        assert_string_equal(asked(c, "used"), "2");
        note(c, "new", "3");
        dp_algo_choices_tried(c, taken != 0);
        assert_int_equal(dp_algo_choices_count(c).used, taken != 0 ? 3 : 1);
        assert_int_equal(dp_algo_choices_count(c).fresh, taken != 0 ? 2 : 1);
        assert_true(has(c, "gpu\nknown"));
        assert_int_equal(has(c, "gpu\nnew"), taken != 0);
        note(c, "later", "4");
        assert_int_equal(dp_algo_choices_count(c).used, taken != 0 ? 4 : 2);
        dp_algo_choices_destroy(c);
    }
    dp_algo_choices_try(NULL);
    dp_algo_choices_tried(NULL, true);
}

static void the_first_choice_counts(void **state)
{
    struct dp_algo_choices *c = table("gpu");
    (void)state;

    assert_int_equal(add(c, "gpu\na", "1"), DP_OK);
    assert_int_equal(add(c, "gpu\na", "2"), DP_OK);
    assert_string_equal(asked(c, "a"), "1");
    assert_true(has(c, "gpu\na"));
    assert_false(has(c, "gpu\nb"));
    dp_algo_choices_destroy(c);
}

static void of_several_choices_that_of_the_slowest_is_lacking(void **state)
{
    static const struct {
        struct dp_algo_choice choice;
        bool lacks;
    } others[] = {
        {{"gpu\na", "1", 9.0}, false},      {{"gpu\na", "2", 1.5}, false},
        {{"gpu\na", "2", 2.0}, false},      {{"gpu\na", "2", 0.0}, false},
        {{"gpu\na", "2", 2.5}, true},       {{"gpu\nb", "2", 0.0}, true},
        {{"gpu\nwithout", "1", 0.0}, true}, {{"another\na", "1", 0.0}, true},
    };
    const struct dp_algo_choice known = {"gpu\na", "1", 2.0}, slower = {"gpu\na", "2", 2.5};
    const struct dp_algo_choice nameless = {"a", "1", 1.0};
    struct dp_algo_choices *c = table("gpu");
    (void)state;

    assert_null(asked(c, "without"));
    assert_int_equal(dp_algo_choices_replace(c, &known), DP_OK);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(dp_algo_choices_lacks(c, &others[i].choice), others[i].lacks);
    }
    assert_int_equal(dp_algo_choices_replace(c, &slower), DP_OK);
    assert_string_equal(asked(c, "a"), "2");
    assert_false(dp_algo_choices_lacks(c, &known));
    stderr_begin();
    assert_int_equal(dp_algo_choices_replace(c, &nameless), DP_ERR_DATA);
    stderr_end();
    assert_string_not_equal(stderr_text, "");
    dp_algo_choices_destroy(c);
}

static void adopted_choices_replace_own_ones(void **state)
{
    struct dp_algo_choices *mine = table("gpu"), *agreed = table("");
    bool changed = true;
    (void)state;

    note(mine, "same", "1");
    assert_null(asked(mine, "other than asked"));
    assert_int_equal(add(agreed, "gpu\nsame", "1"), DP_OK);
    assert_int_equal(add(agreed, "gpu\nof others", "2"), DP_OK);
    assert_int_equal(dp_algo_choices_adopt(mine, agreed, &changed), DP_OK);
    assert_false(changed); /* nothing that was prepared here */
    assert_int_equal(add(agreed, "gpu\nother than asked", "3"), DP_OK);
    assert_int_equal(dp_algo_choices_adopt(mine, agreed, &changed), DP_OK);
    assert_true(changed);
    assert_string_equal(asked(mine, "other than asked"), "3");
    note(mine, "same", "4");
    assert_int_equal(dp_algo_choices_adopt(mine, agreed, &changed), DP_OK);
    assert_true(changed);
    assert_string_equal(asked(mine, "same"), "1");
    assert_int_equal(dp_algo_choices_count(mine).used, 3);
    dp_algo_choices_destroy(agreed);
    dp_algo_choices_destroy(mine);
}

#define HEAD "{\"schema\": \"lockstep.choices/1\", \"build\": \"" DP_VERSION "\", \"machines\": "

static void another_build_or_schema_counts_as_empty(void **state)
{
    static const char *const texts[] = {
        "{\"schema\": \"lockstep.choices/2\", \"build\": \"" DP_VERSION
        "\", \"machines\": {\"gpu\": {\"a\": \"1\"}}}",
        "{\"schema\": \"lockstep.choices/1\", \"build\": \"0.0.7\", "
        "\"machines\": {\"gpu\": {\"a\": \"1\"}}}"};
    struct dp_algo_choices *c = table("gpu");
    (void)state;

    stderr_begin();
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(take(c, texts[i]), DP_OK);
    }
    stderr_end();
    assert_string_equal(stderr_text, "");
    assert_null(asked(c, "a"));
    assert_int_equal(take(c, HEAD "{\"gpu\": {\"a\": \"1\"}}}"), DP_OK);
    assert_string_equal(asked(c, "a"), "1");
    dp_algo_choices_destroy(c);
}

static void a_bad_table_is_reported_in_one_line(void **state)
{
    static const char *const texts[] = {"{}",
                                        "[]",
                                        "{\"schema\": \"lockstep.choices/1\"}",
                                        HEAD "[]}",
                                        HEAD "{\"gpu\": {\"a\": 1}}}",
                                        HEAD "{\"gpu\": {\"a\": {\"ms\": 1}}}}"};
    struct dp_algo_choices *c = table("gpu");
    char text[DP_ALGO_CHOICE_VALUE + 200], value[DP_ALGO_CHOICE_VALUE + 1];
    (void)state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        stderr_begin();
        assert_int_equal(take(c, texts[i]), DP_ERR_DATA);
        stderr_end();
        assert_non_null(strstr(stderr_text, "here: no choice"));
        assert_ptr_equal(strchr(stderr_text, '\n'), stderr_text + strlen(stderr_text) - 1);
    }
    memset(value, 'f', DP_ALGO_CHOICE_VALUE);
    value[DP_ALGO_CHOICE_VALUE] = '\0';
    (void)snprintf(text, sizeof(text), HEAD "{\"gpu\": {\"a\": \"%s\"}}}", value);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(take(c, text), DP_ERR_DATA);
    assert_int_equal(add(c, "no key", "1"), DP_ERR_DATA);
    dp_log_set_level(DP_LOG_INFO);
    assert_null(asked(c, "a"));
    dp_algo_choices_destroy(c);
}

/* Everything once. */
static dp_status use_all(void)
{
    struct dp_algo_choices *c = NULL, *other = NULL;
    struct dp_json *json = NULL;
    char *text = NULL, key[32];
    const char *value;
    bool changed;
    dp_status status;

    DP_TRY_GOTO(dp_algo_choices_create("gpu", &c), status, done);
    DP_TRY_GOTO(dp_algo_choices_create("gpu", &other), status, done);
    for (int i = 0; i < 70; i++) {
        (void)snprintf(key, sizeof(key), "key %d", i);
        DP_TRY_GOTO(dp_algo_choices_ask(c, key, &value), status, done);
        DP_TRY_GOTO(dp_algo_choices_note(c, key, "1", 0.5), status, done);
    }
    DP_TRY_GOTO(dp_algo_choices_text(c, true, &text), status, done);
    DP_TRY_GOTO(dp_json_parse(text, strlen(text), "here", &json), status, done);
    DP_TRY_GOTO(dp_algo_choices_take(other, json, "here"), status, done);
    DP_TRY_GOTO(dp_algo_choices_note(other, "key 3", "2", 0.5), status, done);
    status = dp_algo_choices_adopt(c, other, &changed);

done:
    dp_json_destroy(json);
    dp_free(text);
    dp_algo_choices_destroy(other);
    dp_algo_choices_destroy(c);
    return status;
}

static void survives_every_failed_allocation(void **state)
{
    dp_status status = DP_ERR_NOMEM;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (int nth = 1; status != DP_OK; nth++) {
        dp_mem_fail_nth(nth);
        status = use_all();
        dp_mem_fail_nth(0);
        assert_true(status == DP_OK || status == DP_ERR_NOMEM);
        assert_int_equal(dp_mem_live(), 0);
        assert_in_range(nth, 1, 2000);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void what_is_measured_is_progress(void **state)
{
    struct dp_algo_choices *c = table("gpu");
    struct dp_trace_mark mark = {.open = 0};
    (void)state;

    dp_trace_publish(DP_TRACE_WATCHDOG, &mark);
    note(c, "a", "1");
    note(c, "b", "2");
    dp_trace_publish(DP_TRACE_WATCHDOG, NULL);
    assert_int_equal(atomic_load(&mark.beats), 2);
    dp_algo_choices_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(noted_choices_are_found),
        cmocka_unit_test(a_frozen_table_answers_and_takes_nothing_more),
        cmocka_unit_test(writing_and_reading_changes_nothing),
        cmocka_unit_test(times_are_stored_with_the_choices),
        cmocka_unit_test(choices_of_another_machine_are_ignored),
        cmocka_unit_test(a_run_records_only_choices_that_it_used),
        cmocka_unit_test(what_is_tried_counts_only_if_it_is_taken),
        cmocka_unit_test(the_first_choice_counts),
        cmocka_unit_test(of_several_choices_that_of_the_slowest_is_lacking),
        cmocka_unit_test(adopted_choices_replace_own_ones),
        cmocka_unit_test(another_build_or_schema_counts_as_empty),
        cmocka_unit_test(a_bad_table_is_reported_in_one_line),
        cmocka_unit_test(what_is_measured_is_progress),
        cmocka_unit_test(survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
