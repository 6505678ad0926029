/*
 * http_server.h - for tests: a server in threads of this program, one for each connection. What it
 * answers is up to the test.
 */
#ifndef DP_TESTS_SUPPORT_HTTP_SERVER_H
#define DP_TESTS_SUPPORT_HTTP_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HTTP_REQUEST = 4096, HTTP_FILES = 1024 };

static struct {
    int listener, port;
    pthread_t thread;
    bool (*answer)(int fd, const char *request); /* false: the connection ends */
    atomic_int connections, open;                /* so far; now */
    int files[HTTP_FILES];                       /* each descriptor at its own number */
} http_server;

static inline bool http_send(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

/* The header of an answer: a status, further lines, and the length of its body. */
static inline bool http_send_head(int fd, const char *status, const char *lines, size_t length)
{
    char head[512];
    const int bytes = snprintf(head, sizeof(head), "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n",
                               status, lines, length);

    return http_send(fd, head, (size_t)bytes);
}

static inline void *http_serve_connection(void *context)
{
    const int fd = *(const int *)context;
    char request[HTTP_REQUEST];
    size_t have = 0;
    ssize_t got;
    bool goes_on = true;

    while (goes_on && (got = recv(fd, request + have, HTTP_REQUEST - 1 - have, 0)) > 0) {
        have += (size_t)got;
        request[have] = '\0';
        if (strstr(request, "\r\n\r\n") != NULL) {
            have = 0;
            goes_on = http_server.answer(fd, request);
        }
    }
    (void)close(fd);
    atomic_fetch_sub(&http_server.open, 1);
    return NULL;
}

static inline void *http_serve(void *unused)
{
    int fd;

    while ((fd = accept(http_server.listener, NULL, NULL)) >= 0) {
        pthread_t thread;
        atomic_fetch_add(&http_server.connections, 1);
        atomic_fetch_add(&http_server.open, 1);
        if (fd >= HTTP_FILES) {
            abort();
        }
        http_server.files[fd] = fd;
        if (pthread_create(&thread, NULL, http_serve_connection, &http_server.files[fd]) != 0) {
            abort();
        }
        (void)pthread_detach(thread);
    }
    return unused;
}

/* Nonzero: it cannot be started. */
static inline int http_server_start(bool (*answer)(int fd, const char *request))
{
    static const char *const variables[] = {"http_proxy",    "all_proxy",      "ALL_PROXY",
                                            "AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"};
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(here);

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        (void)unsetenv(variables[i]);
    }
    http_server.answer = answer;
    http_server.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (http_server.listener < 0 ||
        bind(http_server.listener, (struct sockaddr *)&here, length) != 0 ||
        listen(http_server.listener, 8) != 0 ||
        getsockname(http_server.listener, (struct sockaddr *)&here, &length) != 0) {
        return 1;
    }
    http_server.port = ntohs(here.sin_port);
    return pthread_create(&http_server.thread, NULL, http_serve, NULL);
}

/* Until the other side has closed all connections. */
static inline void http_server_wait(void)
{
    while (atomic_load(&http_server.open) > 0) {
        (void)sched_yield();
    }
}

static inline void http_server_stop(void)
{
    (void)shutdown(http_server.listener, SHUT_RDWR); /* ends accept() */
    (void)pthread_join(http_server.thread, NULL);
    (void)close(http_server.listener);
}

#endif
