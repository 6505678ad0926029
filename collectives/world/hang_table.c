#include "collectives/world/hang_table.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/trace.h"

/* Whether `a` has come less far than `b`, both of which wait in a step. */
static bool is_before(const struct dp_hang_row *a, const struct dp_hang_row *b)
{
    return a->activity == DP_PHASE_STEP && b->activity == DP_PHASE_STEP &&
           (a->step < b->step || (a->step == b->step && a->bucket < b->bucket));
}

/* Whether nobody waits for it. */
static bool is_aside(const struct dp_hang_row *rows, int count, const struct dp_hang_row *r)
{
    for (int i = 0; r->beside && i < count; i++) {
        if (rows[i].rounds) {
            return false;
        }
    }
    return r->idles || r->beside;
}

static bool is_missing(const struct dp_hang_row *rows, int count, const struct dp_hang_row *r)
{
    if (is_aside(rows, count, r)) {
        return false;
    }
    if (!r->waits) {
        return true;
    }
    for (int i = 0; i < count; i++) {
        if (!is_aside(rows, count, &rows[i]) && !rows[i].waits) {
            return false; /* that one is the cause, and r may wait for it */
        }
    }
    for (int i = 0; i < count; i++) {
        if (is_before(r, &rows[i])) {
            return true;
        }
    }
    return false;
}

bool dp_hang_table_blames(const struct dp_hang_row *rows, int count, int rank)
{
    for (int i = 0; i < count; i++) {
        if (rows[i].rank == rank) {
            return is_missing(rows, count, &rows[i]);
        }
    }
    return false;
}

static bool on_one_host(const struct dp_hang_row *rows, int count)
{
    for (int i = 1; i < count; i++) {
        if (strcmp(rows[i].host, rows[0].host) != 0) {
            return false;
        }
    }
    return true;
}

void dp_hang_table_cause(const struct dp_hang_row *rows, int count, bool others, char *out,
                         size_t size)
{
    size_t used = 0;
    int missing = 0;

    out[0] = '\0';
    for (int i = 0; i < count; i++) {
        const struct dp_hang_row *r = &rows[i];
        if (is_missing(rows, count, r) && used < size) {
            used += (size_t)snprintf(out + used, size - used, "%srank %d (%s): %s%s%s",
                                     missing++ == 0 ? "did not arrive: " : ", ", r->rank, r->host,
                                     r->known ? r->doing : "does not answer",
                                     r->known ? ", phase " : "", r->known ? r->phase : "");
        }
    }
    if (missing == 0 && on_one_host(rows, count)) {
        (void)snprintf(out, size, "all ranks of host %s wait%s", rows[0].host,
                       others ? " for ranks that cannot be seen from here" : " for each other");
    } else if (missing == 0) {
        (void)snprintf(out, size, "all ranks wait for each other");
    }
}

/* The stacks below a row: a line a thread. */
static void print_stacks(const char *stacks, bool all)
{
    while (*stacks != '\0') {
        const int length = (int)strcspn(stacks, "\n");
        dp_text_line(stderr, "       %.*s", length, stacks);
        stacks += all ? length + (stacks[length] == '\n') : (int)strlen(stacks);
    }
}

static void print_row(const struct dp_hang_row *r, int width)
{
    char step[24] = "-", bucket[24] = "-";

    if (!r->known) {
        dp_text_line(stderr, "%4d %-*s %8s %6s %-10s %8s  does not answer", r->rank, width, r->host,
                     "-", "-", "-", "-");
        return;
    }
    (void)snprintf(step, sizeof(step), "%lld", r->step);
    if (r->activity == DP_PHASE_STEP && r->bucket >= 0) {
        (void)snprintf(bucket, sizeof(bucket), "%lld", r->bucket);
    }
    dp_text_line(stderr, "%4d %-*s %8s %6s %-10s %8.1f  %s%s%s%s", r->rank, width, r->host, step,
                 bucket, r->phase, r->since_s, r->doing, r->kernel[0] == '\0' ? "" : " (",
                 r->kernel, r->kernel[0] == '\0' ? "" : ")");
}

void dp_hang_table_report(const struct dp_hang_row *rows, int count, bool others, double quiet_s,
                          bool resumes)
{
    char cause[1024];
    int width = 4;

    for (int i = 0; i < count; i++) {
        const int length = (int)strlen(rows[i].host);
        width = length > width ? length : width;
    }
    dp_text_line(stderr, "%4s %-*s %8s %6s %-10s %8s  %s", "rank", width, "host", "step", "bucket",
                 "phase", "since_s", "process");
    for (int i = 0; i < count; i++) {
        print_row(&rows[i], width);
        print_stacks(rows[i].stacks, is_missing(rows, count, &rows[i]));
    }
    dp_hang_table_cause(rows, count, others, cause, sizeof(cause));
    dp_log(DP_LOG_ERROR, __FILE__, __LINE__,
           "no progress for %.1f s: %s; the job ends, start it again%s", quiet_s, cause,
           resumes ? " with --resume" : "");
}
