#include "runtime/run/place.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/system/crowd.h"
#include "base/system/openmp.h"
#include "base/system/wire.h"

static void warn_of_tcp(const struct dp_world *world)
{
    char device[64];

    dp_wire_rdma(DP_WIRE_RDMA_FOLDER, device, sizeof(device));
    if (dp_fabric_is_tcp(world->fabric) && device[0] != '\0') {
        DP_WARN(
            "messages between nodes go by TCP, although this host has %s: mpirun --mca pml ucx, "
            "or --mca pml cm --mca mtl ofi for EFA, ends the job where that cannot be used",
            device);
    }
}

int dp_run_threads(const struct dp_run_options *options, int threads, int most, bool tells)
{
    const bool flag = options->threads > 0;
    const int asked = flag ? options->threads : dp_openmp_asked();

    if (asked > most && tells) {
        DP_WARN("%s%d: a rank has %d thread%s, not more than cores",
                flag ? "--threads " : "OMP_NUM_THREADS=", asked, threads, dp_plural(threads));
    }
    return asked > 0 && asked < threads ? asked : threads;
}

static void warn_of_far_gpu(const struct dp_run_job *job)
{
    char bus[DP_UNIT_NAME] = "", near[64];

    if (job->device != NULL && !job->device->host_memory && job->device->units != NULL &&
        job->device->units->name(bus) == DP_OK &&
        dp_machine_far(job->machine, "/sys/bus/pci/devices", bus, near, sizeof(near))) {
        DP_WARN("the GPU at %s is near to cpus %s, but this rank has %s: copies cross between "
                "sockets; bind ranks near their GPUs (mpirun --map-by numa)",
                bus, near, job->machine->cpus);
    }
}

static void note_gpu(const struct dp_run_job *job, struct dp_rank_place *place)
{
    const enum dp_role role = dp_role_of(&job->world->roles, job->world->all->rank);
    const bool computes = role == DP_ROLE_TRAIN || role == DP_ROLE_EVALUATE;

    if (computes && job->device != NULL && job->device->units != NULL) {
        job->device->units->label(place->gpu);
    }
}

dp_status dp_run_place(struct dp_run_job *job)
{
    struct dp_group *group = job->world->all;
    unsigned char cpuset[DP_CPUSET_BYTES], *cpusets;
    struct dp_rank_place mine;
    int local = 0, self = 0, sharers, part, cpus;
    dp_status status = dp_machine_create(&job->machine);

    memset(&mine, 0, sizeof(mine));
    job->places = group->rank == 0 ? dp_zalloc((size_t)group->size, sizeof(*job->places)) : NULL;
    cpusets = dp_zalloc((size_t)group->size, DP_CPUSET_BYTES);
    if (status == DP_OK && ((group->rank == 0 && job->places == NULL) || cpusets == NULL)) {
        status = DP_FAIL(DP_ERR_NOMEM, "places of %d ranks", group->size);
    }
    status = dp_group_agree(group, status); /* before any rank gathers: all do, or none */
    if (status != DP_OK || cpusets == NULL) {
        dp_free(cpusets);
        return status;
    }
    dp_machine_cpuset_bytes(job->machine, cpuset);
    status = dp_group_gather_node(group, cpuset, DP_CPUSET_BYTES, cpusets);
    for (int i = 0; i < group->size; i++) { /* keeps those of this node, at the beginning */
        if (group->node_of[i] == group->node_of[group->rank]) {
            self = i == group->rank ? local : self;
            memmove(cpusets + (size_t)local++ * DP_CPUSET_BYTES,
                    cpusets + (size_t)i * DP_CPUSET_BYTES, DP_CPUSET_BYTES);
        }
    }
    sharers = dp_machine_sharing(cpusets, local, self, &part);
    dp_free(cpusets);
    DP_TRY(status);
    cpus = job->machine->threads;
    if (sharers > 1 && dp_machine_bind_self(job->machine, part, sharers)) {
        sharers = 1;
    }
    dp_crowd_set(sharers, job->machine->cores);
    job->threads = dp_run_threads(job->options, dp_machine_threads(job->machine, sharers), cpus,
                                  group->rank == 0);
    mine.threads = job->threads;
    mine.cores = job->machine->cores;
    mine.memory = dp_machine_memory();
    (void)snprintf(mine.host, sizeof(mine.host), "%s", job->machine->host);
    (void)snprintf(mine.cpus, sizeof(mine.cpus), "%s", job->machine->cpus);
    (void)snprintf(mine.numa, sizeof(mine.numa), "%s", job->machine->numa);
    (void)snprintf(mine.isa, sizeof(mine.isa), "%s", job->machine->isa);
    note_gpu(job, &mine);
    if (sharers > job->machine->cores && self == 0) {
        DP_WARN("%d ranks share %d core%s of this node: they take turns, and run slower", sharers,
                job->machine->cores, dp_plural(job->machine->cores));
    }
    if (self == 0) {
        warn_of_tcp(job->world);
    }
    warn_of_far_gpu(job);
    job->place = mine;
    return dp_group_gather(group, &mine, sizeof(mine), job->places);
}
