/*
 * http.h - one request after another to a place, over a connection that stays open where it can.
 * libcurl does the work, and nothing else uses it (curl_library.h).
 *
 * TLS certificates are checked; AWS_CA_BUNDLE, CURL_CA_BUNDLE or SSL_CERT_FILE names other
 * authorities than the system's. Proxies are as libcurl finds them in the environment. A redirect
 * is followed, to http and https only.
 */
#ifndef DP_RUNTIME_DATA_REMOTE_HTTP_H
#define DP_RUNTIME_DATA_REMOTE_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/data/remote/place.h"

struct dp_http;

/* A connection, used by one thread at a time. place: borrowed. patience_s: a request without a byte
 * for so long is broken off. Errors: DP_ERR_NOMEM, DP_ERR_UNAVAILABLE (there is no libcurl). */
DP_CHECKED dp_status dp_http_create(const struct dp_place *place, double patience_s,
                                    struct dp_http **out);
void dp_http_destroy(struct dp_http *http);

struct dp_http_request {
    const char *name;    /* of a file of the place */
    uint64_t begin, end; /* its bytes [begin, end); end 0: all that there are from begin on */
    dp_status (*take)(void *context, const void *data, size_t bytes); /* gets them, in order */
    void *context;
};

enum dp_http_outcome {
    DP_HTTP_DONE,    /* all came */
    DP_HTTP_AGAIN,   /* it broke off, or the server is busy or away: another try may go well */
    DP_HTTP_MISSING, /* there is no such file */
    DP_HTTP_REFUSED, /* another try would be refused, too */
    DP_HTTP_SHORT,   /* the file ends before the bytes that were asked for */
    DP_HTTP_STOPPED  /* take() failed */
};

struct dp_http_answer {
    enum dp_http_outcome outcome;
    uint64_t got;      /* bytes that take() was given */
    uint64_t total;    /* of the file; 0: the server did not say */
    dp_status status;  /* of take() */
    char problem[200]; /* why it is not done: "HTTP 503", "Connection refused" */
};

/* Asks, and waits for the answer. A server that does not know ranges sends the whole file: what was
 * not asked for is passed over; take() gets no byte of it. */
void dp_http_get(struct dp_http *http, const struct dp_http_request *request,
                 struct dp_http_answer *answer);

#endif
