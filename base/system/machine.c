#include "base/system/machine.h"

#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

struct dp_machine_topology {
    hwloc_topology_t tree;
    hwloc_bitmap_t allowed; /* the cpuset: never empty */
    bool real;              /* this machine and not a description */
};

/* An instruction set's name in /proc/cpuinfo, best first, and our name. */
static const struct {
    const char *flag, *isa;
} machine_isas[] = {
    {"amx_bf16", "amx-bf16"}, {"avx512_bf16", "avx512-bf16"},
    {"avx512f", "avx512"},    {"avx2", "avx2"},
    {"avx", "avx"},           {"sse2", "sse2"},
    {"sve", "sve"},           {"asimd", "neon"},
};

/* Gets the value of line "key : value" of a cpuinfo text, cut to `size`; false if there is none. */
static bool cpuinfo_line(const char *text, const char *key, char *value, size_t size)
{
    const size_t length = strlen(key);
    const char *end;

    for (; *text != '\0'; text = *end == '\0' ? end : end + 1) {
        const char *after = text + length;
        end = text + strcspn(text, "\n");
        if (strncmp(text, key, length) != 0) {
            continue;
        }
        after += strspn(after, " \t");
        if (*after == ':') {
            after += 1 + strspn(after + 1, " \t");
            (void)snprintf(value, size, "%.*s", after < end ? (int)(end - after) : 0, after);
            return true;
        }
    }
    return false;
}

/* Whether `word` is in a list of words separated by spaces. */
static bool has_word(const char *list, const char *word)
{
    const size_t length = strlen(word);

    while (*list != '\0') {
        const size_t next = strcspn(list, " ");
        if (next == length && memcmp(list, word, length) == 0) {
            return true;
        }
        list += next + strspn(list + next, " ");
    }
    return false;
}

static void read_model(const char *text, char *model, size_t size)
{
    if (!cpuinfo_line(text, "model name", model, size)) {
        (void)snprintf(model, size, "unknown");
    }
}

static void read_cpuinfo(struct dp_machine *machine, const char *text)
{
    char flags[8192] = "";

    read_model(text, machine->model, sizeof(machine->model));
    (void)snprintf(machine->isa, sizeof(machine->isa), "generic");
    if (!cpuinfo_line(text, "flags", flags, sizeof(flags)) &&
        !cpuinfo_line(text, "Features", flags, sizeof(flags))) {
        return;
    }
    for (size_t i = 0; i < sizeof(machine_isas) / sizeof(machine_isas[0]); i++) {
        if (has_word(flags, machine_isas[i].flag)) {
            (void)snprintf(machine->isa, sizeof(machine->isa), "%s", machine_isas[i].isa);
            return;
        }
    }
}

enum { CPUINFO_BYTES = 16384 };

/* The beginning of /proc/cpuinfo describes the first processor, and one is enough. */
static void load_cpuinfo(char text[CPUINFO_BYTES])
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    size_t length = 0;

    if (file != NULL) {
        length = fread(text, 1, CPUINFO_BYTES - 1, file);
        (void)fclose(file);
    }
    text[length] = '\0';
}

static void read_own_cpuinfo(struct dp_machine *machine)
{
    char text[CPUINFO_BYTES];

    load_cpuinfo(text);
    read_cpuinfo(machine, text);
}

void dp_machine_model(char *model, size_t size)
{
    char text[CPUINFO_BYTES];

    load_cpuinfo(text);
    read_model(text, model, size);
}

static void read_host(struct dp_machine *machine)
{
    char name[256] = "";

    if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') {
        (void)snprintf(name, sizeof(name), "localhost");
    }
    name[strcspn(name, ".")] = '\0';
    (void)snprintf(machine->host, sizeof(machine->host), "%.63s", name);
}

/* The next object of a type with a CPU in `set`, after `previous` (NULL: the first), or NULL. */
static hwloc_obj_t next_touching(hwloc_topology_t tree, hwloc_const_bitmap_t set,
                                 hwloc_obj_type_t type, hwloc_obj_t previous)
{
    hwloc_obj_t object = hwloc_get_next_obj_by_type(tree, type, previous);

    while (object != NULL && !hwloc_bitmap_intersects(object->cpuset, set)) {
        object = hwloc_get_next_obj_by_type(tree, type, object);
    }
    return object;
}

static int count_touching(hwloc_topology_t tree, hwloc_const_bitmap_t set, hwloc_obj_type_t type)
{
    int count = 0;

    for (hwloc_obj_t object = next_touching(tree, set, type, NULL); object != NULL;
         object = next_touching(tree, set, type, object)) {
        count++;
    }
    return count;
}

/* Cores where the system reports them, else hardware threads. */
static hwloc_obj_type_t core_type(hwloc_topology_t tree)
{
    return hwloc_get_nbobjs_by_type(tree, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

static size_t cache_bytes(hwloc_topology_t tree, hwloc_const_bitmap_t set, hwloc_obj_type_t type)
{
    const hwloc_obj_t cache = next_touching(tree, set, type, NULL);

    return cache != NULL && cache->attr != NULL ? (size_t)cache->attr->cache.size : 0;
}

static int at_least_1(int count)
{
    return count > 1 ? count : 1;
}

static void describe_numa(struct dp_machine *machine, hwloc_topology_t tree,
                          hwloc_const_bitmap_t set)
{
    const hwloc_bitmap_t nodes = hwloc_bitmap_alloc();

    machine->numa[0] = '\0';
    if (nodes != NULL) {
        hwloc_cpuset_to_nodeset(tree, set, nodes);
        (void)hwloc_bitmap_list_snprintf(machine->numa, sizeof(machine->numa), nodes);
    }
    hwloc_bitmap_free(nodes);
}

/* Sets the members that depend on the cpuset. */
static void describe(struct dp_machine *machine)
{
    const hwloc_topology_t tree = machine->topology->tree;
    const hwloc_const_bitmap_t set = machine->topology->allowed;

    (void)hwloc_bitmap_list_snprintf(machine->cpus, sizeof(machine->cpus), set);
    describe_numa(machine, tree, set);
    machine->cores = at_least_1(count_touching(tree, set, core_type(tree)));
    machine->threads = at_least_1(hwloc_bitmap_weight(set));
    machine->numa_nodes = at_least_1(count_touching(tree, set, HWLOC_OBJ_NUMANODE));
    machine->l2_bytes = cache_bytes(tree, set, HWLOC_OBJ_L2CACHE);
    machine->l3_bytes = cache_bytes(tree, set, HWLOC_OBJ_L3CACHE);
}

/* Builds the topology without devices, distances and kinds of memory and core. */
static dp_status load_tree(struct dp_machine_topology *topology, const char *synthetic)
{
    const unsigned long flags = HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                                HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;

    if (hwloc_topology_init(&topology->tree) != 0) {
        topology->tree = NULL;
        return DP_FAIL(DP_ERR_NOMEM, "the machine's topology");
    }
    if (synthetic != NULL && hwloc_topology_set_synthetic(topology->tree, synthetic) != 0) {
        return DP_FAIL(DP_ERR_ARG, "'%s' does not describe a machine", synthetic);
    }
    if (hwloc_topology_set_flags(topology->tree, flags) != 0 ||
        hwloc_topology_set_io_types_filter(topology->tree, HWLOC_TYPE_FILTER_KEEP_NONE) != 0 ||
        hwloc_topology_load(topology->tree) != 0) {
        return DP_FAIL(DP_ERR_UNAVAILABLE, "hwloc cannot read the machine's topology");
    }
    topology->real = hwloc_topology_is_thissystem(topology->tree) != 0;
    return DP_OK;
}

/* Sets the cpuset: from the text, from the binding of this thread, else all allowed CPUs. */
static dp_status load_cpuset(struct dp_machine_topology *topology, const char *cpus)
{
    const hwloc_const_bitmap_t whole = hwloc_topology_get_allowed_cpuset(topology->tree);

    topology->allowed = hwloc_bitmap_dup(whole);
    if (topology->allowed == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "the machine's cpuset");
    }
    if (cpus != NULL) {
        if (hwloc_bitmap_list_sscanf(topology->allowed, cpus) != 0) {
            return DP_FAIL(DP_ERR_ARG, "'%s' is not a list of CPUs", cpus);
        }
        (void)hwloc_bitmap_and(topology->allowed, topology->allowed, whole);
        if (hwloc_bitmap_iszero(topology->allowed)) {
            return DP_FAIL(DP_ERR_ARG, "the machine has no CPU of '%s'", cpus);
        }
        return DP_OK;
    }
    if (topology->real &&
        (hwloc_get_cpubind(topology->tree, topology->allowed, HWLOC_CPUBIND_THREAD) != 0 ||
         hwloc_bitmap_iszero(topology->allowed))) {
        (void)hwloc_bitmap_copy(topology->allowed, whole);
    }
    return DP_OK;
}

dp_status dp_machine_create_from(const struct dp_machine_text *text, struct dp_machine **machine)
{
    struct dp_machine *fresh = dp_zalloc(1, sizeof(*fresh));
    dp_status status;

    if (fresh == NULL) {
        return DP_FAIL(DP_ERR_NOMEM, "the description of the machine");
    }
    fresh->topology = dp_zalloc(1, sizeof(*fresh->topology));
    if (fresh->topology == NULL) {
        status = DP_FAIL(DP_ERR_NOMEM, "the description of the machine");
        goto fail;
    }
    DP_TRY_GOTO(load_tree(fresh->topology, text->topology), status, fail);
    DP_TRY_GOTO(load_cpuset(fresh->topology, text->cpus), status, fail);
    read_host(fresh);
    if (text->cpuinfo != NULL) {
        read_cpuinfo(fresh, text->cpuinfo);
    } else if (fresh->topology->real) {
        read_own_cpuinfo(fresh);
    } else {
        read_cpuinfo(fresh, "");
    }
    describe(fresh);
    *machine = fresh;
    return DP_OK;

fail:
    dp_machine_destroy(fresh);
    return status;
}

dp_status dp_machine_create(struct dp_machine **machine)
{
    const struct dp_machine_text this_system = {NULL, NULL, NULL};

    return dp_machine_create_from(&this_system, machine);
}

size_t dp_machine_memory(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);

    return pages > 0 && bytes > 0 ? (size_t)pages * (size_t)bytes : 0;
}

void dp_machine_destroy(struct dp_machine *machine)
{
    if (machine == NULL) {
        return;
    }
    if (machine->topology != NULL) {
        hwloc_bitmap_free(machine->topology->allowed);
        if (machine->topology->tree != NULL) {
            hwloc_topology_destroy(machine->topology->tree);
        }
    }
    dp_free(machine->topology);
    dp_free(machine);
}

int dp_machine_threads(const struct dp_machine *machine, int sharers)
{
    return at_least_1(machine->cores / at_least_1(sharers));
}

void dp_machine_cpuset_bytes(const struct dp_machine *machine, unsigned char bytes[DP_CPUSET_BYTES])
{
    const hwloc_const_bitmap_t set = machine->topology->allowed;

    memset(bytes, 0, DP_CPUSET_BYTES);
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0 && cpu < 8 * DP_CPUSET_BYTES;
         cpu = hwloc_bitmap_next(set, cpu)) {
        bytes[cpu / 8] = (unsigned char)(bytes[cpu / 8] | 1u << cpu % 8);
    }
}

/* As folders of PCI devices are named. */
static void lower(const char *bus, char *name, size_t size)
{
    static const char upper[] = "ABCDEF", small[] = "abcdef";

    (void)snprintf(name, size, "%s", bus);
    for (; *name != '\0'; name++) {
        const char *digit = strchr(upper, *name);
        if (digit != NULL) {
            *name = small[digit - upper];
        }
    }
}

/* The CPUs that a device is near to, as the system writes them; "" where it does not. */
static void read_near(const char *folder, const char *bus, char *near, size_t size)
{
    char name[32], path[256];
    FILE *file;

    lower(bus, name, sizeof(name));
    (void)snprintf(path, sizeof(path), "%s/%s/local_cpulist", folder, name);
    near[0] = '\0';
    file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(near, (int)size, file) != NULL) {
            near[strcspn(near, "\n")] = '\0';
        }
        (void)fclose(file);
    }
}

bool dp_machine_far(const struct dp_machine *machine, const char *folder, const char *bus,
                    char *near, size_t size)
{
    const hwloc_bitmap_t theirs = hwloc_bitmap_alloc(), ours = machine->topology->allowed;
    bool far;

    read_near(folder, bus, near, size);
    far = theirs != NULL && hwloc_bitmap_list_sscanf(theirs, near) == 0 &&
          !hwloc_bitmap_iszero(theirs) && !hwloc_bitmap_intersects(theirs, ours);
    hwloc_bitmap_free(theirs);
    if (!far) {
        near[0] = '\0';
    }
    return far;
}

int dp_machine_sharing(const unsigned char *cpusets, int ranks, int self, int *part)
{
    const unsigned char *mine = cpusets + (size_t)self * DP_CPUSET_BYTES;
    int sharers = 0, before = 0;

    for (int rank = 0; rank < ranks; rank++) {
        const unsigned char *theirs = cpusets + (size_t)rank * DP_CPUSET_BYTES;
        bool meets = rank == self;
        for (int i = 0; i < DP_CPUSET_BYTES && !meets; i++) {
            meets = (mine[i] & theirs[i]) != 0;
        }
        sharers += meets;
        before += meets && rank < self;
    }
    if (part != NULL) {
        *part = before;
    }
    return sharers;
}

/* The CPUs of the cpuset in its cores [begin, end). NULL when there is no memory. */
static hwloc_bitmap_t cores_between(const struct dp_machine_topology *topology, int begin, int end)
{
    const hwloc_obj_type_t type = core_type(topology->tree);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    hwloc_obj_t core = next_touching(topology->tree, topology->allowed, type, NULL);

    if (set == NULL) {
        return NULL;
    }
    for (int i = 0; core != NULL && i < end; i++) {
        if (i >= begin) {
            (void)hwloc_bitmap_or(set, set, core->cpuset);
        }
        core = next_touching(topology->tree, topology->allowed, type, core);
    }
    (void)hwloc_bitmap_and(set, set, topology->allowed);
    return set;
}

/* Binds the process or the thread; logs a warning and returns false where the system refuses. */
static bool bind_to(const struct dp_machine_topology *topology, hwloc_const_bitmap_t set, int flag)
{
    char text[128];

    if (!topology->real) {
        return false;
    }
    if (hwloc_set_cpubind(topology->tree, set, flag) != 0) {
        (void)hwloc_bitmap_list_snprintf(text, sizeof(text), set);
        DP_WARN("the system refuses to bind to cpus %s; continuing unbound", text);
        return false;
    }
    return true;
}

bool dp_machine_bind_self(struct dp_machine *machine, int part, int parts)
{
    const long long cores = machine->cores;
    hwloc_bitmap_t set;

    if (parts < 1 || part < 0 || part >= parts || cores < parts) {
        return false;
    }
    set = cores_between(machine->topology, (int)(part * cores / parts),
                        (int)((part + 1) * cores / parts));
    if (set == NULL || !bind_to(machine->topology, set, HWLOC_CPUBIND_PROCESS)) {
        hwloc_bitmap_free(set);
        return false;
    }
    hwloc_bitmap_free(machine->topology->allowed);
    machine->topology->allowed = set;
    describe(machine);
    return true;
}

bool dp_machine_bind_thread(const struct dp_machine *machine, int core)
{
    const int nth = core % machine->cores;
    hwloc_bitmap_t set;
    bool bound;

    if (core < 0) {
        return false;
    }
    set = cores_between(machine->topology, nth, nth + 1);
    bound = set != NULL && bind_to(machine->topology, set, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(set);
    return bound;
}
