/*
 * one_speaker.h - which rank of a host reports an error that several may have found at the same
 * time, each by itself, so that there is one line. Where only one has found it that one does; the
 * line is never lost, though a rank may die before it has written.
 */
#ifndef DP_COLLECTIVES_WORLD_ONE_SPEAKER_H
#define DP_COLLECTIVES_WORLD_ONE_SPEAKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In memory that the ranks of the host share; zeroed at first. */
struct dp_one_speaker {
    atomic_int who; /* 1 and the rank that reports; DP_ONE_HAS_SPOKEN: it has; 0: nobody yet */
};

enum { DP_ONE_HAS_SPOKEN = -1 };

/* Whether this rank is to report it: the first that calls this, which calls dp_one_speaker_end()
 * afterwards. Others wait until it has, for most_ns at most; if it has not by then they are to. */
bool dp_one_speaker_begin(struct dp_one_speaker *speaker, int rank, uint64_t most_ns);
void dp_one_speaker_end(struct dp_one_speaker *speaker);

#endif
