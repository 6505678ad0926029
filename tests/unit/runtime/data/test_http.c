/*
 * test_http.c - requests to a server in a thread of this program: which bytes arrive, what becomes
 * of each kind of answer, and what is sent along. Proxies are not tried.
 */
#define _GNU_SOURCE /* strcasestr */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/remote/http.h"
#include "tests/support/http_server.h"

enum { FILE_BYTES = 100000 };

static uint8_t content[FILE_BYTES];

/* ---- a server ---- */

static char last_request[HTTP_REQUEST]; /* read while no request is under way */

static bool send_page(int fd, const char *status, const char *lines)
{
    return http_send_head(fd, status, lines, 5) && http_send(fd, "sorry", 5);
}

/* Bytes [begin, end) of the file, with what Content-Range says. */
static bool send_range(int fd, size_t begin, size_t end, const char *range)
{
    char line[160];

    (void)snprintf(line, sizeof(line), "content-RANGE: %s\r\n", range);
    return http_send_head(fd, "206 Partial Content", line, end - begin) &&
           http_send(fd, content + begin, end - begin);
}

/* What a server that knows ranges answers. */
static bool send_file(int fd, const char *asked)
{
    unsigned long long first = 0, last = FILE_BYTES - 1;
    char range[128];

    if (asked == NULL) {
        return http_send_head(fd, "200 OK", "", FILE_BYTES) && http_send(fd, content, FILE_BYTES);
    }
    (void)sscanf(asked, "Range: bytes=%llu-%llu", &first, &last); /* NOLINT(cert-err34-c) */
    if (first >= FILE_BYTES) {
        (void)snprintf(range, sizeof(range), "Content-Range: bytes */%d\r\n", FILE_BYTES);
        return send_page(fd, "416 Range Not Satisfiable", range);
    }
    last = last < FILE_BYTES ? last : FILE_BYTES - 1;
    (void)snprintf(range, sizeof(range), "bytes %llu-%llu/%d", first, last, FILE_BYTES);
    return send_range(fd, (size_t)first, (size_t)last + 1, range);
}

/* Bytes 10 to 19 were asked for; false: not of that name, or the connection ends. */
static bool send_other(int fd, const char *name)
{
    static const struct {
        const char *name, *range;
        size_t begin, end;
    } others[] = {
        {"other", "bytes 20-29/100000", 20, 30},  {"more", "bytes 10-39/100000", 10, 40},
        {"longer", "bytes 10-19/100000", 10, 40}, {"less", "bytes 10-14/*", 10, 15},
        {"nothing", "octets 10-19/100", 10, 20},
    };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(name, others[i].name) == 0) {
            return send_range(fd, others[i].begin, others[i].end, others[i].range);
        }
    }
    return false;
}

/* False: the connection ends. */
static bool answer(int fd, const char *request)
{
    char name[64] = "", status[80];

    (void)snprintf(last_request, sizeof(last_request), "%s", request);
    (void)sscanf(request, "GET /data/%63[^ ]", name); /* NOLINT(cert-err34-c) */
    if (strcmp(name, "file") == 0) {
        return send_file(fd, strstr(request, "Range: "));
    }
    if (strcmp(name, "plain") == 0) { /* knows no ranges */
        return send_file(fd, NULL);
    }
    if (strcmp(name, "moved") == 0) {
        return http_send_head(fd, "302 Found",
                              "Location: /data/file\r\nContent-Range: bytes 7-8/9\r\n", 0);
    }
    if (strcmp(name, "unsaid") == 0) { /* what only the redirect says */
        return http_send_head(fd, "302 Found",
                              "Location: /data/no-range\r\nContent-Range: bytes 10-19/100\r\n", 0);
    }
    if (strcmp(name, "no-range") == 0) {
        return http_send_head(fd, "206 Partial Content", "", 10) && http_send(fd, content, 10);
    }
    if (strcmp(name, "loop") == 0) {
        return http_send_head(fd, "302 Found", "Location: /data/loop\r\n", 0);
    }
    if (strcmp(name, "elsewhere") == 0) {
        return http_send_head(fd, "302 Found", "Location: file:///etc/hostname\r\n", 0);
    }
    if (send_other(fd, name)) {
        return true;
    }
    if (strcmp(name, "cut") == 0) {
        (void)(http_send_head(fd, "200 OK", "", FILE_BYTES) && http_send(fd, content, 500));
        return false;
    }
    if (strcmp(name, "open") == 0) { /* of a length that is not said */
        (void)(http_send(fd, "HTTP/1.1 200 OK\r\n\r\n", 19) && http_send(fd, content, 500));
        return false;
    }
    if (strcmp(name, "byte") == 0) {
        return http_send_head(fd, "200 OK", "", 1) && http_send(fd, content, 1);
    }
    if (strcmp(name, "silent") == 0) {
        char end;
        return recv(fd, &end, 1, 0) == 1; /* until the other side has had enough */
    }
    (void)snprintf(status, sizeof(status), "%s It Is", name);
    return send_page(fd, status, "");
}

static int server_start(void **state)
{
    (void)state;

    for (size_t i = 0; i < FILE_BYTES; i++) {
        content[i] = (uint8_t)(i * 7 % 251);
    }
    return http_server_start(answer);
}

static int server_stop(void **state)
{
    (void)state;
    http_server_stop();
    return dp_mem_live() != 0;
}

/* ---- requests ---- */

struct taken {
    uint8_t bytes[FILE_BYTES];
    size_t count;
    bool refuses;
};

static struct taken taken;

static dp_status take(void *context, const void *data, size_t bytes)
{
    struct taken *t = context;

    if (t->refuses || t->count + bytes > FILE_BYTES) {
        return DP_ERR_DISAGREE;
    }
    memcpy(t->bytes + t->count, data, bytes);
    t->count += bytes;
    return DP_OK;
}

static struct dp_place place_here(void)
{
    struct dp_place place = {.shown = "http://here"};

    (void)snprintf(place.base, sizeof(place.base), "http://127.0.0.1:%d/data", http_server.port);
    return place;
}

static struct dp_http *connection_to(const struct dp_place *place)
{
    struct dp_http *http = NULL;

    assert_int_equal(dp_http_create(place, 1.0, &http), DP_OK);
    return http;
}

static struct dp_http_answer get_on(struct dp_http *http, const char *name, uint64_t begin,
                                    uint64_t end)
{
    const struct dp_http_request request = {
        .name = name, .begin = begin, .end = end, .take = take, .context = &taken};
    struct dp_http_answer answer;

    taken.count = 0;
    dp_http_get(http, &request, &answer);
    return answer;
}

/* On a connection of its own. */
static struct dp_http_answer get(const char *name, uint64_t begin, uint64_t end)
{
    const struct dp_place place = place_here();
    struct dp_http *http = connection_to(&place);
    const struct dp_http_answer answer = get_on(http, name, begin, end);

    dp_http_destroy(http);
    return answer;
}

static void assert_outcome(const char *name, uint64_t begin, uint64_t end,
                           enum dp_http_outcome outcome, const char *words)
{
    const struct dp_http_answer a = get(name, begin, end);

    if (a.outcome != outcome || strstr(a.problem, words) == NULL) {
        fail_msg("%s: %d '%s' instead of %d '%s'", name, (int)a.outcome, a.problem, (int)outcome,
                 words);
    }
}

/* All of [begin, end) was taken, in order, and nothing else. */
static void assert_bytes(const struct dp_http_answer *a, size_t begin, size_t end)
{
    assert_int_equal(a->got, end - begin);
    assert_int_equal(taken.count, end - begin);
    assert_memory_equal(taken.bytes, content + begin, end - begin);
}

static void check_part(const char *name, size_t begin, size_t end)
{
    const struct dp_http_answer a = get(name, begin, end);

    if (a.outcome != DP_HTTP_DONE) {
        fail_msg("%s [%zu, %zu): %s", name, begin, end, a.problem);
    }
    assert_bytes(&a, begin, end > 0 ? end : FILE_BYTES);
    assert_int_equal(a.total, FILE_BYTES);
    assert_string_equal(a.problem, "");
}

static void the_bytes_that_were_asked_for_arrive(void **state)
{
    static const char *const names[] = {"file", "plain", "moved"};
    static const struct {
        size_t begin, end;
    } parts[] = {{0, 0},     {0, FILE_BYTES},
                 {0, 1},     {5, 12345},
                 {99000, 0}, {FILE_BYTES - 1, FILE_BYTES},
                 {1, 0},     {40000, FILE_BYTES - 100}};
    (void)state;

    for (size_t n = 0; n < 3; n++) {
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            check_part(names[n], parts[i].begin, parts[i].end);
        }
    }
    check_part("longer", 10, 20); /* than it says: what comes after is left */
}

static void a_connection_is_used_again(void **state)
{
    const struct dp_place place = place_here();
    const int before = atomic_load(&http_server.connections);
    struct dp_http *http = connection_to(&place);
    (void)state;

    for (size_t i = 0; i < 5; i++) {
        const struct dp_http_answer a = get_on(http, "file", 100 * i, 100 * i + 50);
        assert_int_equal(a.outcome, DP_HTTP_DONE);
        assert_bytes(&a, 100 * i, 100 * i + 50);
    }
    assert_int_equal(get_on(http, "404", 0, 0).outcome, DP_HTTP_MISSING);
    assert_int_equal(get_on(http, "file", 0, 0).outcome, DP_HTTP_DONE); /* nothing has stayed */
    assert_null(strstr(last_request, "Range: ")); /* an empty file has no bytes "0-" */
    dp_http_destroy(http);
    assert_int_equal(atomic_load(&http_server.connections), before + 1);
}

static void codes_say_whether_another_try_may_go_well(void **state)
{
    (void)state;
    assert_outcome("404", 0, 10, DP_HTTP_MISSING, "HTTP 404");
    assert_outcome("410", 0, 10, DP_HTTP_MISSING, "HTTP 410");
    assert_outcome("400", 0, 10, DP_HTTP_REFUSED, "HTTP 400");
    assert_outcome("403", 0, 10, DP_HTTP_REFUSED, "HTTP 403");
    assert_outcome("499", 0, 10, DP_HTTP_REFUSED, "HTTP 499");
    assert_outcome("408", 0, 10, DP_HTTP_AGAIN, "HTTP 408");
    assert_outcome("425", 0, 10, DP_HTTP_AGAIN, "HTTP 425");
    assert_outcome("429", 0, 10, DP_HTTP_AGAIN, "HTTP 429");
    assert_outcome("500", 0, 0, DP_HTTP_AGAIN, "HTTP 500");
    assert_outcome("503", 0, 10, DP_HTTP_AGAIN, "HTTP 503");
    assert_int_equal(taken.count, 0); /* a page that says what is wrong is no data */
}

static void a_file_that_is_too_short_is_found(void **state)
{
    struct dp_http_answer a;
    (void)state;

    assert_outcome("file", FILE_BYTES - 10, FILE_BYTES + 1, DP_HTTP_SHORT, "");
    assert_int_equal(taken.count, 10);
    assert_outcome("plain", 0, FILE_BYTES + 1, DP_HTTP_SHORT, "");
    assert_outcome("byte", 0, 2, DP_HTTP_SHORT, "");
    a = get("file", FILE_BYTES, FILE_BYTES + 5);
    assert_int_equal(a.outcome, DP_HTTP_SHORT);
    assert_int_equal(a.total, FILE_BYTES); /* 416 says it */
    assert_int_equal(a.got, 0);
}

static void other_bytes_than_were_asked_for_are_refused(void **state)
{
    (void)state;
    assert_outcome("other", 10, 20, DP_HTTP_REFUSED, "other bytes than were asked for");
    assert_outcome("more", 10, 20, DP_HTTP_REFUSED, "other bytes than were asked for");
    assert_outcome("nothing", 10, 20, DP_HTTP_REFUSED, "other bytes than were asked for");
    assert_outcome("unsaid", 10, 20, DP_HTTP_REFUSED, "other bytes than were asked for");
    assert_outcome("no-range", 0, 10, DP_HTTP_REFUSED, "other bytes than were asked for");
    assert_int_equal(taken.count, 0);
}

static void an_answer_that_ends_early_may_be_asked_for_again(void **state)
{
    (void)state;
    assert_outcome("less", 10, 20, DP_HTTP_AGAIN, "the answer ends early");
    assert_int_equal(taken.count, 5);
    assert_outcome("open", 0, 1000, DP_HTTP_AGAIN, "the answer ends early");
    assert_outcome("cut", 0, 0, DP_HTTP_AGAIN, "");
    assert_int_equal(taken.count, 500);
    assert_outcome("cut", 100, 500, DP_HTTP_DONE, ""); /* all that was asked for had come */
}

/* Waits the second that the server is given. */
static void a_server_that_says_nothing_is_given_up(void **state)
{
    (void)state;
    assert_outcome("silent", 0, 10, DP_HTTP_AGAIN, "");
}

static void a_server_that_is_away_may_come_back(void **state)
{
    struct dp_place place = {.shown = "http://nowhere"};
    struct dp_http *http;
    struct dp_http_answer a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound, and not listening */
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(here);
    (void)state;

    assert_int_equal(bind(fd, (struct sockaddr *)&here, length), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&here, &length), 0);
    (void)snprintf(place.base, sizeof(place.base), "http://127.0.0.1:%d", ntohs(here.sin_port));
    http = connection_to(&place);
    a = get_on(http, "file", 0, 10);
    assert_int_equal(a.outcome, DP_HTTP_AGAIN);
    assert_true(strlen(a.problem) > 0);
    dp_http_destroy(http);
    (void)close(fd);
}

/* The first variable that has a file counts; its name may be short. */
static void authorities_are_read_from_the_file_that_is_named(void **state)
{
    static const char *const names[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    struct dp_place place = {.shown = "https://here"};
    (void)state;

    (void)snprintf(place.base, sizeof(place.base), "https://127.0.0.1:%d", http_server.port);
    for (int i = 0; i < 3; i++) {
        struct dp_http *http;
        struct dp_http_answer a;
        for (int k = 0; k <= i; k++) {
            assert_int_equal(setenv(names[k], k == i ? "x" : "", 1), 0);
        }
        http = connection_to(&place);
        a = get_on(http, "file", 0, 10);
        dp_http_destroy(http);
        for (int k = 0; k <= i; k++) {
            assert_int_equal(unsetenv(names[k]), 0);
        }
        if (a.outcome == DP_HTTP_DONE || strstr(a.problem, "certificate") == NULL) {
            fail_msg("%s: %d '%s'", names[i], (int)a.outcome, a.problem);
        }
    }
}

static void redirects_are_followed_to_servers_only(void **state)
{
    (void)state;
    assert_outcome("loop", 0, 10, DP_HTTP_REFUSED, "");
    assert_outcome("elsewhere", 0, 0, DP_HTTP_REFUSED, "");
    assert_int_equal(taken.count, 0);
}

static void an_address_that_is_none_is_not_tried_again(void **state)
{
    struct dp_place place = place_here();
    struct dp_http *http;
    (void)state;

    (void)snprintf(place.base, sizeof(place.base), "http://[");
    http = connection_to(&place);
    assert_int_equal(get_on(http, "file", 0, 10).outcome, DP_HTTP_REFUSED);
    dp_http_destroy(http);
}

static void who_takes_bytes_may_refuse_them(void **state)
{
    struct dp_http_answer a;
    (void)state;

    taken.refuses = true;
    a = get("file", 0, 10);
    taken.refuses = false;
    assert_int_equal(a.outcome, DP_HTTP_STOPPED);
    assert_int_equal(a.status, DP_ERR_DISAGREE);
    assert_int_equal(a.got, 0);
}

/* A key is sent nowhere else: redirects are not followed. */
static void requests_with_a_key_are_signed(void **state)
{
    struct dp_place place = place_here();
    struct dp_http *http = connection_to(&place);
    (void)state;

    assert_int_equal(get_on(http, "file", 0, 10).outcome, DP_HTTP_DONE);
    dp_http_destroy(http);
    assert_null(strcasestr(last_request, "authorization"));
    assert_non_null(strstr(last_request, "User-Agent: lockstep/"));
    place.key = "the-key";
    place.secret = "the-secret";
    (void)snprintf(place.region, sizeof(place.region), "sa-east-1");
    http = connection_to(&place);
    assert_int_equal(get_on(http, "file", 0, 10).outcome, DP_HTTP_DONE);
    dp_http_destroy(http);
    assert_non_null(strstr(last_request, "Authorization: AWS4-HMAC-SHA256 Credential=the-key/"));
    assert_null(strcasestr(last_request, "x-amz-security-token"));
    place.token = "the-token";
    http = connection_to(&place);
    assert_int_equal(get_on(http, "file", 0, 10).outcome, DP_HTTP_DONE);
    assert_non_null(strstr(last_request, "Authorization: AWS4-HMAC-SHA256 Credential=the-key/"));
    assert_non_null(strstr(last_request, "/sa-east-1/s3/aws4_request"));
    assert_non_null(strcasestr(last_request, "x-amz-security-token: the-token"));
    assert_non_null(strcasestr(last_request, "x-amz-content-sha256: e3b0c442"));
    assert_null(strstr(last_request, "the-secret"));
    assert_int_equal(get_on(http, "moved", 0, 10).outcome, DP_HTTP_REFUSED);
    dp_http_destroy(http);
}

static void a_connection_needs_memory(void **state)
{
    const struct dp_place place = place_here();
    struct dp_http *http = NULL;
    (void)state;

    dp_mem_fail_nth(1);
    assert_int_equal(dp_http_create(&place, 1.0, &http), DP_ERR_NOMEM);
    dp_mem_fail_nth(0);
    assert_null(http);
    dp_http_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_that_were_asked_for_arrive),
        cmocka_unit_test(a_connection_is_used_again),
        cmocka_unit_test(codes_say_whether_another_try_may_go_well),
        cmocka_unit_test(a_file_that_is_too_short_is_found),
        cmocka_unit_test(other_bytes_than_were_asked_for_are_refused),
        cmocka_unit_test(an_answer_that_ends_early_may_be_asked_for_again),
        cmocka_unit_test(a_server_that_says_nothing_is_given_up),
        cmocka_unit_test(a_server_that_is_away_may_come_back),
        cmocka_unit_test(authorities_are_read_from_the_file_that_is_named),
        cmocka_unit_test(redirects_are_followed_to_servers_only),
        cmocka_unit_test(an_address_that_is_none_is_not_tried_again),
        cmocka_unit_test(who_takes_bytes_may_refuse_them),
        cmocka_unit_test(requests_with_a_key_are_signed),
        cmocka_unit_test(a_connection_needs_memory),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("http", tests, server_start, server_stop) != 0 ||
           dp_mem_live() != 0; /* cmocka counts no failed teardown of a group */
}
