#include "runtime/run/fault_injection.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/files/disk.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/trace.h"
#include "collectives/core/message_check.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/run/fault_beat.h"
#include "runtime/run/fault_hang.h"
#include "runtime/trainer/update/deferred_update.h"

/* ---- flip ---- */

static const struct dp_tensor *find_in(const struct dp_tensor *tensors, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0) {
            return &tensors[i];
        }
    }
    return NULL;
}

/* The tensor that is named: a weight, or a running statistic; without a name the first weight. */
static const struct dp_tensor *find_tensor(const struct dp_fault *fault, const struct dp_model *m,
                                           bool *weight)
{
    const struct dp_tensor *found = fault->tensor[0] == '\0'
                                        ? &m->tensors[0]
                                        : find_in(m->tensors, m->tensor_count, fault->tensor);

    *weight = found != NULL;
    return found != NULL ? found : find_in(m->buffers, m->buffer_count, fault->tensor);
}

/* What the flip is refused for beside its tensor, or NULL. */
static const char *why_no_flip(const struct dp_fault *fault, const struct dp_trainer *t)
{
    const bool sharded = dp_exchange_is_sharded(dp_trainer_exchange(t));

    if (sharded && dp_trainer_flat(t)->type != DP_TYPE_F32) {
        return "none has all master weights, but under train.precision fp32";
    }
    if (fault->what == DP_FLIP_OPTIMIZER && sharded) {
        return "none has all optimizer state";
    }
    return NULL;
}

static dp_status flip_check_tensor(const struct dp_fault *fault, const struct dp_trainer *t)
{
    const struct dp_model *m = dp_trainer_model(t);
    bool weight;
    const struct dp_tensor *tensor = find_tensor(fault, m, &weight);
    const char *why_not = why_no_flip(fault, t);

    if (tensor == NULL || (fault->what == DP_FLIP_OPTIMIZER && !weight)) {
        return DP_FAIL(DP_ERR_CONFIG,
                       DP_FAULT_VARIABLE ": flip: the model has no tensor '%s'; its first is %s",
                       fault->tensor, m->tensors[0].name);
    }
    if (why_not != NULL) {
        return DP_FAIL(DP_ERR_CONFIG, DP_FAULT_VARIABLE ": flip: where ranks own parts (%s) %s",
                       dp_exchange_label(dp_trainer_exchange(t)), why_not);
    }
    if (fault->what == DP_FLIP_OPTIMIZER && dp_trainer_host_flat(t)->slots[0] == NULL) {
        return DP_FAIL(DP_ERR_CONFIG, DP_FAULT_VARIABLE ": flip: this optimizer keeps no state");
    }
    if ((size_t)fault->element >= tensor->count) {
        return DP_FAIL(DP_ERR_CONFIG, DP_FAULT_VARIABLE ": flip: %s has %zu elements, not %d",
                       tensor->name, tensor->count, fault->element + 1);
    }
    return DP_OK;
}

static dp_status flip_check_data(const struct dp_fault *fault, const struct dp_dataset *data)
{
    if (data->train_images == NULL) {
        return DP_FAIL(DP_ERR_CONFIG, DP_FAULT_VARIABLE ": flip: no training set lies in memory");
    }
    return (size_t)fault->element < data->train_count * data->sample_bytes
               ? DP_OK
               : DP_FAIL(DP_ERR_CONFIG,
                         DP_FAULT_VARIABLE ": flip: the training set has %zu bytes, not %d",
                         data->train_count * data->sample_bytes, fault->element + 1);
}

static dp_status bucket_check(const struct dp_fault *fault, const struct dp_trainer *t);

static dp_status flip_check(const struct dp_fault *fault, const struct dp_trainer *t)
{
    const struct dp_bucket_plan *plan = dp_exchange_plan(dp_trainer_exchange(t));

    if (fault->what == DP_FLIP_MESSAGE) {
        return DP_OK;
    }
    if (fault->what == DP_FLIP_DATA) {
        return flip_check_data(fault, dp_trainer_data(t));
    }
    if (fault->what != DP_FLIP_GRADIENT) {
        return flip_check_tensor(fault, t);
    }
    DP_TRY(bucket_check(fault, t));
    if (dp_trainer_flat(t)->grad != dp_exchange_host_gradient(dp_trainer_exchange(t))) {
        return DP_FAIL(DP_ERR_CONFIG, DP_FAULT_VARIABLE ": flip: the gradient is not in the host's "
                                                        "memory");
    }
    return (size_t)fault->element < plan->buckets[fault->bucket].range.count
               ? DP_OK
               : DP_FAIL(
                     DP_ERR_CONFIG, DP_FAULT_VARIABLE ": flip: bucket %d has %zu elements, not %d",
                     fault->bucket, plan->buckets[fault->bucket].range.count, fault->element + 1);
}

static void flip_value(const struct dp_fault *fault, float *value)
{
    uint32_t bits;

    memcpy(&bits, value, sizeof(bits));
    bits ^= (uint32_t)1 << fault->bit;
    memcpy(value, &bits, sizeof(bits));
}

static void flip_apply(const struct dp_fault *fault, struct dp_trainer *t)
{
    const struct dp_flat *flat = dp_trainer_host_flat(t);
    const struct dp_bucket_plan *plan = dp_exchange_plan(dp_trainer_exchange(t));
    const struct dp_tensor *tensor;
    bool weight;

    if (fault->what == DP_FLIP_DATA) { /* which nobody else may write to */
        uint8_t *images;
        memcpy(&images, &dp_trainer_data(t)->train_images, sizeof(images));
        images[fault->element] ^= (uint8_t)(1 << fault->bit % 8);
        return;
    }
    if (fault->what == DP_FLIP_GRADIENT) {
        flip_value(fault, dp_exchange_host_gradient(dp_trainer_exchange(t)) +
                              plan->buckets[fault->bucket].range.begin + fault->element);
        return;
    }
    tensor = find_tensor(fault, dp_trainer_model(t), &weight);
    float *const array = !weight                            ? flat->running
                         : fault->what == DP_FLIP_OPTIMIZER ? flat->slots[0]
                                                            : flat->master;
    flip_value(fault, array + tensor->begin + dp_tensor_index(tensor, (size_t)fault->element));
}

/* ---- ranks that end, stop, or are late ---- */

static dp_status bucket_check(const struct dp_fault *fault, const struct dp_trainer *t)
{
    const int buckets = dp_exchange_plan(dp_trainer_exchange(t))->count;

    if (fault->bucket >= 0 && dp_config_stale(dp_trainer_configuration(t))) {
        return DP_FAIL(DP_ERR_CONFIG,
                       DP_FAULT_VARIABLE ": %s: in mode async no bucket is waited for",
                       fault->kind->name);
    }
    return fault->bucket < buckets
               ? DP_OK
               : DP_FAIL(DP_ERR_CONFIG,
                         DP_FAULT_VARIABLE ": %s: there is no bucket %d: this run has %d",
                         fault->kind->name, fault->bucket, buckets);
}

static void kill_apply(const struct dp_fault *fault, struct dp_trainer *t)
{
    (void)fault;
    (void)t;
    (void)raise(SIGKILL);
}

static void stop_here(void)
{
    (void)raise(SIGSTOP);
}

static void stop_apply(const struct dp_fault *fault, struct dp_trainer *t)
{
    (void)fault;
    (void)t;
    stop_here();
}

static void slow_apply(const struct dp_fault *fault, struct dp_trainer *t)
{
    (void)t;
    dp_fault_sleep(fault->ms);
}

static void exit_apply(const struct dp_fault *fault, struct dp_trainer *t)
{
    (void)fault;
    (void)t;
    _exit(0);
}

/* ---- leak ---- */

static void *leaked; /* the last block, which begins with the address of the one before */

static void leak_apply(const struct dp_fault *fault, struct dp_trainer *t)
{
    void **block = dp_mem_arena(DP_MEM_ACTIVATIONS, (size_t)fault->mb << 20);
    (void)t;

    if (block != NULL) {
        *block = leaked;
        leaked = block;
    }
}

static void leak_end(void)
{
    while (leaked != NULL) {
        void *before = *(void **)leaked;
        dp_free(leaked);
        leaked = before;
    }
}

/* ---- what does not happen in the steps ---- */

static dp_status elsewhere_check(const struct dp_fault *fault, const struct dp_trainer *t)
{
    (void)fault;
    (void)t;
    return DP_OK;
}

/* The allocation that is to fail on this rank; 0: none. */
static int nth_of(const struct dp_fault *first, int rank)
{
    for (const struct dp_fault *fault = first; fault != NULL; fault = fault->next) {
        if (fault->alloc > 0 && fault->rank == rank) {
            return fault->alloc;
        }
    }
    return 0;
}

void dp_fault_injection_renumber(struct dp_fault *first, const int *first_rank_of, int size)
{
    for (struct dp_fault *fault = first; fault != NULL; fault = fault->next) {
        int now = 0;
        while (now < size && first_rank_of[now] != fault->rank) {
            now++;
        }
        fault->rank = now < size ? now : -1;
    }
}

void dp_fault_injection_start(const struct dp_fault *first, int rank)
{
    const int nth = nth_of(first, rank);

    if (nth > 0) {
        (void)dp_mem_fail_nth(nth);
    }
    dp_disk_set_faults(first, rank);
    dp_fault_beat_start(first, rank, stop_here);
}

static void describe_calls(void)
{
    unsigned long long of[DP_FILE_CALLS];
    uint64_t found[DP_FILE_CALLS];
    const unsigned long long all = dp_disk_calls(found);

    for (int i = 0; i < DP_FILE_CALLS; i++) {
        of[i] = found[i];
    }
    if (all > 0) {
        DP_DEBUG("%llu calls changed files: open %llu, write %llu, fsync %llu, rename %llu, unlink "
                 "%llu, mkdir %llu, rmdir %llu, symlink %llu",
                 all, of[DP_FILE_CALL_CREATE], of[DP_FILE_CALL_WRITE], of[DP_FILE_CALL_SYNC],
                 of[DP_FILE_CALL_RENAME], of[DP_FILE_CALL_UNLINK], of[DP_FILE_CALL_MKDIR],
                 of[DP_FILE_CALL_RMDIR], of[DP_FILE_CALL_SYMLINK]);
    }
}

/* Why a fault of this rank has not happened; empty: it has, or did in an earlier start. left: of
 * the allocations up to the one that was to fail. */
static void describe_miss(const struct dp_fault *fault, int left, uint64_t from, char *out,
                          size_t size)
{
    const unsigned long long calls = dp_disk_calls((uint64_t[DP_FILE_CALLS]){0});

    out[0] = '\0';
    if (fault->beat > 0) {
        if (dp_fault_beat_misses(fault)) {
            (void)snprintf(out, size, "fewer than %d parts were measured", fault->beat);
        }
    } else if (fault->alloc > 0) {
        if (left > 0) {
            (void)snprintf(out, size, "there were %d allocations", fault->alloc - left);
        }
    } else if (fault->write > 0) {
        if (calls < (unsigned long long)fault->write) {
            (void)snprintf(out, size, "%llu calls changed files", calls);
        }
    } else if (fault->happened || (fault->step > 0 && (uint64_t)fault->step <= from)) {
        return;
    } else if (fault->due) {
        (void)snprintf(out, size, "no message of %d bytes or more came after step %d",
                       DP_MESSAGE_CHECKED, fault->step);
    } else if (fault->step == 0) {
        (void)snprintf(out, size, "there was no step");
    } else if (fault->bucket >= 0) {
        (void)snprintf(out, size, "no step %d waited for bucket %d", fault->step, fault->bucket);
    } else {
        (void)snprintf(out, size, "there was no step %d", fault->step);
    }
}

void dp_fault_injection_end(const struct dp_fault *first, int rank, bool finished, uint64_t from)
{
    const int nth = nth_of(first, rank), left = nth > 0 ? dp_mem_fail_nth(0) : 0;
    char why[80];

    for (const struct dp_fault *fault = first; fault != NULL && finished; fault = fault->next) {
        if (fault->rank == rank) {
            describe_miss(fault, fault->alloc == nth ? left : 0, from, why, sizeof(why));
            if (why[0] != '\0') {
                DP_WARN(DP_FAULT_VARIABLE ": %s has not happened: %s", fault->kind->name, why);
            }
        }
    }
    if (left > 0) {
        DP_DEBUG("%d allocations", nth - left);
    }
    describe_calls();
    dp_disk_set_faults(NULL, 0);
    dp_fault_beat_end();
    leak_end();
}

/* ---- all kinds ---- */

static const struct happening {
    const struct dp_plugin *kind;
    dp_status (*check)(const struct dp_fault *fault, const struct dp_trainer *t);
    void (*apply)(const struct dp_fault *fault, struct dp_trainer *t); /* on fault->rank; NULL: it
                                                                        * never is in the steps */
    bool together; /* all ranks synchronise before and after it: it changes what they share */
} happenings[] = {
    {&dp_fault_flip, flip_check, flip_apply, true},
    {&dp_fault_kill, bucket_check, kill_apply, false},
    {&dp_fault_stop, bucket_check, stop_apply, false},
    {&dp_fault_slow, bucket_check, slow_apply, false},
    {&dp_fault_spin, bucket_check, dp_fault_hang_apply, false},
    {&dp_fault_lock, bucket_check, dp_fault_hang_apply, false},
    {&dp_fault_swap, bucket_check, dp_fault_hang_apply, false},
    {&dp_fault_exit, bucket_check, exit_apply, false},
    {&dp_fault_leak, elsewhere_check, leak_apply, false},
    {&dp_fault_torn, elsewhere_check, NULL, false},
    {&dp_fault_full, elsewhere_check, NULL, false},
    {&dp_fault_eio, elsewhere_check, NULL, false},
    {&dp_fault_nomem, elsewhere_check, NULL, false},
};

static const struct happening *happening_of(const struct dp_fault *fault)
{
    for (size_t i = 0; i < sizeof(happenings) / sizeof(happenings[0]); i++) {
        if (happenings[i].kind == fault->kind) {
            return &happenings[i];
        }
    }
    return NULL;
}

dp_status dp_fault_injection_check(const struct dp_fault *first, const struct dp_trainer *t)
{
    for (const struct dp_fault *fault = first; fault != NULL; fault = fault->next) {
        const struct happening *happening = happening_of(fault);
        if (happening == NULL) {
            return DP_FAIL(DP_ERR_CONFIG, DP_FAULT_VARIABLE ": %s cannot happen in training",
                           fault->kind->name);
        }
        if (fault->rank >= dp_trainer_group(t)->size) {
            return DP_FAIL(DP_ERR_CONFIG,
                           DP_FAULT_VARIABLE ": %s: there is no rank %d: this run has %d",
                           fault->kind->name, fault->rank, dp_trainer_group(t)->size);
        }
        DP_TRY(happening->check(fault, t));
    }
    return DP_OK;
}

bool dp_fault_injection_is_of_all(const struct dp_fault *first, const struct dp_trainer *t)
{
    bool weight = false;

    for (const struct dp_fault *fault = first; fault != NULL && !weight; fault = fault->next) {
        if (fault->kind == &dp_fault_flip && fault->what == DP_FLIP_WEIGHT) {
            (void)find_tensor(fault, dp_trainer_model(t), &weight);
        }
    }
    return weight && dp_trainer_group(t)->size > 1 &&
           dp_exchange_has_one_copy(dp_trainer_exchange(t));
}

static bool due_in(const struct dp_fault *fault, uint64_t step)
{
    return fault->step == 0 || (uint64_t)fault->step == step;
}

static bool is_of_message(const struct dp_fault *fault)
{
    return fault->kind == &dp_fault_flip && fault->what == DP_FLIP_MESSAGE;
}

static void apply(struct dp_fault *fault, struct dp_trainer *t)
{
    fault->due = true;
    if (!is_of_message(fault)) {
        fault->happened = true; /* first: this may not return */
        happening_of(fault)->apply(fault, t);
    } else if (dp_message_damage_next(dp_trainer_group(t), fault->bit, &fault->happened) != DP_OK) {
        DP_DEBUG("no message is damaged");
    }
}

static void on_bucket(void *first, struct dp_trainer *t, int bucket, bool summed)
{
    for (struct dp_fault *fault = first; fault != NULL; fault = fault->next) {
        if (fault->bucket == bucket && summed == (fault->kind == &dp_fault_flip) &&
            fault->rank == dp_trainer_group(t)->rank && due_in(fault, dp_trainer_steps(t) + 1)) {
            apply(fault, t);
        }
    }
}

void dp_fault_injection_arm(struct dp_fault *first, struct dp_trainer *t)
{
    for (const struct dp_fault *fault = first; fault != NULL; fault = fault->next) {
        if (fault->bucket >= 0 && fault->rank == dp_trainer_group(t)->rank) {
            dp_trainer_on_bucket(t, on_bucket, first);
        }
    }
}

uint64_t dp_fault_injection_next(const struct dp_fault *first, uint64_t after)
{
    uint64_t next = UINT64_MAX;

    for (const struct dp_fault *fault = first; fault != NULL; fault = fault->next) {
        const uint64_t step = fault->step == 0 ? after + 1 : (uint64_t)fault->step;
        if (dp_fault_is_between_steps(fault) && step > after && step < next) {
            next = step;
        }
    }
    return next;
}

/* A fault that all ranks must be at the same place for. */
static dp_status apply_together(struct dp_fault *fault, struct dp_trainer *t)
{
    DP_TRY(dp_deferred_update_finish(t));
    dp_trainer_finish_copies(t); /* on all ranks, who may share the weights */
    DP_TRY(dp_exchange_barrier(dp_trainer_exchange(t)));
    if (fault->rank == dp_trainer_group(t)->rank) {
        DP_TRY(dp_trainer_fetch(t));
        apply(fault, t);
        DP_TRY(dp_trainer_put(t));
    }
    return DP_OK;
}

dp_status dp_fault_injection_apply(struct dp_fault *first, struct dp_trainer *t)
{
    bool together = false;

    for (struct dp_fault *fault = first; fault != NULL; fault = fault->next) {
        if (!dp_fault_is_between_steps(fault) || !due_in(fault, dp_trainer_steps(t))) {
            continue;
        }
        if (happening_of(fault)->together) {
            together = true;
            DP_TRY(apply_together(fault, t));
        } else if (fault->rank == dp_trainer_group(t)->rank) {
            apply(fault, t);
        }
    }
    return together ? dp_exchange_barrier(dp_trainer_exchange(t)) : DP_OK;
}
