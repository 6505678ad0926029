#include "base/system/process_tag.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/system/process.h"

void dp_process_host(char host[DP_HOST_BYTES])
{
    char name[256] = "";

    if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') {
        (void)snprintf(name, sizeof(name), "localhost");
    }
    for (char *c = name; *c != '\0'; c++) {
        *c = isalnum((unsigned char)*c) || *c == '.' || *c == '-' ? *c : '_';
    }
    (void)snprintf(host, DP_HOST_BYTES, "%.63s", name);
}

/* The number of this process's pid namespace; 0: the system does not report it. */
static unsigned long long read_namespace(void)
{
    static const char before[] = "pid:[";
    char target[64] = "";

    if (readlink("/proc/self/ns/pid", target, sizeof(target) - 1) <= 0 ||
        strncmp(target, before, sizeof(before) - 1) != 0) {
        return 0;
    }
    return strtoull(target + sizeof(before) - 1, NULL, 10);
}

void dp_process_tag(char tag[DP_PROCESS_TAG_BYTES])
{
    char host[DP_HOST_BYTES];

    dp_process_host(host);
    (void)snprintf(tag, DP_PROCESS_TAG_BYTES, "%s-%llu-%ld.%llu", host, read_namespace(),
                   (long)getpid(), (unsigned long long)dp_process_start(getpid()));
}

/* The start of the number, after this letter, that ends `text` at `end`; NULL: there is none. */
static const char *last_number(const char *text, const char *end, char before)
{
    const char *digits = end;

    while (digits > text && isdigit((unsigned char)digits[-1])) {
        digits--;
    }
    return digits < end && end - digits < 21 && digits - text > 1 && digits[-1] == before ? digits
                                                                                          : NULL;
}

/* Whether the process of that number is the one that started then; 0: not known. One that has ended
 * writes nothing any more, whoever should wait for it. */
static bool lives(long number, uint64_t start)
{
    uint64_t now;

    if (number <= 0 || (long)(pid_t)number != number) {
        return true;
    }
    if ((kill((pid_t)number, 0) != 0 && errno == ESRCH) || dp_process_is_zombie(number)) {
        return false;
    }
    now = dp_process_start(number);
    return start == 0 || now == 0 || now == start;
}

enum dp_process_state dp_process_judge(const char *tag)
{
    const char *end = tag + strlen(tag), *start = last_number(tag, end, '.');
    const char *pid = last_number(tag, start == NULL ? end : start - 1, '-');
    const char *name_space = pid == NULL ? NULL : last_number(tag, pid - 1, '-');
    char mine[DP_PROCESS_TAG_BYTES];
    size_t place;
    long number;

    if (name_space == NULL) {
        return DP_PROCESS_NO_TAG;
    }
    dp_process_tag(mine);
    place = (size_t)(strrchr(mine, '-') + 1 - mine);
    if ((size_t)(pid - tag) != place || memcmp(tag, mine, place) != 0) {
        return DP_PROCESS_UNKNOWN;
    }
    number = strtol(pid, NULL, 10);
    if (number == (long)getpid()) {
        return DP_PROCESS_GONE;
    }
    return lives(number, start == NULL ? 0 : strtoull(start, NULL, 10)) ? DP_PROCESS_ALIVE
                                                                        : DP_PROCESS_GONE;
}
