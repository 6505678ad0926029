/*
 * progress.h - progress for people: one line that is rewritten on a terminal, else a line now and
 * then, and lines that stay.
 */
#ifndef DP_RUNTIME_REPORT_LIVE_PROGRESS_H
#define DP_RUNTIME_REPORT_LIVE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { DP_PROGRESS_BYTES = 320 };

struct dp_progress {
    FILE *out; /* stdout; borrowed */
    bool terminal, quiet;
    uint64_t next_ns;              /* when the next line is due */
    char shown[DP_PROGRESS_BYTES]; /* on the terminal, last */
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

/* From now on lines of the log that go to a terminal take the place of the line that is rewritten,
 * which is drawn again below. `launched`: as above. For the whole process. */
void dp_progress_make_way(bool launched);

/* terminal: out is one, so the line may be rewritten. quiet: nothing is printed at all. */
void dp_progress_init(struct dp_progress *progress, FILE *out, bool terminal, bool quiet);

/* Shows where the run is, at most every 0.1 s on a terminal, else every 5 s: "epoch 1/3 step
 * 120/705 loss 0.5312 12,345 samples/s lr 0.0500 eta 0:21". On a terminal it has a bar in front,
 * the efficiency once that is known, and no more columns than there are. Cheap in between. */
void dp_progress_step(struct dp_progress *progress, const struct dp_progress_step *step);

/* On a terminal: shows a line that is rewritten by the next one, and erases it. */
void dp_progress_rewrite(struct dp_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void dp_progress_erase(struct dp_progress *progress);

/* Prints a line that stays; a line end is added. */
void dp_progress_line(struct dp_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends an open line on the terminal: to be called before anything else is printed there, and before
 * `progress` is released. */
void dp_progress_end(struct dp_progress *progress);

enum { DP_GROUPED_BYTES = 48 };

/* Writes "12,345", or "9.87" below 100 so that three digits are left; "-" if it is not finite.
 * Returns `text`. */
const char *dp_grouped(char text[DP_GROUPED_BYTES], double value);

/* "0.3508"; of a run that diverges it may be anything: "2.032e+06", "nan". Returns `text`. */
const char *dp_loss_text(char text[DP_GROUPED_BYTES], double loss);

/* A count of things, always whole: "12", "12,345". Returns `text`. */
const char *dp_grouped_count(char text[DP_GROUPED_BYTES], uint64_t count);

#endif
