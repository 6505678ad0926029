/*
 * stability.h - how steady a run is: samples/s in windows over its steady steps, in memory that
 * does not grow, and why the rate at the end is not that at the beginning.
 *
 * A window closes with the step that makes it long enough. When all windows are in use, neighbours
 * are joined, and windows are twice as long from then on.
 */
#ifndef DP_RUNTIME_REPORT_RESOURCES_STABILITY_H
#define DP_RUNTIME_REPORT_RESOURCES_STABILITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DP_STABILITY_WINDOWS = 64 };
#define DP_STABILITY_FIRST_NS 100000000u /* a window's least time at first */

/* What may explain a change; sums, so that windows can be joined. */
struct dp_stability_causes {
    double ghz_sum;   /* clock of a core of the processor, or of the GPU */
    uint64_t looks;   /* how many clocks are in that sum; 0: it is not known */
    uint64_t over_ns; /* the time in which what follows happened */
    uint64_t queued_ns, stolen_ns, major_faults; /* base/system/usage.h */
};

struct dp_stability_window {
    uint64_t ns, samples;
    struct dp_stability_causes causes;
};

/* Zeros: nothing yet. */
struct dp_stability {
    struct dp_stability_window windows[DP_STABILITY_WINDOWS], open;
    int count;
    uint64_t least_ns; /* 0: DP_STABILITY_FIRST_NS */
};

/* A step of the whole run: its time and its samples. */
void dp_stability_add(struct dp_stability *stability, uint64_t ns, uint64_t samples);

/* What was seen since the last look, of the window that is open. */
void dp_stability_note(struct dp_stability *stability, const struct dp_stability_causes *causes);

struct dp_stability_found {
    int count;       /* of windows */
    double window_s; /* their mean length; NaN without any */
    double cv;       /* standard deviation of their rates over the mean; NaN: fewer than 4 */
    double drift;    /* rate of the last quarter over that of the first, less 1; NaN likewise */
    bool drifts;     /* by more than a tenth, and by more than the windows vary, in a run that is
                      * long enough to tell */
};

struct dp_stability_found dp_stability_find(const struct dp_stability *stability);

/* Samples/s of a window. */
double dp_stability_rate(const struct dp_stability *stability, int window);

/* The likely cause of a drift in words: "the clock went from 3.1 to 2.4 GHz". */
void dp_stability_cause(const struct dp_stability *stability, char *text, size_t size);

#endif
