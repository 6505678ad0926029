/*
 * machine.h - the cores, caches and NUMA nodes that this process may use, and binding to them.
 *
 * Cores come from the cpuset that the operating system allows this process (mpirun, srun and
 * containers narrow it), never from the number of processors in the machine. Ranks exchange cpusets
 * as fixed bitmaps, so that each knows how many others share its cores.
 */
#ifndef DP_BASE_SYSTEM_MACHINE_H
#define DP_BASE_SYSTEM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum {
    DP_CPUSET_BYTES = 128, /* CPUs 0 to 1023; bit c % 8 of byte c / 8 is CPU c */
    DP_MACHINE_MODEL = 96
};

struct dp_machine {
    char host[64];                /* without the domain */
    char model[DP_MACHINE_MODEL]; /* "AMD EPYC 7R13"; "unknown" where the system does not say */
    char isa[16];    /* amx-bf16, avx512-bf16, avx512, avx2, avx, sse2, sve, neon or generic */
    char cpus[128];  /* "0-3,8": the CPUs of the cpuset, as numbered by the system */
    char numa[64];   /* "0" or "0-1": the NUMA nodes that hold them; "": unknown */
    int cores;       /* physical cores with a CPU in the cpuset, at least 1 */
    int threads;     /* hardware threads (CPUs) in the cpuset, at least 1 */
    int numa_nodes;  /* that hold a CPU of the cpuset, at least 1 */
    size_t l2_bytes; /* one level 2 cache of the cpuset; 0: unknown */
    size_t l3_bytes; /* one level 3 cache of the cpuset; 0: unknown or none */
    struct dp_machine_topology *topology; /* private */
};

/*
 * Reads this machine and this process's cpuset. Takes a few milliseconds, since devices are left
 * out. hwloc's variables HWLOC_SYNTHETIC and HWLOC_XMLFILE replace the hardware, as in all its
 * programs.
 *
 *   machine  out  released with dp_machine_destroy()
 *
 * Errors: DP_ERR_NOMEM, DP_ERR_UNAVAILABLE if the hardware cannot be read.
 */
DP_CHECKED dp_status dp_machine_create(struct dp_machine **machine);

/* A machine that exists only as text. */
struct dp_machine_text {
    const char *topology; /* hwloc's synthetic form: "package:2 core:4 pu:2" */
    const char *cpus;     /* the cpuset, "0-3,8"; NULL: all */
    const char *cpuinfo;  /* as in /proc/cpuinfo; NULL: unknown */
};

/* As dp_machine_create(), from a description, for tests. Binding is impossible on such a machine.
 * Errors: also DP_ERR_ARG if a text cannot be parsed, or no CPU of the machine is in the cpuset. */
DP_CHECKED dp_status dp_machine_create_from(const struct dp_machine_text *text,
                                            struct dp_machine **machine);

/* The model alone, without asking hwloc; `size` is up to DP_MACHINE_MODEL. */
void dp_machine_model(char *model, size_t size);

/* Bytes of memory of this host; 0 where the system does not report it. */
size_t dp_machine_memory(void);

/* NULL is allowed. */
void dp_machine_destroy(struct dp_machine *machine);

/* The number of threads of a rank when `sharers` ranks (itself included) have these cores: cores /
 * sharers, at least 1. */
int dp_machine_threads(const struct dp_machine *machine, int sharers);

/* The cpuset, in a form to send to other ranks of the host. */
void dp_machine_cpuset_bytes(const struct dp_machine *machine,
                             unsigned char bytes[DP_CPUSET_BYTES]);

/*
 * Whether a device on the PCI bus hangs at another part of the machine than this process's cores:
 * then what is copied to and from it crosses between sockets.
 *
 *   folder  "/sys/bus/pci/devices", except in tests
 *   bus     its number, "0000:1b:00.0", in any case of letters
 *   near    out  [size]  the CPUs that it is near to, "0-15"; "" where the answer is no
 *
 * No where the system does not say. Local.
 */
bool dp_machine_far(const struct dp_machine *machine, const char *folder, const char *bus,
                    char *near, size_t size);

/*
 * How many of a host's ranks can run on CPUs of rank `self`, itself included.
 *
 *   cpusets  in   [ranks][DP_CPUSET_BYTES]  of every rank of the host
 *   part     out  how many of them come before `self`; may be NULL
 */
int dp_machine_sharing(const unsigned char *cpusets, int ranks, int self, int *part);

/*
 * Binds this process, with all its threads, to part `part` of `parts` of its cores: those numbered
 * [floor(part * cores / parts), floor((part + 1) * cores / parts)). Then `machine` describes that
 * part, which is not shared: call dp_machine_threads(machine, 1). With fewer cores than parts, or
 * where the system refuses, nothing changes and the result is false; that costs speed, not
 * correctness. All ranks that share the cpuset must call it with the same `parts`.
 */
bool dp_machine_bind_self(struct dp_machine *machine, int part, int parts);

/* Binds the calling thread to core `core` (from 0, modulo their number) of the cpuset. False where
 * the system refuses. */
bool dp_machine_bind_thread(const struct dp_machine *machine, int core);

#endif
