#include "base/system/memory_limit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH = 1024,
    LINE = 4096,
    TEXT = 32768, /* for memory.stat, at most about 2 KB, and meminfo */
};

/* Files are small and generated when read; a missing one is an empty text. */
static const char *read_text(const char *path, char text[TEXT])
{
    FILE *file = fopen(path, "r");
    size_t bytes = 0;

    if (file != NULL) {
        bytes = fread(text, 1, TEXT - 1, file);
        (void)fclose(file);
    }
    text[bytes] = '\0';
    return text;
}

/* The number after `key` at the start of a line; false if there is none. */
static bool number_of(const char *text, const char *key, size_t *value)
{
    const size_t length = strlen(key);

    while (text != NULL && *text != '\0') {
        if (strncmp(text, key, length) == 0) {
            char *end;
            const unsigned long long number = strtoull(text + length, &end, 10);
            *value = (size_t)number;
            return end != text + length;
        }
        text = strchr(text, '\n');
        text = text == NULL ? NULL : text + 1;
    }
    return false;
}

static size_t less(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t minus(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

/* ---- the host ---- */

static void add_host(const char *root, struct dp_memory_limits *limits)
{
    struct dp_memory_limit *host = &limits->limit[limits->count];
    char path[PATH], text[TEXT];

    (void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    (void)read_text(path, text);
    *host = (struct dp_memory_limit){.id = 0};
    if (number_of(text, "MemTotal:", &host->total) &&
        number_of(text, "MemAvailable:", &host->available)) {
        (void)number_of(text, "SwapFree:", &host->swap);
        host->total *= 1024; /* the file says kB and means KiB */
        host->available *= 1024;
        host->swap *= 1024;
        limits->count++;
    }
}

/* ---- control groups ---- */

/* The file names of a version of control groups. */
struct version {
    const char *limit, *used, *swap_limit, *swap_used, *cache[3];
    bool hybrid; /* version 1: swap is counted together with memory only */
};

static const struct version versions[] = {
    {"memory.max",
     "memory.current",
     "memory.swap.max",
     "memory.swap.current",
     {"inactive_file ", "active_file ", "slab_reclaimable "},
     false},
    {"memory.limit_in_bytes",
     "memory.usage_in_bytes",
     NULL,
     NULL,
     {"total_inactive_file ", "total_active_file ", NULL},
     true},
};

static bool read_number(const char *folder, const char *name, size_t *value)
{
    char path[PATH + 64], text[TEXT];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return number_of(read_text(path, text), "", value); /* "max" is no limit */
}

/* The most that a group may still put into swap: the host's free swap if the group has no limit. */
static size_t swap_left(const struct version *v, const char *folder, size_t of_host)
{
    size_t most, used;

    return !v->hybrid && read_number(folder, v->swap_limit, &most) &&
                   read_number(folder, v->swap_used, &used)
               ? less(of_host, minus(most, used))
               : of_host;
}

/* A group without a limit of its own, or with one above the host's memory, adds nothing. */
static void add_group(const struct version *v, const char *folder, size_t root_length,
                      struct dp_memory_limits *limits)
{
    const struct dp_memory_limit *host = &limits->limit[0];
    struct dp_memory_limit *group = &limits->limit[limits->count];
    char path[PATH + 64], text[TEXT];
    size_t most, used, cache = 0, part;
    struct stat info;

    if (limits->count == DP_MEMORY_LIMITS || stat(folder, &info) != 0 ||
        !read_number(folder, v->limit, &most) || !read_number(folder, v->used, &used) ||
        (limits->count > 0 && most >= host->total)) {
        return;
    }
    (void)snprintf(path, sizeof(path), "%.*s/memory.stat", PATH - 1, folder);
    (void)read_text(path, text);
    for (int i = 0; i < 3 && v->cache[i] != NULL; i++) {
        cache += number_of(text, v->cache[i], &part) ? part : 0;
    }
    *group = (struct dp_memory_limit){
        .id = (uint64_t)info.st_dev << 40 ^ (uint64_t)info.st_ino,
        .total = most,
        .available = minus(most, minus(used, cache)),
        .swap = swap_left(v, folder, limits->count > 0 ? host->swap : 0),
    };
    (void)snprintf(group->name, sizeof(group->name), "control group %s", folder + root_length);
    limits->count++;
}

/* The group's path in a line of /proc/self/cgroup, "0::/a" or "4:memory:/a"; NULL: another line. */
static char *path_of(const struct version *v, char *line)
{
    char *controllers = strchr(line, ':'), *path;

    if (controllers == NULL || (path = strchr(controllers + 1, ':')) == NULL) {
        return NULL;
    }
    *controllers++ = *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (!v->hybrid) {
        return *controllers == '\0' ? path : NULL;
    }
    for (char *rest, *word = strtok_r(controllers, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        if (strcmp(word, "memory") == 0) {
            return path;
        }
    }
    return NULL;
}

static bool find_path(const char *root, const struct version *v, char found[PATH])
{
    char name[PATH], line[LINE];
    const char *path = NULL;
    FILE *file;

    (void)snprintf(name, sizeof(name), "%s/proc/self/cgroup", root);
    file = fopen(name, "r");
    while (file != NULL && path == NULL && fgets(line, sizeof(line), file) != NULL) {
        path = path_of(v, line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    (void)snprintf(found, PATH, "%s", path == NULL ? "" : path);
    return path != NULL;
}

/* "36 35 0:30 /part/of/it /where/it/lies options - cgroup2 source super,options". */
static bool is_mount(const struct version *v, const char *line, char part[PATH], char place[PATH])
{
    const char *type = strstr(line, " - ");
    char own[LINE];

    if (type == NULL || sscanf(line, "%*s %*s %*s %1023s %1023s", part, place) != 2) {
        return false;
    }
    if (!v->hybrid) {
        return strncmp(type, " - cgroup2 ", 11) == 0;
    }
    return sscanf(type, " - cgroup %*s %4095s", own) == 1 && strstr(own, "memory") != NULL;
}

/* From the group's folder up to the mount point, whose files are those of the topmost group that
 * this mount shows. */
static void add_ancestors(const char *root, const struct version *v, const char *part,
                          const char *place, const char *path, struct dp_memory_limits *limits)
{
    const size_t shown = strcmp(part, "/") == 0 ? 0 : strlen(part);
    const bool inside = strncmp(path, part, shown) == 0 && strstr(path, "/..") == NULL;
    char folder[2 * PATH];
    size_t top;

    (void)snprintf(folder, sizeof(folder), "%s%s", root, place);
    top = strlen(folder);
    if (inside && strcmp(path + shown, "/") != 0) {
        (void)snprintf(folder + top, sizeof(folder) - top, "%s", path + shown);
    }
    for (;;) {
        char *cut = strrchr(folder, '/');
        add_group(v, folder, strlen(root), limits);
        if (strlen(folder) <= top || cut == NULL) {
            return;
        }
        *cut = '\0';
    }
}

static void add_groups(const char *root, const struct version *v, struct dp_memory_limits *limits)
{
    char name[PATH], path[PATH], line[LINE], part[PATH], place[PATH];
    bool found = false;
    FILE *file;

    if (!find_path(root, v, path)) {
        return;
    }
    (void)snprintf(name, sizeof(name), "%s/proc/self/mountinfo", root);
    file = fopen(name, "r");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        found = is_mount(v, line, part, place);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (found) {
        add_ancestors(root, v, part, place, path, limits);
    }
}

void dp_memory_limits_read(const char *root, struct dp_memory_limits *limits)
{
    limits->count = 0;
    add_host(root, limits);
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        add_groups(root, &versions[i], limits);
    }
}

size_t dp_memory_addresses_left(const char *root)
{
    char path[PATH], text[TEXT];
    struct rlimit limit;
    size_t pages = 0;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return SIZE_MAX;
    }
    (void)snprintf(path, sizeof(path), "%s/proc/self/statm", root);
    (void)number_of(read_text(path, text), "", &pages);
    return minus((size_t)limit.rlim_cur, pages * (size_t)sysconf(_SC_PAGESIZE));
}
