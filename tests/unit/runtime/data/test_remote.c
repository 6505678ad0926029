/*
 * test_remote.c - addresses, and which bytes an answer has; requests are tried by test_http, and in
 * runs by tests/runs/data/remote.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "runtime/data/remote/content_range.h"
#include "runtime/data/remote/place.h"

static const char *const variables[] = {
    "AWS_ENDPOINT_URL",  "AWS_ENDPOINT_URL_S3",   "AWS_REGION",       "AWS_DEFAULT_REGION",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        (void)unsetenv(variables[i]);
    }
    return 0;
}

static void ranges_are_read_as_rfc_9110_has_them(void **state)
{
    static const struct {
        const char *text;
        bool good;
        struct dp_content_range range;
    } cases[] = {
        {"bytes 0-99/1234", true, {0, 100, 1234}},
        {" bytes 5-5/6\r\n", true, {5, 6, 6}},
        {"bytes 7-9/*", true, {7, 10, 0}},
        {"bytes */4000", true, {0, 0, 4000}},
        {"bytes 0-99/99", false, {0, 0, 0}}, /* one byte more than there are */
        {"bytes 9-8/100", false, {0, 0, 0}},
        {"bytes 0-/100", false, {0, 0, 0}},
        {"bytes */*", false, {0, 0, 0}},
        {"bytes 0-1/2x", false, {0, 0, 0}},
        {"octets 0-1/2", false, {0, 0, 0}},
        {"bytes 0-99999999999999999999/100000000000000000000", false, {0, 0, 0}},
        {"", false, {0, 0, 0}},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct dp_content_range range = {0, 0, 0};
        const bool good = dp_content_range_parse(cases[i].text, strlen(cases[i].text), &range);
        if (good != cases[i].good || memcmp(&range, &cases[i].range, sizeof(range)) != 0) {
            fail_msg("\"%s\" is read in another way", cases[i].text);
        }
    }
}

static void assert_place(const char *dir, const char *base, bool plain)
{
    struct dp_place place;

    assert_true(dp_place_is_remote(dir));
    assert_int_equal(dp_place_read(dir, &place), DP_OK);
    assert_string_equal(place.base, base);
    assert_int_equal(place.plain, plain);
}

static void addresses_are_what_names_are_put_after(void **state)
{
    (void)state;
    assert_false(dp_place_is_remote("/data/https://x"));
    assert_false(dp_place_is_remote("s3:/x"));
    assert_place("https://host/a/b//", "https://host/a/b", false);
    assert_place("http://host:80/a", "http://host:80/a", true);
    assert_place("http://127.0.0.1:8080/a", "http://127.0.0.1:8080/a", false);
    assert_place("http://localhost/", "http://localhost", false);
    assert_place("http://localhost.evil.org/", "http://localhost.evil.org", true);
    assert_place("s3://pets/a b/c", "https://s3.us-east-1.amazonaws.com/pets/a%20b/c", false);
    (void)setenv("AWS_DEFAULT_REGION", "eu-west-3", 1);
    assert_place("s3://pets", "https://s3.eu-west-3.amazonaws.com/pets", false);
    (void)setenv("AWS_REGION", "sa-east-1", 1);
    assert_place("s3://pets/", "https://s3.sa-east-1.amazonaws.com/pets", false);
    (void)setenv("AWS_ENDPOINT_URL", "http://minio:9000/", 1);
    assert_place("s3://pets/50%", "http://minio:9000/pets/50%25", false);
    (void)setenv("AWS_ENDPOINT_URL_S3", "https://store", 1);
    assert_place("s3://pets/x", "https://store/pets/x", false);
}

static void keys_come_from_the_environment(void **state)
{
    struct dp_place place;
    (void)state;

    assert_int_equal(dp_place_read("s3://pets", &place), DP_OK);
    assert_null(place.key);
    (void)setenv("AWS_ACCESS_KEY_ID", "key", 1);
    assert_int_equal(dp_place_read("s3://pets", &place), DP_ERR_CONFIG);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    (void)setenv("AWS_SESSION_TOKEN", "token", 1);
    assert_int_equal(dp_place_read("s3://pets", &place), DP_OK);
    assert_string_equal(place.key, "key");
    assert_string_equal(place.secret, "secret");
    assert_string_equal(place.token, "token");
    assert_string_equal(place.region, "us-east-1");
    assert_int_equal(dp_place_read("https://host/x", &place), DP_OK);
    assert_null(place.key); /* only S3 gets it */
}

static void what_cannot_be_fetched_from_is_refused(void **state)
{
    static const char *const dirs[] = {
        "https://",         "https:///x",   "http://me@host/x", "https://host/a?b",
        "https://host/a#b", "https://h/\n", "https://h/\"",     "s3://",
        "s3:///x",          "s3://a/x",     "s3://a b/x",       "s3://-ab/x",
        "s3://.ab/x",       "s3://ab/x",
    };
    static char longest[3000] = "https://host/";
    struct dp_place place;
    (void)state;

    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        if (dp_place_read(dirs[i], &place) != DP_ERR_CONFIG) {
            fail_msg("%s is taken", dirs[i]);
        }
    }
    memset(longest + strlen(longest), 'a', sizeof(longest) - 1 - strlen(longest));
    assert_int_equal(dp_place_read(longest, &place), DP_ERR_CONFIG);
    (void)setenv("AWS_REGION", "eu west", 1);
    assert_int_equal(dp_place_read("s3://pets", &place), DP_ERR_CONFIG);
    (void)unsetenv("AWS_REGION");
    (void)setenv("AWS_ENDPOINT_URL", "minio:9000", 1);
    assert_int_equal(dp_place_read("s3://pets", &place), DP_ERR_CONFIG);
}

/* Slashes at the end do not count. */
static void an_address_may_have_as_many_characters_as_there_is_room_for(void **state)
{
    char dir[DP_PLACE_BYTES + 8], many[DP_PLACE_BYTES];
    struct dp_place place;
    struct dp_log_capture capture;
    (void)state;

    memset(many, 'a', sizeof(many));
    for (size_t length = DP_PLACE_BYTES - 2; length <= DP_PLACE_BYTES + 1; length++) {
        const bool fits = length < DP_PLACE_BYTES;
        (void)snprintf(dir, sizeof(dir), "https://%.*s//", (int)(length - strlen("https://")),
                       many);
        dp_log_capture_begin(&capture, DP_LOG_ERROR);
        assert_int_equal(dp_place_read(dir, &place), fits ? DP_OK : DP_ERR_CONFIG);
        dp_log_capture_end(&capture, DP_LOG_DROP);
        if (fits) {
            assert_int_equal(strlen(place.base), length);
            assert_memory_equal(place.base, dir, length);
        } else {
            assert_non_null(strstr(dp_log_captured(&capture), "is longer than 2047 characters"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_read_as_rfc_9110_has_them),
        cmocka_unit_test_setup(addresses_are_what_names_are_put_after, clear_environment),
        cmocka_unit_test_setup(an_address_may_have_as_many_characters_as_there_is_room_for,
                               clear_environment),
        cmocka_unit_test_setup(keys_come_from_the_environment, clear_environment),
        cmocka_unit_test_setup(what_cannot_be_fetched_from_is_refused, clear_environment),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
