#include "base/system/wire.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <xxhash.h>

enum { INTERFACES_MAX = 64, WORD_BYTES = 64, PATH_BYTES = 512, REPLY_BYTES = 32768 };

/* The numbers of the interfaces that messages may use. */
struct interfaces {
    int number[INTERFACES_MAX];
    int count;
};

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return XXH3_64bits_withSeed(text, strlen(text) + 1, seed);
}

/* ---- interfaces ---- */

/* Reads a one-line file of an interface; empty if the interface does not provide it. */
static void read_word(const char *folder, const char *name, const char *file, char word[WORD_BYTES])
{
    char path[PATH_BYTES];
    ssize_t length = 0;
    int fd;

    word[0] = '\0';
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/%s", folder, name, file) >= sizeof(path)) {
        return;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        length = read(fd, word, WORD_BYTES - 1);
        (void)close(fd);
    }
    word[length > 0 ? length : 0] = '\0';
    word[strcspn(word, "\n")] = '\0';
}

/* Ports are skipped, since their bridge or bond has its own address and speed. */
static bool is_port(const char *folder, const char *name)
{
    char path[PATH_BYTES];

    return (size_t)snprintf(path, sizeof(path), "%s/%s/master", folder, name) < sizeof(path) &&
           access(path, F_OK) == 0;
}

static bool carries_messages(const char *folder, const char *name)
{
    char state[WORD_BYTES];

    read_word(folder, name, "operstate", state);
    return name[0] != '.' && strcmp(name, "lo") != 0 &&
           (strcmp(state, "up") == 0 || strcmp(state, "unknown") == 0) && !is_port(folder, name);
}

static uint64_t hash_interface(const char *folder, const char *name, struct interfaces *all)
{
    static const char *const files[] = {"speed", "mtu"};
    uint64_t hash = hash_text(name, 0);
    char word[WORD_BYTES];

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        read_word(folder, name, files[i], word);
        hash = hash_text(word, hash);
    }
    read_word(folder, name, "ifindex", word);
    if (all->count < INTERFACES_MAX) {
        all->number[all->count++] = (int)strtol(word, NULL, 10);
    }
    return hash;
}

/* The hash is a sum, since the entries of a folder have no order. */
static uint64_t hash_interfaces(const char *folder, struct interfaces *all)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    uint64_t sum = 0;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (carries_messages(folder, entry->d_name)) {
            sum += hash_interface(folder, entry->d_name, all);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    return sum;
}

/* ---- traffic shaping: as `tc qdisc` shows it, by rtnetlink(7) ---- */

static bool is_among(const struct interfaces *all, int number)
{
    for (int i = 0; i < all->count; i++) {
        if (all->number[i] == number) {
            return true;
        }
    }
    return false;
}

/* Hashes kind and options of a queueing discipline, but not its counters. */
static uint64_t hash_queue(struct nlmsghdr *message, const struct interfaces *all)
{
    struct tcmsg *queue = NLMSG_DATA(message);
    struct rtattr *attribute = TCA_RTA(queue);
    unsigned left = (unsigned)TCA_PAYLOAD(message);
    uint64_t hash = 0;

    if (!is_among(all, queue->tcm_ifindex)) {
        return 0;
    }
    for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
        if (attribute->rta_type == TCA_KIND || attribute->rta_type == TCA_OPTIONS) {
            hash = XXH3_64bits_withSeed(RTA_DATA(attribute), RTA_PAYLOAD(attribute), hash);
        }
    }
    return hash;
}

/* Adds the hashes of one part of the kernel's answer; false: it was the last part. */
static bool take_reply(void *reply, ssize_t length, const struct interfaces *all, uint64_t *sum)
{
    struct nlmsghdr *message = reply;
    unsigned left = (unsigned)length;

    for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
        if (message->nlmsg_type != RTM_NEWQDISC) {
            return false; /* the end, or an error */
        }
        *sum += hash_queue(message, all);
    }
    return length > 0;
}

static uint64_t hash_queues(const struct interfaces *all)
{
    static const struct timeval timeout = {.tv_sec = 1};
    const struct {
        struct nlmsghdr head;
        struct tcmsg body;
    } request = {.head = {.nlmsg_len = sizeof(request),
                          .nlmsg_type = RTM_GETQDISC,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
    const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    _Alignas(struct nlmsghdr) char reply[REPLY_BYTES];
    uint64_t sum = 0;

    if (fd < 0) {
        return 0;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0 &&
        send(fd, &request, sizeof(request), 0) == (ssize_t)sizeof(request)) {
        while (take_reply(reply, recv(fd, reply, sizeof(reply), 0), all, &sum)) {
        }
    }
    (void)close(fd);
    return sum;
}

/* ---- settings ---- */

static uint64_t hash_settings(char *const *environment)
{
    static const char *const prefixes[] = {"OMPI_MCA_btl",  "OMPI_MCA_pml", "OMPI_MCA_mtl",
                                           "OMPI_MCA_coll", "UCX_",         "FI_"};
    uint64_t sum = 0;

    for (; *environment != NULL; environment++) {
        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
            /* Shared memory is no wire; Open MPI's place for it may change where it is full. */
            if (strncmp(*environment, prefixes[i], strlen(prefixes[i])) == 0 &&
                strncmp(*environment, "OMPI_MCA_btl_vader", 18) != 0) {
                sum += hash_text(*environment, 1);
            }
        }
    }
    return sum;
}

uint64_t dp_wire_hash(const char *folder, char *const *environment)
{
    struct interfaces all = {.count = 0};
    const uint64_t interfaces = hash_interfaces(folder, &all);
    const uint64_t parts[] = {interfaces, hash_queues(&all), hash_settings(environment)};

    return XXH3_64bits(parts, sizeof(parts));
}

/* ---- direct access to memory ---- */

void dp_wire_rdma(const char *folder, char *text, size_t size)
{
    DIR *entries = opendir(folder);
    char first[WORD_BYTES] = "", word[WORD_BYTES];
    const struct dirent *entry;

    text[0] = '\0';
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        const char *name = entry->d_name;
        read_word(folder, name, "ports/1/state", word); /* "4: ACTIVE" */
        if (name[0] != '.' && strstr(word, "ACTIVE") != NULL && strlen(name) < sizeof(first) &&
            (first[0] == '\0' || strcmp(name, first) < 0)) {
            memcpy(first, name, strlen(name) + 1);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    if (first[0] != '\0') {
        read_word(folder, first, "ports/1/rate", word); /* "100 Gb/sec (4X EDR)" */
        word[strcspn(word, "(")] = '\0';
        (void)snprintf(text, size, "%s%s%.*s", first, word[0] == '\0' ? "" : ", ",
                       (int)strlen(word) - (word[0] != '\0' && word[strlen(word) - 1] == ' '),
                       word);
    }
}
