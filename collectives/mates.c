#include "collectives/mates.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

struct dp_process dp_process_self(void)
{
    struct stat info;
    const bool known = stat("/proc/self/ns/pid", &info) == 0;

    return (struct dp_process){known ? (uint64_t)info.st_ino : 0, getpid()};
}

/* Signal 0 only asks. A process that is not ours to ask is alive, too. */
static bool alive(int64_t id)
{
    return kill((pid_t)id, 0) == 0 || errno != ESRCH;
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
    dp_free(mates->mates);
    mates->mates = NULL;
}

void dp_mates_watch(struct dp_mates *mates, int rank, struct dp_process process,
                    const atomic_int *left)
{
    const struct dp_process self = dp_process_self();
    const bool seen = process.space == self.space && process.id > 0 && alive(process.id);

    if (seen && rank != mates->self) {
        mates->mates[rank] = (struct dp_mate){process.id, left};
    }
}

int dp_mates_lost(const struct dp_mates *mates)
{
    for (int i = 0; mates->mates != NULL && i < mates->size; i++) {
        const struct dp_mate *mate = &mates->mates[i];
        const bool gone = mate->id != 0 && !alive(mate->id);
        if (gone && (mate->left == NULL || atomic_load(mate->left) == 0)) {
            return i;
        }
    }
    return -1;
}

bool dp_mates_tells(const struct dp_mates *mates)
{
    for (int i = 0; i < mates->self; i++) {
        if (mates->mates[i].id != 0 && alive(mates->mates[i].id)) {
            return false;
        }
    }
    return true;
}
