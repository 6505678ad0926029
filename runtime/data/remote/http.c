#include "runtime/data/remote/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "runtime/data/remote/content_range.h"
#include "runtime/data/remote/curl_library.h"

struct dp_http {
    const struct dp_place *place; /* borrowed */
    const struct dp_curl *lib;    /* libcurl */
    CURL *curl;                   /* owned */
    struct curl_slist *headers;   /* owned */
    char error[CURL_ERROR_SIZE];
    /* Of the request in progress. */
    const struct dp_http_request *request;
    struct dp_http_answer *answer;
    struct dp_content_range range; /* that the answer says; end 0: none */
    uint64_t skip;                 /* bytes of the answer that were not asked for */
};

enum { CONNECT_S = 20, REDIRECTS = 5, NO_BODY_OF_OURS = 300 };

/* ---- an answer ---- */

/* The last answer's headers count: a redirect has its own before. */
static size_t take_header(char *line, size_t size, size_t count, void *context)
{
    static const char name[] = "content-range:";
    struct dp_http *http = context;
    const size_t bytes = size * count;

    if (bytes >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        http->range = (struct dp_content_range){0, 0, 0};
    } else if (bytes > sizeof(name) - 1 && strncasecmp(line, name, sizeof(name) - 1) == 0) {
        const size_t before = sizeof(name) - 1;
        if (!dp_content_range_parse(line + before, bytes - before, &http->range)) {
            http->range = (struct dp_content_range){0, 0, 0};
        }
    }
    return bytes;
}

static long code_of(const struct dp_http *http)
{
    long code = 0;

    (void)http->lib->easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

static uint64_t wanted(const struct dp_http_request *r)
{
    return r->end > 0 ? r->end - r->begin : UINT64_MAX;
}

/* Before the first byte: whether the body is what was asked for, and what to pass over. */
static bool begin_body(struct dp_http *http, long code)
{
    const struct dp_http_request *r = http->request;
    curl_off_t length = -1;

    if (code == 206) {
        http->answer->total = http->range.total;
        return http->range.end > 0 && http->range.begin == r->begin &&
               (r->end == 0 || http->range.end <= r->end);
    }
    (void)http->lib->easy_getinfo(http->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    http->answer->total = length > 0 ? (uint64_t)length : 0;
    http->skip = r->begin;
    return true;
}

/* Returning less than it was given ends the request. */
static size_t take_body(char *data, size_t size, size_t count, void *context)
{
    struct dp_http *http = context;
    struct dp_http_answer *answer = http->answer;
    const size_t bytes = size * count;
    const long code = code_of(http);
    size_t passed, left;

    if (code < 200 || code >= NO_BODY_OF_OURS) {
        return bytes; /* a page that says what is wrong */
    }
    if (answer->got == 0 && http->skip == UINT64_MAX) {
        http->skip = 0;
        if (!begin_body(http, code)) {
            answer->outcome = DP_HTTP_REFUSED;
            (void)snprintf(answer->problem, sizeof(answer->problem),
                           "answers with other bytes than were asked for");
            return 0;
        }
    }
    passed = http->skip < bytes ? (size_t)http->skip : bytes;
    http->skip -= passed;
    left = bytes - passed;
    if (left > wanted(http->request) - answer->got) {
        left = (size_t)(wanted(http->request) - answer->got);
    }
    if (left > 0) {
        answer->status = http->request->take(http->request->context, data + passed, left);
        if (answer->status != DP_OK) {
            answer->outcome = DP_HTTP_STOPPED;
            return 0;
        }
        answer->got += left;
    }
    return passed + left;
}

/* ---- what came of it ---- */

static enum dp_http_outcome outcome_of_code(long code)
{
    switch (code) {
    case 404:
    case 410:
        return DP_HTTP_MISSING;
    case 416:
        return DP_HTTP_SHORT;
    case 408:
    case 425:
    case 429:
        return DP_HTTP_AGAIN;
    default:
        return code >= 500 ? DP_HTTP_AGAIN : DP_HTTP_REFUSED;
    }
}

/* Whether the next try would end in the same way. */
static bool is_final(CURLcode result)
{
    switch (result) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_CIPHER:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_TOO_MANY_REDIRECTS:
        return true;
    default:
        return false;
    }
}

static void judge(struct dp_http *http, CURLcode result)
{
    const struct dp_http_request *r = http->request;
    struct dp_http_answer *answer = http->answer;
    const long code = code_of(http);

    if (answer->outcome == DP_HTTP_STOPPED || answer->outcome == DP_HTTP_REFUSED) {
        return; /* take_body() has said why */
    }
    if (answer->got == wanted(r) || (result == CURLE_OK && code < NO_BODY_OF_OURS && r->end == 0)) {
        answer->outcome = DP_HTTP_DONE;
    } else if (code >= NO_BODY_OF_OURS) {
        answer->outcome = outcome_of_code(code);
        answer->total = http->range.total; /* of what is too short */
        (void)snprintf(answer->problem, sizeof(answer->problem), "HTTP %ld", code);
    } else if (result != CURLE_OK) {
        answer->outcome = is_final(result) ? DP_HTTP_REFUSED : DP_HTTP_AGAIN;
        (void)snprintf(answer->problem, sizeof(answer->problem), "%.190s",
                       http->error[0] != '\0' ? http->error : http->lib->easy_strerror(result));
    } else if (answer->total > 0 && answer->total < r->end) {
        answer->outcome = DP_HTTP_SHORT;
    } else {
        answer->outcome = DP_HTTP_AGAIN;
        (void)snprintf(answer->problem, sizeof(answer->problem), "the answer ends early");
    }
}

/* ---- a connection ---- */

/* A public bucket answers requests that are not signed. */
static bool sign(struct dp_http *http)
{
    /* SHA-256 of an empty body: of every GET. */
    static const char empty[] = "x-amz-content-sha256: "
                                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const struct dp_place *p = http->place;
    char how[DP_REGION_BYTES + 32], header[DP_PLACE_BYTES * 2];
    bool good;

    if (p->key == NULL) {
        return true;
    }
    (void)snprintf(how, sizeof(how), "aws:amz:%s:s3", p->region);
    http->headers = http->lib->slist_append(NULL, empty);
    good = http->headers != NULL;
    if (good && p->token != NULL) {
        struct curl_slist *more;
        (void)snprintf(header, sizeof(header), "x-amz-security-token: %s", p->token);
        more = http->lib->slist_append(http->headers, header);
        good = more != NULL;
    }
    return good &&
           http->lib->easy_setopt(http->curl, CURLOPT_HTTPHEADER, http->headers) == CURLE_OK &&
           http->lib->easy_setopt(http->curl, CURLOPT_AWS_SIGV4, how) == CURLE_OK &&
           http->lib->easy_setopt(http->curl, CURLOPT_USERNAME, p->key) == CURLE_OK &&
           http->lib->easy_setopt(http->curl, CURLOPT_PASSWORD, p->secret) == CURLE_OK;
}

static bool set_authorities(const struct dp_http *http)
{
    static const char *const names[] = {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *file = getenv(names[i]);
        if (file != NULL && file[0] != '\0') {
            return http->lib->easy_setopt(http->curl, CURLOPT_CAINFO, file) == CURLE_OK;
        }
    }
    return true;
}

static bool set_up(struct dp_http *http, double patience_s)
{
    CURL *c = http->curl;
    const long patience = patience_s < 1.0 ? 1 : (long)patience_s;

    return http->lib->easy_setopt(c, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           /* A signature holds for one host, which alone may see the token. */
           http->lib->easy_setopt(c, CURLOPT_FOLLOWLOCATION, http->place->key == NULL ? 1L : 0L) ==
               CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_CONNECTTIMEOUT,
                                  patience < CONNECT_S ? patience : CONNECT_S) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_LOW_SPEED_TIME, patience) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_USERAGENT, "lockstep/" DP_VERSION) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_ERRORBUFFER, http->error) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_HEADERDATA, http) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body) == CURLE_OK &&
           http->lib->easy_setopt(c, CURLOPT_WRITEDATA, http) == CURLE_OK &&
           set_authorities(http) && sign(http);
}

dp_status dp_http_create(const struct dp_place *place, double patience_s, struct dp_http **out)
{
    const struct dp_curl *lib = NULL;
    struct dp_http *http;

    DP_TRY(dp_curl_find(&lib));
    http = dp_zalloc(1, sizeof(*http));
    if (http != NULL) {
        http->place = place;
        http->lib = lib;
        http->curl = lib->easy_init();
    }
    if (http == NULL || http->curl == NULL || !set_up(http, patience_s)) {
        dp_http_destroy(http);
        return DP_FAIL(DP_ERR_NOMEM, "%s: a connection", place->shown);
    }
    *out = http;
    return DP_OK;
}

void dp_http_destroy(struct dp_http *http)
{
    if (http != NULL) {
        http->lib->easy_cleanup(http->curl);
        http->lib->slist_free_all(http->headers);
        dp_free(http);
    }
}

void dp_http_get(struct dp_http *http, const struct dp_http_request *request,
                 struct dp_http_answer *answer)
{
    char address[2 * DP_PLACE_BYTES], range[64];
    CURLcode result;

    *answer = (struct dp_http_answer){.outcome = DP_HTTP_AGAIN};
    http->request = request;
    http->answer = answer;
    http->skip = UINT64_MAX; /* until the body begins */
    http->error[0] = '\0';
    (void)snprintf(address, sizeof(address), "%s/%s", http->place->base, request->name);
    if (request->end > 0) {
        (void)snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)request->begin,
                       (unsigned long long)request->end - 1);
    } else {
        (void)snprintf(range, sizeof(range), "%llu-", (unsigned long long)request->begin);
    }
    result = http->lib->easy_setopt(http->curl, CURLOPT_URL, address);
    if (result == CURLE_OK) {
        result = http->lib->easy_setopt(http->curl, CURLOPT_RANGE,
                                        request->end > 0 || request->begin > 0 ? range : NULL);
    }
    if (result == CURLE_OK) {
        result = http->lib->easy_perform(http->curl);
    }
    judge(http, result);
    http->request = NULL;
    http->answer = NULL;
}
