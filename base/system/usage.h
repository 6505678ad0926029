/*
 * usage.h - what this process has used so far: processor time by kind of thread, waits for a core,
 * page faults, bytes to and from disks; and what its host has: network, energy.
 *
 * All are counts since the process or the host began: the difference of two readings is what was
 * used between them. Sources: proc(5), getrusage(2), the kernel's power capping framework (RAPL).
 */
#ifndef DP_BASE_SYSTEM_USAGE_H
#define DP_BASE_SYSTEM_USAGE_H

#include <stdbool.h>
#include <stdint.h>

/* Kinds of threads: name, key in run.json. Threads that libraries start have the main thread's
 * name, and count as computing. */
#define DP_THREAD_KINDS(X)            \
    X(COMPUTE, "compute")             \
    X(COMMUNICATION, "communication") \
    X(INPUT, "input")                 \
    X(WRITER, "writer")               \
    X(OTHER, "other")

enum dp_thread_kind {
#define X(name, key) DP_THREAD_##name,
    DP_THREAD_KINDS(X)
#undef X
        DP_THREAD_KIND_COUNT
};

/* The kind of a thread by its name: DP_THREAD_INPUT of "dp-loader". */
enum dp_thread_kind dp_thread_kind_of(const char *name);

/* What the main thread met lately. */
struct dp_usage_brief {
    uint64_t queued_ns;    /* it was ready, and other threads had its core */
    uint64_t stolen_ns;    /* other virtual machines had cores of this host */
    uint64_t major_faults; /* of the process: pages that were on a disk */
    uint64_t rss_bytes;    /* resident memory of the process, now */
    uint64_t own_bytes;    /* of it, what is neither shared nor of a file */
    uint64_t peak_bytes;   /* most that was ever resident */
};

/* What cannot be read stays as it was, which is 0 at first. Without causes the two times stay, too:
 * the kernel counts all CPUs for them, which is too much for ten times a second. */
void dp_usage_look(struct dp_usage_brief *brief, bool causes);

struct dp_usage {
    uint64_t cpu_ns;                          /* of the process */
    uint64_t thread_ns[DP_THREAD_KIND_COUNT]; /* of threads that live now */
    uint64_t queued_ns;                       /* these were ready, and had no core */
    uint64_t own_user_ns;                     /* of the calling thread, outside of the kernel */
    uint64_t own_queued_ns;                   /* it was ready, and had no core */
    uint64_t minor_faults, major_faults;      /* pages that were in memory, or on a disk */
    uint64_t waits, preempted;                /* context switches: by itself, or by others */
    int64_t disk_bytes;                       /* read and written; below 0: not known */
    int64_t net_bytes; /* of the network namespace, both ways, without loopback; below 0: not known
                        */
};

/* Of the main thread, whose times are in it. One file or two of /proc for each thread, so not for
 * every second. */
void dp_usage_read(struct dp_usage *out);

/* Adds to `sum` what was used from one reading to the next. What is not known in one of them is not
 * known in the sum. */
void dp_usage_add(struct dp_usage *sum, const struct dp_usage *from, const struct dp_usage *to);

/* The same from the files below `root` in place of "/proc". */
void dp_usage_read_from(const char *root, struct dp_usage *out);

/* What all programs together have had of these CPUs ("0-3,8"), in ns of processor time, without
 * interrupts; below 0: not known. The kernel counts in hundredths of a second. */
int64_t dp_cpus_busy_ns(const char *cpus);

/* The same from the files below `root`. */
int64_t dp_cpus_busy_ns_from(const char *root, const char *cpus);

/* What the calling thread waited for a core so far, while it was ready; 0: not known. */
uint64_t dp_thread_queued_ns(void);

/* Processor energy of this host, as the kernel counts it: all packages, without memory. */
struct dp_energy {
    int packages; /* that can be read; 0: none, or not looked yet */
    double joules;
    struct {
        char path[96];
        uint64_t last_uj, range_uj;
    } package[8];
};

/* Starts to count, with packages below `root` ("/sys/class/powercap"). */
void dp_energy_begin(struct dp_energy *energy, const char *root);

/* Adds what was used since the last call. The kernel's counters begin again after some minutes at
 * full power: call it at least each minute. */
void dp_energy_add(struct dp_energy *energy);

/*
 * The clock of the core that this thread is on, in GHz: a chain of additions, each of which needs
 * the one before, makes one a cycle. Takes 20 us. 0: this processor is not known to do so.
 */
double dp_clock_ghz(void);

#endif
