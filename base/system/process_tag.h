/*
 * process_tag.h - a text for the name of a file that says which process made it, so that others can
 * find out later whether that process still lives.
 */
#ifndef DP_BASE_SYSTEM_PROCESS_TAG_H
#define DP_BASE_SYSTEM_PROCESS_TAG_H

enum { DP_PROCESS_TAG_BYTES = 128, DP_HOST_BYTES = 64 };

enum dp_process_state {
    DP_PROCESS_NO_TAG,
    DP_PROCESS_GONE,   /* it has ended, or is the caller itself */
    DP_PROCESS_ALIVE,  /* or the tag does not say when it started, and another one has its number */
    DP_PROCESS_UNKNOWN /* of another host or container, where its number is meaningless */
};

/* The name of this host, with letters that are valid in file names and messages. */
void dp_process_host(char host[DP_HOST_BYTES]);

/* "HOST-NAMESPACE-PID.START" of the calling process: its number is unique in one namespace of one
 * host, but used again later, in a container soon. START: dp_process_start(). */
void dp_process_tag(char tag[DP_PROCESS_TAG_BYTES]);

/* The state of the process that made `tag`, which may be any text; without ".START" it is of an
 * earlier version. */
enum dp_process_state dp_process_judge(const char *tag);

#endif
