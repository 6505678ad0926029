/* test_json.c - building, writing and reading JSON, and files written whole. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/files/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/support/scratch.h"

static void writes_members_in_order_and_nonfinite_numbers_as_null(void **state)
{
    struct dp_json *object = dp_json_create(), *list, *inner;
    char *text = NULL;
    (void)state;

    assert_int_equal(dp_json_set_text(object, "z", "a \"b\""), DP_OK);
    assert_int_equal(dp_json_set_int(object, "big", INT64_MAX), DP_OK);
    assert_int_equal(dp_json_set_real(object, "lr", 0.05), DP_OK);
    assert_int_equal(dp_json_set_real(object, "nan", (double)NAN), DP_OK);
    assert_int_equal(dp_json_set_real(object, "inf", -(double)INFINITY), DP_OK);
    assert_int_equal(dp_json_set_bool(object, "on", true), DP_OK);
    assert_int_equal(dp_json_set_null(object, "none"), DP_OK);
    assert_int_equal(dp_json_set_text(object, "no", NULL), DP_OK);
    list = dp_json_set_array(object, "list");
    assert_int_equal(dp_json_push_int(list, 1), DP_OK);
    assert_int_equal(dp_json_push_real(list, (double)INFINITY), DP_OK);
    assert_int_equal(dp_json_push_text(list, "x"), DP_OK);
    inner = dp_json_push_object(list);
    assert_int_equal(dp_json_set_int(inner, "k", 2), DP_OK);
    assert_int_equal(dp_json_dump(object, 0, DP_JSON_READABLE, &text), DP_OK);
    assert_string_equal(text, "{\"z\":\"a \\\"b\\\"\",\"big\":9223372036854775807,\"lr\":0.05,"
                              "\"nan\":null,\"inf\":null,\"on\":true,\"none\":null,\"no\":null,"
                              "\"list\":[1,null,\"x\",{\"k\":2}]}");
    dp_free(text);
    dp_json_destroy(object);
    assert_int_equal(dp_mem_live(), 0);
}

static void text_that_is_not_utf8_is_kept_readable(void **state)
{
    struct dp_json *object = dp_json_create();
    (void)state;

    assert_int_equal(dp_json_set_text(object, "host", "caf\xe9"), DP_OK);
    assert_string_equal(dp_json_text(dp_json_get(object, "host")), "caf?");
    dp_json_destroy(object);
}

static void a_child_that_could_not_be_allocated_is_noticed(void **state)
{
    (void)state;
    dp_log_set_level(DP_LOG_NONE);
    assert_null(dp_json_set_object(NULL, "a"));
    assert_null(dp_json_push_object(NULL));
    assert_int_equal(dp_json_set_int(NULL, "a", 1), DP_ERR_NOMEM);
    assert_int_equal(dp_json_push_int(NULL, 1), DP_ERR_NOMEM);
    dp_log_set_level(DP_LOG_INFO);
}

static void exact_reals_read_back_to_the_bit(void **state)
{
    static const double values[] = {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -0.05};
    struct dp_json *list_owner = dp_json_create(), *list = dp_json_set_array(list_owner, "v");
    struct dp_json *parsed = NULL;
    char *text = NULL;
    (void)state;

    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(dp_json_push_real(list, values[i]), DP_OK);
    }
    assert_int_equal(dp_json_dump(list_owner, 2, DP_JSON_EXACT, &text), DP_OK);
    assert_int_equal(dp_json_parse(text, strlen(text), "text", &parsed), DP_OK);
    for (size_t i = 0; i < 5; i++) {
        double value = 0;

        assert_true(dp_json_real(dp_json_at(dp_json_get(parsed, "v"), i), &value));
        assert_memory_equal(&value, &values[i], sizeof(value));
    }
    dp_free(text);
    dp_json_destroy(parsed);
    dp_json_destroy(list_owner);
}

static void missing_members_read_as_null(void **state)
{
    static const char text[] = "{\"a\": [1, 2.5, true], \"b\": {\"c\": \"d\"}}";
    struct dp_json_member member = {0};
    struct dp_json *parsed = NULL;
    int64_t whole = 7;
    double real = 0;
    bool on = false;
    (void)state;

    assert_int_equal(dp_json_parse(text, sizeof(text) - 1, "text", &parsed), DP_OK);
    assert_true(dp_json_is_object(parsed));
    assert_true(dp_json_is_array(dp_json_get(parsed, "a")));
    assert_int_equal(dp_json_length(dp_json_get(parsed, "a")), 3);
    assert_int_equal(dp_json_length(parsed), 2);
    assert_true(dp_json_int(dp_json_at(dp_json_get(parsed, "a"), 0), &whole));
    assert_int_equal(whole, 1);
    assert_false(dp_json_int(dp_json_at(dp_json_get(parsed, "a"), 1), &whole));
    assert_true(dp_json_real(dp_json_at(dp_json_get(parsed, "a"), 1), &real));
    assert_true(real == 2.5);
    assert_true(dp_json_switch(dp_json_at(dp_json_get(parsed, "a"), 2), &on));
    assert_true(on);
    assert_null(dp_json_text(dp_json_get(dp_json_get(parsed, "nothing"), "at all")));
    assert_null(dp_json_at(parsed, 0));
    assert_true(dp_json_next(parsed, &member));
    assert_string_equal(member.key, "a");
    assert_true(dp_json_next(parsed, &member));
    assert_string_equal(dp_json_text(dp_json_get(member.value, "c")), "d");
    assert_false(dp_json_next(parsed, &member));
    dp_json_destroy(parsed);
}

static void text_that_is_not_json_is_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "{\"a\": 1, \"a\": 2}",
                                        "{} x",
                                        "{\"a\": nan}",
                                        "{\"a\": 99999999999999999999}",
                                        "[1,]",
                                        "\"\xff\""};
    struct dp_json *parsed = NULL;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(dp_json_parse(texts[i], strlen(texts[i]), "text", &parsed), DP_ERR_DATA);
        assert_null(parsed);
    }
    dp_log_set_level(DP_LOG_INFO);
}

static void a_file_is_replaced_or_left_as_it_was(void **state)
{
    struct dp_json *object = dp_json_create();
    char text[64];
    (void)state;

    scratch_write(scratch_path("run.json"), "old", 3);
    assert_int_equal(dp_json_set_int(object, "a", 1), DP_OK);
    dp_log_set_level(DP_LOG_NONE);
    scratch_limit(4);
    assert_int_equal(dp_json_save(object, DP_JSON_EXACT, scratch_path("run.json")), DP_ERR_WRITE);
    scratch_limit(-1);
    assert_int_equal(dp_json_save(object, DP_JSON_EXACT, scratch_path("no/run.json")),
                     DP_ERR_WRITE);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(scratch_read(scratch_path("run.json"), text, sizeof(text)), 3);
    assert_int_equal(dp_json_save(object, DP_JSON_EXACT, scratch_path("run.json")), DP_OK);
    assert_true(scratch_read(scratch_path("run.json"), text, sizeof(text)) > 0);
    assert_string_equal(text, "{\n  \"a\": 1\n}\n");
    assert_int_equal(scratch_count("."), 1);
    dp_json_destroy(object);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_full_disk_is_noticed_through_the_buffer(void **state)
{
    static const char large[600000];
    struct dp_file file;
    (void)state;

    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_file_save("/dev/full", "x", 1, NULL), DP_ERR_WRITE);
    assert_int_equal(dp_file_save("/dev/full", large, sizeof(large), NULL), DP_ERR_WRITE);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_file_create(&file, scratch_path("f")), DP_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(dp_file_append(&file, large, 200000), DP_OK);
        assert_int_equal(dp_file_append(&file, large, sizeof(large)), DP_OK);
    }
    assert_int_equal(dp_file_finish(&file, NULL), DP_OK);
    assert_int_equal(dp_mem_live(), 0);
}

/* Also with pieces that end inside a page, and a last one that is shorter than a page. */
static void a_large_file_has_the_same_bytes_with_any_buffer(void **state)
{
    static const size_t sizes[] = {0, 1, 4096, 100001, 3 * 1024 * 1024 + 5};
    unsigned char *data = dp_zalloc(1, sizes[4]), *room = dp_mem_huge(DP_MEM_OTHER, DP_FILE_BUFFER);
    (void)state;

    for (size_t i = 0; i < sizes[4]; i++) {
        data[i] = (unsigned char)(i % 251);
    }
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        const size_t size = sizes[i / 2];
        char *text = NULL, hash[DP_HASH_TEXT], expected[DP_HASH_TEXT];
        struct dp_file file;
        size_t bytes = 0;

        assert_int_equal(dp_file_create_large(&file, scratch_path("f"), i % 2 == 0 ? room : NULL),
                         DP_OK);
        assert_int_equal(dp_file_append(&file, data, size), DP_OK);
        assert_int_equal(dp_file_finish(&file, hash), DP_OK);
        assert_int_equal(dp_file_save(scratch_path("g"), data, size, expected), DP_OK);
        assert_string_equal(hash, expected);
        assert_int_equal(dp_file_read(scratch_path("f"), sizes[4], &text, &bytes), DP_OK);
        assert_int_equal(bytes, size);
        assert_memory_equal(text, data, size);
        dp_free(text);
    }
    dp_free(room); /* still the caller's */
    dp_free(data);
    assert_int_equal(dp_mem_live(), 0);
}

static void a_file_is_read_whole_or_refused(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    (void)state;

    scratch_write(scratch_path("f"), "abc", 3);
    assert_int_equal(dp_file_read(scratch_path("f"), 3, &text, &bytes), DP_OK);
    assert_int_equal(bytes, 3);
    assert_string_equal(text, "abc");
    dp_free(text);
    dp_log_set_level(DP_LOG_NONE);
    assert_int_equal(dp_file_read(scratch_path("f"), 2, &text, &bytes), DP_ERR_DATA);
    assert_int_equal(dp_file_read(scratch_path("."), 2, &text, &bytes), DP_ERR_DATA);
    assert_int_equal(dp_file_read(scratch_path("g"), 2, &text, &bytes), DP_ERR_NOINPUT);
    dp_mem_fail_nth(1);
    assert_int_equal(dp_file_read(scratch_path("f"), 3, &text, &bytes), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    dp_log_set_level(DP_LOG_INFO);
    assert_int_equal(dp_mem_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_members_in_order_and_nonfinite_numbers_as_null),
        cmocka_unit_test(text_that_is_not_utf8_is_kept_readable),
        cmocka_unit_test(a_child_that_could_not_be_allocated_is_noticed),
        cmocka_unit_test(exact_reals_read_back_to_the_bit),
        cmocka_unit_test(missing_members_read_as_null),
        cmocka_unit_test(text_that_is_not_json_is_refused),
        cmocka_unit_test_setup_teardown(a_file_is_replaced_or_left_as_it_was, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_full_disk_is_noticed_through_the_buffer, scratch_create,
                                        scratch_destroy),
        cmocka_unit_test_setup_teardown(a_large_file_has_the_same_bytes_with_any_buffer,
                                        scratch_create, scratch_destroy),
        cmocka_unit_test_setup_teardown(a_file_is_read_whole_or_refused, scratch_create,
                                        scratch_destroy),
    };

    (void)signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
