/*
 * stop.h - requests from outside to stop or to save: by signals, and by a deadline.
 *
 * A request is only stored here. The run checks it between steps, and in long evaluations and
 * measurements, and sends it to the other ranks, so that all of them stop or save after the same
 * step. The code that handles signals (the program, never this library) owns one of these.
 */
#ifndef DP_RUNTIME_CONTROL_STOP_H
#define DP_RUNTIME_CONTROL_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Why a rank must stop: a name, and the text that begins the reason of the run's end. The last one
 * comes from the run itself. */
#define DP_STOP_CAUSES(X)                                  \
    X(NONE, "nothing")                                     \
    X(USR1, "SIGUSR1")                                     \
    X(TERM, "SIGTERM")                                     \
    X(INT, "SIGINT")                                       \
    X(HUP, "SIGHUP")                                       \
    X(PIPE, "its output has no reader any more (SIGPIPE)") \
    X(TIME, "--max-time is over")                          \
    X(WRITE, "metrics.jsonl cannot be written")

enum dp_stop_cause {
#define X(name, text) DP_STOP_##name,
    DP_STOP_CAUSES(X)
#undef X
        DP_STOP_CAUSE_COUNT
};

const char *dp_stop_text(enum dp_stop_cause cause);

/* Zeroed: no request. */
struct dp_stop {
    atomic_int cause; /* an enum dp_stop_cause: the first request */
    atomic_int save;
    uint64_t deadline_ns; /* by dp_now_ns(); 0: none. Not for signal handlers */
};

/* Both may be called from a signal handler, on any thread; but handlers must not run on threads
 * that compute (launch/ddp_train.c explains why). The first cause is kept. */
void dp_stop_request(struct dp_stop *stop, enum dp_stop_cause cause);
void dp_stop_request_save(struct dp_stop *stop);

/* Sets the deadline of a process that has run for `age_s` seconds and may run for `allowed_s`. */
void dp_stop_set_deadline(struct dp_stop *stop, double allowed_s, double age_s);

/* The requests of this rank; a deadline that has passed counts. `stop` NULL: none, ever. */
enum dp_stop_cause dp_stop_asked(const struct dp_stop *stop);
bool dp_stop_save_asked(const struct dp_stop *stop);

/* A save begins: it fulfils all requests to save so far. */
void dp_stop_saving(struct dp_stop *stop);

#endif
