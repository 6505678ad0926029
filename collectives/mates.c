#include "collectives/mates.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

struct dp_process dp_process_self(void)
{
    struct stat info;
    const bool known = stat("/proc/self/ns/pid", &info) == 0;

    return (struct dp_process){known ? (uint64_t)info.st_ino : 0, getpid()};
}

dp_status dp_mates_init(struct dp_mates *mates, int size, int self)
{
    mates->self = self;
    mates->size = size;
    mates->mates = dp_zalloc((size_t)size, sizeof(*mates->mates));
    return mates->mates != NULL ? DP_OK : DP_FAIL(DP_ERR_NOMEM, "mates of %d ranks", size);
}

void dp_mates_fini(struct dp_mates *mates)
{
    for (int i = 0; mates->mates != NULL && i < mates->size; i++) {
        dp_process_unwatch(&mates->mates[i].watch);
    }
    dp_free(mates->mates);
    mates->mates = NULL;
}

void dp_mates_watch(struct dp_mates *mates, int rank, struct dp_process process,
                    const atomic_int *left)
{
    struct dp_mate *mate = &mates->mates[rank];

    if (rank != mates->self && process.space == dp_process_self().space && process.id > 0) {
        mate->watched = dp_process_watch(&mate->watch, process.id);
        mate->left = left;
    }
}

int dp_mates_lost(const struct dp_mates *mates)
{
    for (int i = 0; mates->mates != NULL && i < mates->size; i++) {
        const struct dp_mate *mate = &mates->mates[i];
        const bool gone = mate->watched && dp_process_ended(&mate->watch);
        if (gone && (mate->left == NULL || atomic_load(mate->left) == 0)) {
            return i;
        }
    }
    return -1;
}

bool dp_mates_tells(const struct dp_mates *mates)
{
    for (int i = 0; i < mates->self; i++) {
        if (mates->mates[i].watched && !dp_process_ended(&mates->mates[i].watch)) {
            return false;
        }
    }
    return true;
}
