/*
 * process_tag.h - which process made a file: text for its name, from which others can judge later
 * whether that process still lives.
 */
#ifndef DP_BASE_PROCESS_TAG_H
#define DP_BASE_PROCESS_TAG_H

enum { DP_PROCESS_TAG_BYTES = 128, DP_HOST_BYTES = 64 };

enum dp_process_state {
    DP_PROCESS_NO_TAG,
    DP_PROCESS_GONE,   /* it has ended, or is the caller itself */
    DP_PROCESS_ALIVE,  /* or another one has its number by now */
    DP_PROCESS_UNKNOWN /* of another host or container, where its number means nothing here */
};

/* The name of this host, in letters that file names and messages can have. */
void dp_process_host(char host[DP_HOST_BYTES]);

/* "HOST-NAMESPACE-PID" of the calling process: its number counts within one namespace of one
 * host. */
void dp_process_tag(char tag[DP_PROCESS_TAG_BYTES]);

/* What has become of the process that made `tag`, which may be any text. */
enum dp_process_state dp_process_judge(const char *tag);

#endif
