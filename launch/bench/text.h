/*
 * text.h - a text of clauses that grows while it is written.
 */
#ifndef DP_LAUNCH_BENCH_TEXT_H
#define DP_LAUNCH_BENCH_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed: empty. */
struct dp_bench_text {
    char *at; /* owned; NULL: empty */
    size_t used, capacity;
    bool failed; /* an allocation has failed */
};

void dp_bench_say(struct dp_bench_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Clauses are separated by semicolons. */
void dp_bench_say_clause(struct dp_bench_text *text);

/* "2.5x", "64K". */
void dp_bench_say_times(struct dp_bench_text *text, double times);
void dp_bench_say_size(struct dp_bench_text *text, double bytes);

#endif
