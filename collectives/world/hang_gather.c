#include "collectives/world/hang_gather.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/trace.h"
#include "collectives/world/socket_share.h"

enum { ENDS = DP_SOCKETS_SHARED, PROGRESS_MOST = 4096 };

/* A rank that was stopped for so long and then goes on, as when mpirun ends it, reports nothing. */
static const uint64_t late_ns = 2000000000;

/* What is sent; the first byte is no farewell (host_link.h). */
struct message {
    char kind; /* DP_HOST_LINK_ROW */
    int news;  /* enum dp_hang_news; 0: a row */
    struct dp_hang_row row;
};

/* One connection. */
struct end {
    int shared; /* owned: socket of the first rank's connection, on another one; -1: none */
    bool broken;
    struct message in, out;
    size_t got, sent; /* of them; sent: sizeof(out) where nothing is on its way */
    int passed_news;
    bool *passed; /* owned; [size]: rows that are sent, or that came from there */
};

struct dp_hang_gather {
    const struct dp_group *group;      /* borrowed */
    struct dp_host_link *link;         /* borrowed */
    const struct dp_host_names *names; /* borrowed */
    atomic_int *speaker;      /* borrowed; 1 and the rank that uses the connections; 0: nobody
                                   * has yet; NULL: this one is the only that can */
    struct dp_hang_row *rows; /* owned; [size] */
    bool told;                /* another host has sent a row */
    int news;                 /* enum dp_hang_news of this host and of others */
    int heard;                /* those of others */
    bool late;                /* that was while this rank did not look: others have reported;
                                   * or another one of this host has the connections */
    uint64_t looked_ns;       /* dp_now_ns() of the last look; 0: none yet */
    bool put;
    struct end ends[ENDS];
};

static int socket_of(const struct dp_hang_gather *g, int end)
{
    const struct end *e = &g->ends[end];
    const int own = end == 0 ? g->link->theirs : g->link->mine;

    return e->broken ? -1 : e->shared >= 0 ? e->shared : own;
}

/* Whether this rank has the connections: two that read from one would each have a part. */
static bool speaks(const struct dp_hang_gather *g)
{
    int nobody = 0;

    return g->speaker == NULL ||
           atomic_compare_exchange_strong(g->speaker, &nobody, g->group->rank + 1) ||
           nobody == g->group->rank + 1;
}

static bool another_speaks(const struct dp_hang_gather *g)
{
    const int who = g->speaker == NULL ? 0 : atomic_load(g->speaker);

    return who != 0 && who != g->group->rank + 1;
}

static void shut(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* shared: taken over, also where this fails. */
static dp_status make(const struct dp_group *group, struct dp_host_link *link,
                      const int shared[ENDS], struct dp_hang_gather **out)
{
    const size_t size = (size_t)group->size;
    struct dp_hang_gather *g = dp_zalloc(1, sizeof(*g));

    if (g != NULL) {
        g->group = group;
        g->link = link;
        g->rows = dp_zalloc(size, sizeof(*g->rows));
        for (int i = 0; i < ENDS; i++) {
            g->ends[i].shared = shared[i];
            g->ends[i].sent = sizeof(struct message);
            g->ends[i].passed = dp_zalloc(size, sizeof(bool));
        }
    }
    for (int i = 0; i < ENDS && g == NULL; i++) {
        shut(shared[i]);
    }
    if (g == NULL || g->rows == NULL || g->ends[0].passed == NULL || g->ends[1].passed == NULL) {
        dp_hang_gather_destroy(g);
        return DP_FAIL(DP_ERR_NOMEM, "table of %d ranks", group->size);
    }
    *out = g;
    return DP_OK;
}

dp_status dp_hang_gather_create(struct dp_group *group, struct dp_host_link *link,
                                const struct dp_host_names *names, atomic_int *speaker,
                                struct dp_hang_gather **out)
{
    const int own[ENDS] = {link->theirs, link->mine};
    int shared[ENDS];
    struct dp_hang_gather *g = NULL;
    dp_status status;

    *out = NULL;
    if (group->nodes == 1) {
        return DP_OK;
    }
    status = dp_socket_share(group, own, shared);
    for (int i = 0; i < ENDS && speaker == NULL; i++) {
        shut(shared[i]);
        shared[i] = -1;
    }
    if (status == DP_OK && (own[0] >= 0 || own[1] >= 0 || shared[0] >= 0 || shared[1] >= 0)) {
        status = make(group, link, shared, &g);
    }
    if (g != NULL) {
        g->names = names;
        g->speaker = speaker;
    }
    if (status != DP_OK) {
        dp_group_leave(group, status);
        return status;
    }
    *out = g;
    return DP_OK;
}

void dp_hang_gather_destroy(struct dp_hang_gather *g)
{
    if (g == NULL) {
        return;
    }
    dp_free(g->rows);
    for (int i = 0; i < ENDS; i++) {
        shut(g->ends[i].shared);
        dp_free(g->ends[i].passed);
    }
    dp_free(g);
}

static void make_text_end(char *text, size_t size)
{
    text[size - 1] = '\0';
}

/* News of another host, or a row: not ours, and new. */
static void take(struct dp_hang_gather *g, struct end *from)
{
    struct dp_hang_row *row = &from->in.row;

    if (from->in.kind == DP_HOST_LINK_ROW && from->in.news != 0) {
        from->passed_news |= from->in.news;
        g->heard |= from->in.news;
        g->news |= from->in.news;
        return;
    }
    if (from->in.kind != DP_HOST_LINK_ROW || row->rank < 0 || row->rank >= g->group->size ||
        !row->known) {
        from->broken = true;
        return;
    }
    make_text_end(row->host, sizeof(row->host));
    make_text_end(row->phase, sizeof(row->phase));
    make_text_end(row->doing, sizeof(row->doing));
    make_text_end(row->kernel, sizeof(row->kernel));
    make_text_end(row->stacks, sizeof(row->stacks));
    g->told = true;
    from->passed[row->rank] = true;
    if (!g->rows[row->rank].known) {
        g->rows[row->rank] = *row;
    }
}

/* Whether this connection carries rows, not a farewell. News of progress before them, which the
 * first rank of this host has not read, is dropped. */
static bool carries_rows(const struct dp_hang_gather *g, int end)
{
    unsigned char bytes[PROGRESS_MOST];
    ssize_t count, at = 0;

    if (g->ends[end].got > 0) {
        return true;
    }
    count = recv(socket_of(g, end), bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    while (at < count && bytes[at] >= DP_HOST_LINK_PROGRESS) {
        at++;
    }
    return at < count && bytes[at] == DP_HOST_LINK_ROW &&
           (at == 0 ||
            (speaks(g) && recv(socket_of(g, end), bytes, (size_t)at, MSG_DONTWAIT) == at));
}

static void receive(struct dp_hang_gather *g, int end)
{
    struct end *e = &g->ends[end];

    while (socket_of(g, end) >= 0 && carries_rows(g, end) && speaks(g)) {
        const ssize_t got =
            recv(socket_of(g, end), (char *)&e->in + e->got, sizeof(e->in) - e->got, MSG_DONTWAIT);
        g->link->talks = true;
        if (got <= 0) {
            e->broken = got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
            return;
        }
        e->got += (size_t)got;
        if (e->got == sizeof(e->in)) {
            e->got = 0;
            take(g, e);
        }
    }
}

/* The next row for that connection; -1: none. */
static int next_row(const struct dp_hang_gather *g, const struct end *e)
{
    for (int i = 0; i < g->group->size; i++) {
        if (g->rows[i].known && !e->passed[i]) {
            return i;
        }
    }
    return -1;
}

static void send_on(struct dp_hang_gather *g, int end)
{
    struct end *e = &g->ends[end];

    while (socket_of(g, end) >= 0) {
        const int row = e->sent == sizeof(e->out) ? next_row(g, e) : -1;
        if (row >= 0) {
            e->out = (struct message){.kind = DP_HOST_LINK_ROW, .row = g->rows[row]};
            e->passed[row] = true;
        } else if (e->sent == sizeof(e->out) && (g->news & ~e->passed_news) != 0) {
            e->out = (struct message){DP_HOST_LINK_ROW, g->news, {0}};
            e->passed_news = g->news;
        } else if (e->sent == sizeof(e->out)) {
            return;
        }
        if (e->sent == sizeof(e->out)) {
            e->sent = 0;
            g->link->talks = true;
        }
        const ssize_t sent = send(socket_of(g, end), (const char *)&e->out + e->sent,
                                  sizeof(e->out) - e->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            e->broken = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
            return;
        }
        e->sent += (size_t)sent;
    }
}

bool dp_hang_gather_look(struct dp_hang_gather *g, bool gives)
{
    const uint64_t now_ns = dp_now_ns();
    const bool told = g != NULL && g->told;

    if (g == NULL) {
        return false;
    }
    g->late = g->late || another_speaks(g);
    for (int i = 0; i < ENDS && gives; i++) {
        receive(g, i);
    }
    for (int i = 0; i < ENDS && gives; i++) {
        send_on(g, i);
    }
    g->late = g->late || (!told && g->told && now_ns - g->looked_ns > late_ns);
    g->looked_ns = now_ns;
    return g->told;
}

void dp_hang_gather_tell(struct dp_hang_gather *g, enum dp_hang_news news)
{
    if (g != NULL && speaks(g)) {
        g->news |= (int)news;
        (void)dp_hang_gather_look(g, true);
    }
}

bool dp_hang_gather_knows(const struct dp_hang_gather *g, enum dp_hang_news news)
{
    return g != NULL && (g->heard & (int)news) != 0;
}

void dp_hang_gather_put(struct dp_hang_gather *g, const struct dp_hang_row *rows, int count)
{
    for (int i = 0; i < count && !g->put && speaks(g); i++) {
        g->rows[rows[i].rank] = rows[i];
    }
    g->put = true;
    (void)dp_hang_gather_look(g, true);
}

bool dp_hang_gather_complete(const struct dp_hang_gather *g)
{
    for (int i = 0; i < g->group->size; i++) {
        if (!g->rows[i].known) {
            return false;
        }
    }
    return true;
}

bool dp_hang_gather_reports(const struct dp_hang_gather *g)
{
    const int *node_of = g->group->node_of;

    for (int i = 0; i < g->group->size && !g->late; i++) {
        if (g->rows[i].known && node_of[i] < node_of[g->group->rank]) {
            return false;
        }
    }
    return !g->late;
}

const struct dp_hang_row *dp_hang_gather_rows(struct dp_hang_gather *g, int *count)
{
    for (int i = 0; i < g->group->size; i++) {
        if (!g->rows[i].known) {
            g->rows[i].rank = i;
            (void)snprintf(g->rows[i].host, sizeof(g->rows[i].host), "%s",
                           dp_host_names_of(g->names, i));
        }
    }
    *count = g->group->size;
    return g->rows;
}
