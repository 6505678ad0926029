#define _GNU_SOURCE /* ru_nvcsw, RUSAGE_THREAD */

#include "base/system/usage.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/trace.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 512, LINE_BYTES = 512 };

/* A small file as text; false: it cannot be read. Not by fopen(), which takes a new buffer each
 * time, and asks the kernel for a kilobyte at a time. */
static bool read_text(char text[TEXT_BYTES], const char *path)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got = 1;

    while (file >= 0 && got > 0 && length < TEXT_BYTES - 1) {
        got = read(file, text + length, TEXT_BYTES - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    if (file >= 0) {
        (void)close(file);
    }
    text[length] = '\0';
    return length > 0;
}

/* ---- kinds of threads ---- */

static const struct {
    const char *name;
    enum dp_thread_kind kind;
} thread_names[] = {
    {"dp-engine", DP_THREAD_COMMUNICATION}, {"dp-loader", DP_THREAD_INPUT},
    {"dp-decode", DP_THREAD_INPUT},         {"dp-lane", DP_THREAD_COMPUTE},
    {"dp-writer", DP_THREAD_WRITER},        {"dp-copy", DP_THREAD_WRITER},
    {"dp-report", DP_THREAD_WRITER},
};

enum dp_thread_kind dp_thread_kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof(thread_names) / sizeof(thread_names[0]); i++) {
        if (strcmp(thread_names[i].name, name) == 0) {
            return thread_names[i].kind;
        }
    }
    return strncmp(name, "dp-", 3) == 0 ? DP_THREAD_OTHER : DP_THREAD_COMPUTE;
}

static void add_thread(const char *root, const char *task, struct dp_usage *out)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    uint64_t ran_ns = 0, queued_ns = 0;

    (void)snprintf(path, sizeof(path), "%s/self/task/%.20s/schedstat", root, task);
    if (!read_text(text, path) ||
        sscanf(text, "%" SCNu64 " %" SCNu64, &ran_ns, /* NOLINT(cert-err34-c): the kernel's */
               &queued_ns) != 2) {
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/self/task/%.20s/comm", root, task);
    if (read_text(text, path)) {
        text[strcspn(text, "\n")] = '\0';
        out->thread_ns[dp_thread_kind_of(text)] += ran_ns;
        out->queued_ns += queued_ns;
    }
}

static void add_threads(const char *root, struct dp_usage *out)
{
    char path[PATH_BYTES];
    const struct dirent *entry;
    DIR *folder;

    (void)snprintf(path, sizeof(path), "%s/self/task", root);
    folder = opendir(path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.') {
            add_thread(root, entry->d_name, out);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}

/* self: of the thread that began the process; thread-self: of the calling one. */
static uint64_t queued_of(const char *root, const char *self)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    uint64_t queued_ns = 0;

    (void)snprintf(path, sizeof(path), "%s/%s/schedstat", root, self);
    if (read_text(text, path)) {
        (void)sscanf(text, "%*u %" SCNu64, &queued_ns); /* NOLINT(cert-err34-c): the kernel's */
    }
    return queued_ns;
}

uint64_t dp_thread_queued_ns(void)
{
    return queued_of("/proc", "thread-self");
}

/* ---- CPUs ---- */

/* Whether a list such as "0-3,8" has this number. */
static bool has_number(const char *list, long number)
{
    while (*list != '\0') {
        char *end;
        const long first = strtol(list, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;

        if (end == list || (first <= number && number <= last)) {
            return end != list;
        }
        list = *end == ',' ? end + 1 : end;
    }
    return false;
}

/* Lines "cpu0 user nice system idle ..." stand first, after the sum of all. */
int64_t dp_cpus_busy_ns_from(const char *root, const char *cpus)
{
    const int64_t tick_ns = 1000000000 / sysconf(_SC_CLK_TCK);
    char path[PATH_BYTES], line[LINE_BYTES];
    int64_t ticks = -1;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/stat", root);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL &&
           strncmp(line, "cpu", 3) == 0) {
        long number;
        int64_t user, nice, system;

        if (sscanf(line, /* NOLINT(cert-err34-c): the kernel's */
                   "cpu%ld %" SCNd64 " %" SCNd64 " %" SCNd64, &number, &user, &nice,
                   &system) == 4 &&
            line[3] != ' ' && has_number(cpus, number)) {
            ticks = (ticks < 0 ? 0 : ticks) + user + nice + system;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return ticks < 0 ? -1 : ticks * tick_ns;
}

int64_t dp_cpus_busy_ns(const char *cpus)
{
    return dp_cpus_busy_ns_from("/proc", cpus);
}

/* ---- disks and network ---- */

/* The number after a word; below 0: there is none. */
static int64_t number_after(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    int64_t value;

    return at != NULL && sscanf(at + strlen(word), /* NOLINT(cert-err34-c): the kernel's */
                                "%" SCNd64, &value) == 1
               ? value
               : -1;
}

static int64_t disk_bytes(const char *root)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    int64_t got, put;

    (void)snprintf(path, sizeof(path), "%s/self/io", root);
    if (!read_text(text, path)) {
        return -1;
    }
    got = number_after(text, "\nread_bytes:");
    put = number_after(text, "\nwrite_bytes:");
    return got < 0 || put < 0 ? -1 : got + put;
}

/* Two lines of headings, then "  eth0: bytes in ... (8 columns) bytes out ...". */
static int64_t net_bytes(const char *root)
{
    char path[PATH_BYTES], text[TEXT_BYTES], *line, *next;
    int64_t sum = -1;

    (void)snprintf(path, sizeof(path), "%s/net/dev", root);
    if (!read_text(text, path)) {
        return -1;
    }
    for (line = text; line != NULL && *line != '\0'; line = next) {
        const char *colon = strchr(line, ':'), *end = strchr(line, '\n');
        uint64_t in, out;

        next = end == NULL ? NULL : line + (end - line) + 1;
        line += strspn(line, " ");
        if (colon == NULL || (end != NULL && colon > end)) {
            continue;
        }
        sum = sum < 0 ? 0 : sum;
        if (strncmp(line, "lo:", 3) != 0 &&
            sscanf(colon + 1, /* NOLINT(cert-err34-c): the kernel's */
                   "%" SCNu64 " %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &in, &out) == 2) {
            sum += (int64_t)(in + out);
        }
    }
    return sum;
}

/* ---- all of it ---- */

static uint64_t in_ns(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_usec * 1000u;
}

void dp_usage_read_from(const char *root, struct dp_usage *out)
{
    struct rusage used;

    memset(out, 0, sizeof(*out));
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        out->cpu_ns = in_ns(&used.ru_utime) + in_ns(&used.ru_stime);
        out->minor_faults = (uint64_t)used.ru_minflt;
        out->major_faults = (uint64_t)used.ru_majflt;
        out->waits = (uint64_t)used.ru_nvcsw;
        out->preempted = (uint64_t)used.ru_nivcsw;
    }
    if (getrusage(RUSAGE_THREAD, &used) == 0) {
        out->own_user_ns = in_ns(&used.ru_utime);
    }
    out->own_queued_ns = queued_of(root, "self");
    add_threads(root, out);
    out->disk_bytes = disk_bytes(root);
    out->net_bytes = net_bytes(root);
}

void dp_usage_read(struct dp_usage *out)
{
    dp_usage_read_from("/proc", out);
}

/* Of threads that have ended the later reading knows nothing. */
static uint64_t more(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

static int64_t add_known(int64_t sum, int64_t from, int64_t to)
{
    return sum < 0 || from < 0 || to < 0 ? -1 : sum + (to > from ? to - from : 0);
}

void dp_usage_add(struct dp_usage *sum, const struct dp_usage *from, const struct dp_usage *to)
{
    for (int i = 0; i < DP_THREAD_KIND_COUNT; i++) {
        sum->thread_ns[i] += more(from->thread_ns[i], to->thread_ns[i]);
    }
    sum->cpu_ns += more(from->cpu_ns, to->cpu_ns);
    sum->queued_ns += more(from->queued_ns, to->queued_ns);
    sum->own_user_ns += more(from->own_user_ns, to->own_user_ns);
    sum->own_queued_ns += more(from->own_queued_ns, to->own_queued_ns);
    sum->minor_faults += more(from->minor_faults, to->minor_faults);
    sum->major_faults += more(from->major_faults, to->major_faults);
    sum->waits += more(from->waits, to->waits);
    sum->preempted += more(from->preempted, to->preempted);
    sum->disk_bytes = add_known(sum->disk_bytes, from->disk_bytes, to->disk_bytes);
    sum->net_bytes = add_known(sum->net_bytes, from->net_bytes, to->net_bytes);
}

void dp_usage_look(struct dp_usage_brief *brief, bool causes)
{
    char text[TEXT_BYTES];
    struct rusage used;
    uint64_t pages, shared, ticks;

    if (getrusage(RUSAGE_SELF, &used) == 0) {
        brief->major_faults = (uint64_t)used.ru_majflt;
        brief->peak_bytes = (uint64_t)used.ru_maxrss * 1024;
    }
    /* NOLINTBEGIN(cert-err34-c): the kernel wrote them */
    if (causes && read_text(text, "/proc/self/schedstat")) {
        (void)sscanf(text, "%*u %" SCNu64, &brief->queued_ns);
    }
    if (read_text(text, "/proc/self/statm") &&
        sscanf(text, "%*u %" SCNu64 " %" SCNu64, &pages, &shared) == 2) {
        brief->rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
        brief->own_bytes = (pages - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    if (causes && read_text(text, "/proc/stat") &&
        sscanf(text, "cpu %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &ticks) == 1) {
        brief->stolen_ns = ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
    }
    /* NOLINTEND(cert-err34-c) */
}

/* ---- energy ---- */

static bool read_number(const char *path, const char *name, uint64_t *out)
{
    char whole[PATH_BYTES], text[TEXT_BYTES];

    (void)snprintf(whole, sizeof(whole), "%s/%s", path, name);
    return read_text(text, whole) &&
           sscanf(text, "%" SCNu64, out) == 1; /* NOLINT(cert-err34-c): the kernel's */
}

/* Packages are intel-rapl:0, intel-rapl:1 and so on, also of AMD; what is in one has two colons. */
void dp_energy_begin(struct dp_energy *e, const char *root)
{
    const int most = (int)(sizeof(e->package) / sizeof(e->package[0]));

    memset(e, 0, sizeof(*e));
    for (int i = 0; i < most; i++) {
        char *path = e->package[e->packages].path;
        uint64_t *last = &e->package[e->packages].last_uj;
        uint64_t *range = &e->package[e->packages].range_uj;

        (void)snprintf(path, sizeof(e->package[0].path), "%.64s/intel-rapl:%d", root, i);
        e->packages +=
            read_number(path, "energy_uj", last) && read_number(path, "max_energy_range_uj", range);
    }
}

void dp_energy_add(struct dp_energy *e)
{
    for (int i = 0; i < e->packages; i++) {
        const uint64_t last = e->package[i].last_uj;
        uint64_t now = last;

        if (!read_number(e->package[i].path, "energy_uj", &now)) {
            continue;
        }
        e->joules += (double)(now >= last ? now - last : e->package[i].range_uj - last + now) / 1e6;
        e->package[i].last_uj = now;
    }
}

/* ---- clock ---- */

enum { CHAIN = 16384, TRIES = 3 };

#if defined(__x86_64__) || defined(__aarch64__)
/* The compiler can neither shorten the chain nor join its additions. They add registers: processors
 * take constants together. */
static uint64_t add_chain(uint64_t value, uint64_t more)
{
    for (int i = 0; i < CHAIN / 8; i++) {
#if defined(__x86_64__)
        __asm__ volatile("add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\t"
                         "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0"
                         : "+r"(value)
                         : "r"(more)
                         : "cc");
#else
        __asm__ volatile("add %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\t"
                         "add %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1\n\tadd %0, %0, %1"
                         : "+r"(value)
                         : "r"(more));
#endif
    }
    return value;
}

double dp_clock_ghz(void)
{
    uint64_t least_ns = UINT64_MAX;
    volatile uint64_t kept = 0;

    for (int i = 0; i < TRIES; i++) {
        const uint64_t begin_ns = dp_now_ns();
        kept = add_chain(kept, begin_ns);
        const uint64_t took_ns = dp_now_ns() - begin_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
    }
    return least_ns == 0 ? 0.0 : (double)CHAIN / (double)least_ns;
}
#else
double dp_clock_ghz(void)
{
    return 0.0;
}
#endif
