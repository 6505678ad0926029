/*
 * watchdog.h - finds out that the ranks of this host make no progress, and which of them is the
 * cause.
 *
 * Each rank publishes where it is (dp_trace_publish()) in memory that its host shares, so a rank
 * that is stopped or stuck needs not answer. Ranks that train together wait for each other: if none
 * of them opens or closes a span for longer than the limit, the job hangs. A rank that waits for
 * others is not the cause (hang_table.h).
 *
 *   activity                limit
 *   a step                  train.hang_timeout_s; 0: five times the slowest step so far, at least
 *                           10 s, with other hosts 5 s more than an outage may take; for the first
 *                           step 60 s
 *   saving, evaluating,     train.hang_timeout_s; 0: 30 s, with other hosts as in a step. At least
 *   measuring, between      five times the slowest one so far, and for the first one 60 s
 *   the same, while a call  five times the slowest one so far, at least train.unseen_timeout_s.
 *   changes a file; start;  What is waited for there may take as long: storage, or one rank that
 *   waiting for hosts that  works alone. Where all of a host wait, or start, and none is stopped,
 *   cannot be seen          it counts from the last progress of any host (host_progress.h). Where
 *                           a timeout is set it holds for waiting in evaluations and between steps,
 *                           as above, unless a rank evaluates beside steps (DP_AWAIT_ONE()); and
 *                           while a rank of this host is stopped, or does anything but wait,
 *                           nobody is waited for unseen
 *   what all ranks have     train.hang_timeout_s, at least 10 s; 0: 30 s, with other hosts 5 s more
 *   begun together, in      than an outage may take. At least five times such a part (DP_EXPECT()):
 *   parts of known length   links, strategies and so on, which are measured
 *   the caller's own code   none
 *   idle: no work has come  none; the other ranks of the host have theirs
 *   beside steps            the same, and what it does is no progress of theirs, until they wait
 *   (DP_WORK_BESIDE())      for it: while they do, one of them that stops is not seen
 *
 * Time in which this process did not run, as when the whole job is suspended, does not count. Nor
 * does time in which a debugger holds a rank.
 */
#ifndef DP_COLLECTIVES_WORLD_WATCHDOG_H
#define DP_COLLECTIVES_WORLD_WATCHDOG_H

#include "base/status.h"
#include "base/system/process.h"
#include "base/trace.h"
#include "collectives/world/hang_table.h"

struct dp_watchdog;

/* What a rank is asked for, and says by itself; zeroed: nothing. In memory that its host shares. */
struct dp_watchdog_question {
    atomic_int on_disk;          /* calls that change files, and have not returned (disk.h) */
    atomic_int asked, given;     /* how often it was asked, and which time it last answered */
    atomic_int reporter;         /* of the first rank: 1 and the rank that reports; 0: none yet */
    atomic_int ended;            /* it knows that another host has reported why the job ends */
    atomic_int heard;            /* how often it has heard that another host makes progress */
    char stacks[DP_HANG_STACKS]; /* complete where both are equal */
};

struct dp_watchdog_rank {
    int rank;
    int64_t process;                       /* its number */
    const struct dp_trace_mark *mark;      /* borrowed */
    struct dp_watchdog_question *question; /* borrowed; NULL: it is asked nothing */
};

struct dp_watchdog_config {
    const struct dp_watchdog_rank *ranks; /* [count], of this host, ascending; copied */
    int count;
    int self;         /* this rank */
    const char *host; /* its name; copied */
    bool others;      /* ranks here may wait for ranks that cannot be seen from here */
    void (*look)(int64_t process, struct dp_process_doing *out); /* dp_process_look() */
};

enum dp_watchdog_finding {
    DP_WATCHDOG_FINE,
    DP_WATCHDOG_QUIET, /* no progress for half of the limit; found once, until there is some */
    DP_WATCHDOG_HUNG   /* no progress for the whole of it; found each time from then on */
};

/* Errors: DP_ERR_NOMEM. */
DP_CHECKED dp_status dp_watchdog_create(const struct dp_watchdog_config *config,
                                        struct dp_watchdog **out);

/* The limit; 0, as at first: by the slowest step so far, and so on. Callable from any thread. */
void dp_watchdog_set_timeout(struct dp_watchdog *watchdog, double seconds);

/* How long what cannot be seen may take without progress; DP_HANG_UNSEEN_S at first. Callable from
 * any thread. */
enum { DP_HANG_UNSEEN_S = 300 };
void dp_watchdog_set_unseen(struct dp_watchdog *watchdog, double seconds);

/* How long other hosts may be silent, which is no hang; 0 at first. Callable from any thread. */
void dp_watchdog_allow_outage(struct dp_watchdog *watchdog, int seconds);

/* Looks at all ranks; to be called several times a second, by one thread, which also calls what
 * follows. now_ns: dp_now_ns(). */
enum dp_watchdog_finding dp_watchdog_look(struct dp_watchdog *watchdog, uint64_t now_ns);

/* Whether this rank is the one to report: the first one of the host whose process runs. */
bool dp_watchdog_reports(const struct dp_watchdog *watchdog);

/* Takes the report of a hang for this rank, so that there is one: false where another rank of this
 * host has it. And gives it back, since there is progress again. */
bool dp_watchdog_claim(const struct dp_watchdog *watchdog);
void dp_watchdog_disclaim(const struct dp_watchdog *watchdog);

/* This rank has heard that another host has reported a death, by which the job ends; whether a rank
 * of this host has. */
void dp_watchdog_note_end(const struct dp_watchdog *watchdog);
bool dp_watchdog_ends(const struct dp_watchdog *watchdog);

/* Logs a warning: who keeps the others waiting, and when the job will end. */
void dp_watchdog_warn(struct dp_watchdog *watchdog);

/* Asks the ranks of this host for their stacks, which the rank that reports does; whether all that
 * run have answered. */
void dp_watchdog_ask(const struct dp_watchdog *watchdog);
bool dp_watchdog_answered(const struct dp_watchdog *watchdog);

/* Answers for this rank if it is asked and has not yet, and says whether it waits for a disk; by
 * the thread that looks, each time before it does. */
void dp_watchdog_answer(const struct dp_watchdog *watchdog);

/* Where the ranks of this host were at the last look: [*count], borrowed until the next call. */
const struct dp_hang_row *dp_watchdog_rows(struct dp_watchdog *watchdog, int *count);

/* Seconds without progress at the last look, also of other hosts where this one waits for them
 * unseen; whether ranks here may wait for ranks that cannot be
 * seen from here. */
double dp_watchdog_quiet_s(const struct dp_watchdog *watchdog);
bool dp_watchdog_has_others(const struct dp_watchdog *watchdog);

/* NULL is ignored. */
void dp_watchdog_destroy(struct dp_watchdog *watchdog);

#endif
