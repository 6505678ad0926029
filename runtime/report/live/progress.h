/*
 * progress.h - progress for people: one line that is rewritten on a terminal, else a line now and
 * then, and lines that stay.
 */
#ifndef DP_RUNTIME_REPORT_LIVE_PROGRESS_H
#define DP_RUNTIME_REPORT_LIVE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct dp_progress {
    FILE *out; /* stdout; borrowed */
    bool terminal, quiet;
    bool open;        /* the terminal shows a line that has no line end yet */
    uint64_t next_ns; /* when the next line is due */
};

struct dp_progress_step {
    int epoch, epochs; /* from 1; epochs 0: the run counts steps only */
    int64_t step, steps;
    double loss, lr;
    double samples_per_second;
    double efficiency; /* samples_per_second over what the ranks alone would do; NaN: not known */
    double left_s;     /* to the end of the run; NaN: unknown */
};

/* Whether this process's stdout leads to a terminal. `launched`: by mpirun, which may give its
 * ranks a pseudo-terminal whatever its own output is; then the launcher's output decides. */
bool dp_progress_on_terminal(bool launched);

/* terminal: out is one, so the line may be rewritten. quiet: nothing is printed at all. */
void dp_progress_init(struct dp_progress *progress, FILE *out, bool terminal, bool quiet);

/* Shows where the run is, at most every 0.1 s on a terminal, else every 5 s: "epoch 1/3 step
 * 120/705 loss 0.5312 12,345 samples/s lr 0.0500 eta 0:21". On a terminal it has a bar in front,
 * the efficiency once that is known, and no more columns than there are. Cheap in between. */
void dp_progress_step(struct dp_progress *progress, const struct dp_progress_step *step);

/* Prints a line that stays; a line end is added. */
void dp_progress_line(struct dp_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends an open line on the terminal: to be called before anything else is printed there. */
void dp_progress_end(struct dp_progress *progress);

enum { DP_GROUPED_BYTES = 48 };

/* Writes "12,345", or "9.87" below 100 so that three digits are left; "-" if it is not finite.
 * Returns `text`. */
const char *dp_grouped(char text[DP_GROUPED_BYTES], double value);

#endif
