/*
 * pass_events.h - for tests: what a pass without tiles reads and writes, call by call, as the
 * layers do it, and not as their plans say; and what memory is in use then.
 *
 * Memory is numbered: each storage of the model, then each slot.
 */
#ifndef DP_TESTS_SUPPORT_MODELS_PASS_EVENTS_H
#define DP_TESTS_SUPPORT_MODELS_PASS_EVENTS_H

#include "models/model.h"

enum event_kind {
    EVENT_FORWARD,
    EVENT_LOSS,
    EVENT_AGAIN, /* forward once more, of a model in parts */
    EVENT_BACKWARD,
    EVENT_BACKWARD_DATA,
};

enum { EVENT_READS = 10, EVENT_WRITES = 3 };

struct pass_event {
    enum event_kind kind;
    int node;
    int reads[EVENT_READS], read_count;
    int writes[EVENT_WRITES], write_count; /* from anew; in place is a read */
};

struct pass_events {
    const struct dp_model *model; /* borrowed */
    struct pass_event *events;    /* owned */
    int count;
    int memories;
    bool *used; /* owned; [count, memories]: at each event; of what it reads and writes, too */
};

/* On the main thread only: uses cmocka's assertions. */
struct pass_events pass_events_of(const struct dp_model *model, enum dp_pass_use use);
void pass_events_release(struct pass_events *events);

/* The number of an event; fails the test where there is none. */
int pass_event_find(const struct pass_events *events, enum event_kind kind, int node);

/* Elements per sample. */
size_t memory_count(const struct dp_model *model, int memory);

#endif
