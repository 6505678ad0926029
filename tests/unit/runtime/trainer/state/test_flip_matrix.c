/*
 * test_flip_matrix.c - one bit flips in one rank's memory, or on its way there: in each mode it is
 * found, wherever it is, or its place is one that docs/same-bits.md names as never found.
 */
#include "tests/support/arrays.h"

#include "base/log.h"
#include "collectives/compressors/compression.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/run/fault_injection.h"
#include "runtime/trainer/update/deferred_update.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { STEPS = 5, AT = 2, RANKS = 4, BAD = 1, BIT = 22, ELEMENT = 7 };

#define DIFFERS "differs from the other 3 ranks"

/* Place, the option that is to find it, and what is reported. An element of a bucket's sum is one
 * that rank 0 owns where ranks own parts. */
#define PLACES(X)                                                      \
    X(WEIGHT, "train.check_every=2", DIFFERS)                          \
    X(NARROW, "train.check_every=2", DIFFERS)                          \
    X(RUNNING, "train.check_every=2", DIFFERS)                         \
    X(OPTIMIZER, "train.check_every=2", DIFFERS)                       \
    X(AVERAGE, "train.check_every=2", DIFFERS)                         \
    X(SUM, "train.check_every=2", DIFFERS)                             \
    X(SUM_AGAIN, "train.verify_sums=1", "a wrong sum of bucket 0")     \
    X(MESSAGE, "comm.checksum=true", "is not what was sent")           \
    X(MESSAGE_AGAIN, "train.verify_sums=1", "a wrong sum of bucket 0") \
    X(RESIDUAL, "train.check_every=2", DIFFERS)                        \
    X(WARM, "train.check_every=2", DIFFERS)                            \
    X(SCALE, "train.check_every=2", "")

enum place {
#define X(name, option, report) PLACE_##name,
    PLACES(X)
#undef X
        PLACE_COUNT
};

static const struct {
    const char *option, *report;
} places[] = {
#define X(name, option, report) {option, report},
    PLACES(X)
#undef X
};

/* A letter for each place, in their order:
 *   f  found: all ranks end, and say so
 *   -  never found
 *   x  the option is refused in this mode
 *   .  there is no such place, or message */
struct mode {
    const char *name, *layers, *expected, *sets[4];
};

static const struct mode modes[] = {
    {"shm", small_own_norm, "f.ff.ff.f...", {"comm.strategy=shm"}},
    {"ring", small_own_norm, "f.ff.ffff...", {"comm.strategy=ring"}},
    {"overlap", small_own_norm, "f.ff.ffff...", {"comm.strategy=direct", "comm.overlap=on"}},
    {"tree", small_own_norm, "f.ff.ffff...", {"comm.strategy=tree"}},
    {"rhd", small_own_norm, "f.ff.ffff...", {"comm.strategy=rhd"}},
    {"doubling", small_own_norm, "f.ff.ffff...", {"comm.strategy=doubling"}},
    {"hier", small_own_norm, "f.ff.ff.f...", {"comm.strategy=hier"}},
    {"clipping", small_own_norm, "f.ff.ffff...", {"optimizer.clip_norm=1", "comm.strategy=ring"}},
    {"average", small_own_norm, "f.fffffff...", {"train.ema=0.9", "comm.strategy=ring"}},
    {"lanes", small_own_norm, "f.ff.ffff...", {"train.lanes=8", "comm.strategy=direct"}},
    {"bf16", small_own_norm, "ffff.ffff...", {"train.precision=bf16", "comm.strategy=ring"}},
    {"fp16", small_own_norm, "ffff.ffff..f", {"train.precision=fp16", "comm.strategy=ring"}},

    /* Each rank owns parts: of these there is no other copy. */
    {"zero1", small_own_norm, "f.f-.-fff...", {"comm.strategy=zero1:over=ring"}},
    {"zero1, lanes",
     small_own_norm,
     "f.f-.-fff...",
     {"train.lanes=8", "comm.strategy=zero1:over=direct"}},
    {"zero1, bf16",
     small_own_norm,
     "-ff-.-fff...",
     {"train.precision=bf16", "comm.strategy=zero1:over=ring"}},

    /* One copy of the weights, too. The only messages are those by which sums are made again. */
    {"one copy", small_own_norm, "-.f-.-f.-...", {"comm.strategy=zero1:over=shm"}},
    {"one copy, bf16",
     small_own_norm,
     "--f-.-f.-...",
     {"train.precision=bf16", "comm.strategy=zero1:over=shm"}},
    {"ps", small_own_norm, "-.f-.-fff...", {"comm.strategy=ps"}},

    /* The flip comes within local steps, in which ranks differ; or where they have averaged. */
    {"local steps", small_own_norm, "-.f-.-xfx...", {"train.local_steps=3", "comm.strategy=ring"}},
    {"local steps, averaged",
     small_own_norm,
     "f.ff.-xfx...",
     {"train.local_steps=2", "comm.strategy=ring"}},

    {"fp16 sent", small_own_norm, "f.ff.fxfx...", {"comm.compressor=fp16", "comm.strategy=ring"}},
    {"bf16 sent", small_own_norm, "f.ff.fxfx...", {"comm.compressor=bf16", "comm.strategy=ring"}},
    {"int8", small_own_norm, "f.ff.fxfx...", {"comm.compressor=int8", "comm.strategy=ring"}},
    {"onebit", small_own_norm, "f.ff.fxfx-..", {"comm.compressor=onebit", "comm.strategy=ring"}},
    {"topk", small_own_norm, "f.ff.fxfx-..", {"comm.compressor=topk", "comm.strategy=ring"}},
    {"randomk", small_own_norm, "f.ff.fxfx-..", {"comm.compressor=randomk", "comm.strategy=ring"}},
    {"powersgd", small_dense, "f..f.fxfx--.", {"comm.compressor=powersgd", "comm.strategy=ring"}},
    {"zero1, topk",
     small_own_norm,
     "f.f-.-xfx-..",
     {"comm.compressor=topk", "comm.strategy=zero1:over=ring"}},
    {"zero1, powersgd",
     small_dense,
     "f..-.-xfx--.",
     {"comm.compressor=powersgd", "comm.strategy=zero1:over=ring"}},
};

static struct {
    enum place place;
    struct dp_fault *fault; /* NULL: the place is changed here */
    bool there;             /* there is such a place */
} planted;

/* ---- planting ---- */

static void flip(float *array, size_t at)
{
    uint32_t bits;

    memcpy(&bits, &array[at], sizeof(bits));
    bits ^= 1u << BIT;
    memcpy(&array[at], &bits, sizeof(bits));
    planted.there = true;
}

static void flip_narrow(const struct dp_flat *f)
{
    if (f->type != DP_TYPE_F32) {
        ((uint16_t *)f->weights)[ELEMENT] ^= 1u << 8;
        planted.there = true;
    }
}

/* What a compressor keeps: `same` on all ranks, or each its own. */
static void flip_compression(const struct dp_trainer *t, bool same)
{
    struct dp_compression_array arrays[DP_COMPRESSION_ARRAYS];
    const int count = dp_compression_arrays(dp_exchange_compression(t->exchange), arrays);

    for (int i = 0; i < count; i++) {
        if (arrays[i].same == same) {
            flip(arrays[i].there, arrays[i].count / 2);
            return;
        }
    }
}

static void flip_here(struct dp_trainer *t)
{
    const struct dp_flat *f = &t->state.host->flat;

    switch (planted.place) {
    case PLACE_WEIGHT:
        flip(f->master, ELEMENT);
        break;
    case PLACE_NARROW:
        flip_narrow(f);
        break;
    case PLACE_RUNNING:
        if (t->model->buffer_count > 0) {
            flip(f->running, 3);
        }
        break;
    case PLACE_OPTIMIZER:
        flip(f->slots[0], ELEMENT);
        break;
    case PLACE_AVERAGE:
        if (f->average != NULL) {
            flip(f->average, ELEMENT);
        }
        break;
    case PLACE_SCALE:
        planted.there = t->state.scaler.on;
        t->state.scaler.scale *= 2.0; /* a bit of its exponent */
        break;
    default:
        flip_compression(t, planted.place == PLACE_WARM);
        break;
    }
}

/* After a step: all ranks are at one place, as it may change what they share. */
static dp_status plant(struct dp_trainer *t)
{
    if (planted.fault != NULL) {
        planted.there = planted.there || planted.fault->happened; /* not after the last step */
        dp_fault_injection_arm(planted.fault, t);
        return dp_fault_injection_apply(planted.fault, t);
    }
    if (t->state.step != AT) {
        return DP_OK;
    }
    DP_TRY(dp_deferred_update_finish(t));
    dp_trainer_finish_copies(t);
    DP_TRY(dp_exchange_barrier(t->exchange));
    if (t->group->rank == BAD) {
        DP_TRY(dp_trainer_fetch(t));
        flip_here(t);
        DP_TRY(dp_trainer_put(t));
    }
    DP_TRY(dp_exchange_barrier(t->exchange));
    return planted.there ? DP_OK : DP_STOPPED; /* nothing to wait for */
}

static const char *fault_of(enum place place)
{
    switch (place) {
    case PLACE_SUM:
    case PLACE_SUM_AGAIN:
        return "flip:what=gradient,rank=0,step=3,bucket=0,element=7";
    case PLACE_MESSAGE:
    case PLACE_MESSAGE_AGAIN:
        return "flip:what=message,rank=1,step=2";
    default:
        return "";
    }
}

/* ---- what becomes of it ---- */

static char letter(enum place place, size_t wrong)
{
    const bool there =
        planted.there || (wrong > 0 && planted.fault != NULL && planted.fault->happened);

    if (wrong > 0 && strstr(stderr_text, "cannot go with") != NULL) {
        return 'x';
    }
    if (!there) {
        return '.';
    }
    if (wrong == 0) {
        return '-';
    }
    return wrong == RANKS && strstr(stderr_text, places[place].report) != NULL ? 'f' : '?';
}

static char become(const struct mode *mode, enum place place)
{
    const char *sets[DP_COUNT(mode->sets) + 2];
    struct small_run run;
    struct outcome out;
    size_t count = 0, wrong;
    char found;

    for (; mode->sets[count] != NULL; count++) {
        sets[count] = mode->sets[count];
    }
    sets[count++] = places[place].option;
    sets[count] = NULL;
    planted.place = place;
    planted.there = false;
    assert_int_equal(dp_faults_create(fault_of(place), &planted.fault), DP_OK);
    assert_int_equal(small_run_create(&run, mode->layers, sets), 0);
    stderr_begin();
    wrong = small_train(&run, RANKS, STEPS, plant, &out);
    stderr_end();
    small_run_destroy(&run);
    outcome_fini(&out);
    found = letter(place, wrong);
    if (found == '?') {
        print_message("%s, place %d: %zu ranks failed: %s\n", mode->name, place, wrong,
                      stderr_text);
    }
    dp_faults_destroy(planted.fault);
    planted.fault = NULL;
    return found;
}

static void every_place_in_every_mode_is_found_or_named(void **state)
{
    size_t wrong = 0;
    (void)state;

    for (size_t m = 0; m < DP_COUNT(modes); m++) {
        char row[PLACE_COUNT + 1] = "";
        for (int p = 0; p < PLACE_COUNT; p++) {
            row[p] = become(&modes[m], (enum place)p);
        }
        if (strcmp(row, modes[m].expected) != 0) {
            print_message("%s: %s, not %s\n", modes[m].name, row, modes[m].expected);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_in_every_mode_is_found_or_named),
    };

    return cmocka_run_group_tests_name("flip matrix", tests, NULL, NULL);
}
