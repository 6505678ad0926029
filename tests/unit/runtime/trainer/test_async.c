/* test_async.c - training at each rank's own pace: the bound holds, no gradient is lost, and ranks
 * synchronise after the same step. */
#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "collectives/exchange/exchange_calls.h"
#include "runtime/trainer/async.h"
#include "tests/support/local_world.h"
#include "tests/support/small_run.h"
#include "tests/support/stderr_text.h"

enum { SETS = 8, STRETCHES = 5 };

static const char *const no_sets[] = {NULL};
static const char *const served[] = {"train.mode=async", "comm.strategy=ps", "comm.servers=1",
                                     "train.staleness=2", NULL};

/* One training with ranks as threads: settings and observations. */
struct world {
    struct small_run run;
    int trainers, servers, staleness, steps;
    int syncs[STRETCHES];          /* after which steps ranks synchronise; 0: after the last */
    int slow;                      /* trainer for which others are made to wait; -1: none */
    int requesting, request_at;    /* rank that requests to stop, from that step on; -1: none */
    int enough_at;                 /* result that is enough; 0: none */
    atomic_int begun[SMALL_RANKS]; /* steps that a trainer has begun */
    atomic_int most_ahead;
    uint64_t hash[STRETCHES + 1][SMALL_RANKS];
    uint64_t ends[STRETCHES + 1][SMALL_RANKS];
    float loss[SMALL_STEPS + 1][SMALL_RANKS];
    double score[SMALL_RANKS]; /* of all steps */
    struct dp_evaluation evaluation[SMALL_RANKS];
    uint64_t pushes, applied;
    float *weights; /* owned; of rank 0 at the end */
};

/* One rank of it. */
struct member {
    struct world *world;
    struct dp_trainer *t;
    struct dp_async *async;
    uint64_t results; /* steps reported */
    int turn;         /* stretches done */
    int until;
    size_t wrong;
};

static int begun_least(const struct world *w)
{
    int least = atomic_load(&w->begun[0]);

    for (int i = 1; i < w->trainers; i++) {
        const int own = atomic_load(&w->begun[i]);
        least = own < least ? own : least;
    }
    return least;
}

/* The slow trainer continues when all others have reached the bound, and have had time to exceed
 * it. */
static void dawdle(struct member *m, int step)
{
    struct world *w = m->world;
    const struct timespec nap = {0, 200000};
    const int most = step + w->staleness + 1 < m->until ? step + w->staleness + 1 : m->until;

    for (int turn = 0, left = 5; turn < 300000 && left > 0; turn++) {
        bool come = true;
        for (int i = 0; i < w->trainers; i++) {
            come = come && (i == w->slow || atomic_load(&w->begun[i]) >= most);
        }
        left -= come;
        (void)nanosleep(&nap, NULL);
    }
    for (int i = 0; i < w->trainers; i++) {
        m->wrong += i != w->slow && atomic_load(&w->begun[i]) != most;
    }
}

static void request(void *context)
{
    struct member *m = context;
    struct world *w = m->world;
    const int rank = m->t->group->rank, step = (int)m->t->state.step;

    m->t->request[DP_REQUEST_STOP] = rank == w->requesting && begun_least(w) >= w->request_at;
    if (dp_trainer_serves(m->t)) {
        return;
    }
    atomic_store(&w->begun[rank], step + 1);
    const int ahead = step - begun_least(w) + 1;
    m->wrong += ahead > w->staleness + 1; /* begun less: not finished the previous step */
    if (ahead > atomic_load(&w->most_ahead)) {
        atomic_store(&w->most_ahead, ahead);
    }
    if (rank == w->slow) {
        dawdle(m, step);
    }
}

static dp_status result(void *context, const struct dp_step_result *r, bool *enough)
{
    struct member *m = context;

    m->wrong +=
        r->step != ++m->results || r->rows != dp_input_global_rows(&m->t->input, r->step - 1);
    m->wrong += !isfinite(r->report.loss) || r->report.score > (float)r->rows;
    m->world->loss[r->step - 1][m->t->group->rank] = r->report.loss;
    m->world->score[m->t->group->rank] += (double)r->report.score;
    *enough = *enough || (int)r->step == m->world->enough_at;
    return DP_OK;
}

static dp_status run_stretches(struct member *m)
{
    struct world *w = m->world;
    const int rank = m->t->group->rank;
    bool asked[DP_REQUEST_COUNT] = {false};

    while ((int)m->t->state.step < w->steps) {
        const int next = w->syncs[m->turn];
        m->until = next > 0 ? next : w->steps;
        DP_TRY(dp_async_run(m->async, (uint64_t)m->until, asked));
        m->wrong += m->results != m->t->state.step || (int)m->t->state.step > m->until ||
                    m->t->state.batches_tracked != (int64_t)m->t->state.step;
        m->wrong += ((int)m->t->state.step < m->until || w->requesting >= 0) &&
                    !asked[DP_REQUEST_STOP] && w->enough_at == 0;
        w->hash[m->turn][rank] = small_hash(m->t);
        w->ends[m->turn][rank] = m->t->state.step;
        m->turn++;
        if ((int)m->t->state.step < m->until) { /* asked to */
            break;
        }
    }
    return dp_trainer_evaluate(m->t, &w->evaluation[rank]);
}

static dp_status count_pushes(struct member *m)
{
    const size_t bins = dp_async_bins(m->async);
    uint64_t *counts = dp_zalloc(bins, sizeof(*counts)), sum = 0;

    if (counts == NULL) {
        return DP_ERR_NOMEM;
    }
    DP_TRY(dp_async_histogram(m->async, counts));
    DP_TRY(small_weights(m->t, m->t->group->rank == 0 ? m->world->weights : NULL));
    for (size_t i = 0; i < bins; i++) {
        sum += counts[i];
    }
    if (m->t->group->rank == 0) {
        m->world->pushes = sum;
        m->world->applied = m->t->state.step_params->applied;
    }
    dp_free(counts);
    return DP_OK;
}

static size_t train_rank(struct dp_group *group, const void *arg)
{
    struct world *w = *(struct world *const *)arg;
    struct member m = {.world = w};
    const struct dp_async_hooks hooks = {.context = &m, .request = request, .result = result};
    dp_status status = small_run_trainer(&w->run, group, (uint64_t)w->steps, &m.t);

    if (status == DP_OK) {
        status = dp_async_create(m.t, &hooks, &m.async);
    }
    if (status == DP_OK) {
        status = run_stretches(&m);
    }
    if (status == DP_OK) {
        status = count_pushes(&m);
    }
    if (status != DP_OK) {
        dp_group_leave(group, DP_ERR_CANCELLED);
    }
    dp_async_destroy(m.async);
    dp_trainer_destroy(m.t);
    return m.wrong + (status != DP_OK);
}

/* Trains; the caller looks at the world, and then gives it to world_fini. */
static void world_train(struct world *w, const char *layers, const char *const *more)
{
    char servers[64], staleness[64];
    const char *sets[SETS + 4] = {"train.mode=async", "comm.strategy=ps", servers, staleness};
    const struct world *const arg = w;

    for (int i = 0; more[i] != NULL; i++) {
        sets[4 + i] = more[i];
    }
    (void)snprintf(servers, sizeof(servers), "comm.servers=%d", w->servers);
    (void)snprintf(staleness, sizeof(staleness), "train.staleness=%d", w->staleness);
    assert_int_equal(small_run_create(&w->run, layers, sets), 0);
    w->weights = dp_zalloc(w->run.model->trained, sizeof(float));
    assert_non_null(w->weights);
    assert_int_equal(on_local_ranks(w->trainers + w->servers, train_rank, &arg), 0);
}

static void world_fini(struct world *w)
{
    dp_free(w->weights);
    small_run_destroy(&w->run);
}

static struct world world_of(int trainers, int servers, int staleness, int steps)
{
    return (struct world){.trainers = trainers,
                          .servers = servers,
                          .staleness = staleness,
                          .steps = steps,
                          .slow = -1,
                          .request_at = steps - 1,
                          .requesting = -1};
}

/* After each synchronisation all ranks have the same state, and know all results. */
static void check_together(const struct world *w, int steps)
{
    const int ranks = w->trainers + w->servers;

    for (int rank = 1; rank < ranks; rank++) {
        for (int i = 0; i <= STRETCHES; i++) {
            assert_true(w->hash[i][rank] == w->hash[i][0]);
            assert_int_equal(w->ends[i][rank], w->ends[i][0]);
        }
        for (int step = 0; step < steps; step++) {
            assert_true(w->loss[step][rank] == w->loss[step][0]);
        }
        assert_true(w->evaluation[rank].loss == w->evaluation[0].loss);
        assert_true(w->evaluation[rank].accuracy == w->evaluation[0].accuracy);
    }
}

/* ---- compared with synchronous training ---- */

static void train_in_step(int ranks, int steps, const char *const *sets, const char *layers,
                          struct outcome *out)
{
    struct small_run run;

    assert_int_equal(small_run_create(&run, layers, sets), 0);
    assert_int_equal(small_train(&run, ranks, steps, NULL, out), 0);
    small_run_destroy(&run);
}

static void staleness_0_is_synchronous_bit_for_bit(void **state)
{
    static const char *const sync[] = {"comm.servers=2", "comm.strategy=ps", NULL};
    static const char *const async[] = {"comm.servers=2", "comm.strategy=ps", "train.mode=async",
                                        "train.staleness=0", NULL};
    struct outcome a, b;
    (void)state;

    train_in_step(4, 7, sync, small_own_norm, &a);
    train_in_step(4, 7, async, small_own_norm, &b);
    assert_int_equal(memcmp(a.weights, b.weights, a.trained * sizeof(float)), 0);
    assert_int_equal(memcmp(a.hash, b.hash, sizeof(a.hash)), 0);
    for (int step = 0; step < 7; step++) {
        assert_true(a.loss[step][0] == b.loss[step][0]);
    }
    outcome_fini(&b);
    outcome_fini(&a);
}

/* A single trainer is never ahead: its gradients are applied one after the other. */
static void a_single_trainer_trains_as_in_synchronous_steps(void **state)
{
    static const char *const ways[][4] = {
        {"optimizer.weight_decay=0.01", NULL},
        {"optimizer.name=adamw", "optimizer.lr=0.01", "train.micro_batch=3", NULL},
        {"optimizer.schedule.name=cosine", "optimizer.nesterov=true", NULL},
        {"train.precision=bf16", NULL},
    };
    static const char *const layers[] = {small_dropout, small_own_norm, small_dense, small_dense};
    (void)state;

    for (int i = 0; i < 4; i++) {
        struct world w = world_of(1, 1 + i % 3, 1 + i, 12);
        struct outcome plain;
        train_in_step(1, w.steps, ways[i], layers[i], &plain);
        w.syncs[0] = 5;
        world_train(&w, layers[i], ways[i]);
        check_together(&w, w.steps);
        assert_int_equal(memcmp(plain.weights, w.weights, plain.trained * sizeof(float)), 0);
        for (int step = 0; step < w.steps; step++) {
            assert_true(w.loss[step][0] == plain.loss[step][0]);
        }
        assert_true(w.evaluation[0].loss == plain.evaluation[0].loss);
        world_fini(&w);
        outcome_fini(&plain);
    }
}

/* ---- the bound ---- */

static void no_trainer_is_further_ahead_than_allowed(void **state)
{
    static const struct {
        int trainers, servers, staleness;
    } ways[] = {{2, 1, 1}, {3, 2, 2}, {4, 1, 4}, {2, 2, 4}, {4, 2, 1}};
    (void)state;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct world w = world_of(ways[i].trainers, ways[i].servers, ways[i].staleness, 14);
        w.slow = (int)i % w.trainers;
        w.syncs[0] = 9;
        world_train(&w, small_dense, no_sets);
        check_together(&w, w.steps);
        assert_in_range(atomic_load(&w.most_ahead), w.staleness, w.staleness + 1);
        assert_int_equal(w.pushes, w.servers * w.trainers * w.steps);
        world_fini(&w);
    }
}

/* At this learning rate the gradient hardly changes on the way, so that its parts move the weights
 * as far in any order: a lost or doubled part would leave a gap of about 1 / (3 * 20). */
static void every_gradient_is_applied_once(void **state)
{
    static const char *const sync[] = {
        "comm.servers=2",       "comm.strategy=ps",           "optimizer.lr=1e-4",
        "optimizer.momentum=0", "optimizer.weight_decay=0.1", NULL};
    const char *const *const async = sync + 2;
    struct world w = world_of(3, 2, 3, 20);
    struct outcome plain, stale;
    (void)state;

    train_in_step(5, w.steps, sync, small_own_norm, &plain);
    w.syncs[0] = 4;
    w.syncs[1] = 5;
    world_train(&w, small_own_norm, async);
    check_together(&w, w.steps);
    stale = (struct outcome){.weights = w.weights, .trained = plain.trained};
    const double distance = small_distance(&w.run, &stale, &plain);
    if (distance > 0.002) {
        fail_msg("the ends are %g of the way apart", distance);
    }
    assert_int_equal(w.pushes, 2 * 3 * w.steps);
    assert_int_equal(w.applied, 3 * w.steps);
    for (int step = 0; step < w.steps; step++) {
        assert_float_equal(w.loss[step][0], plain.loss[step][0], 0.002);
    }
    assert_true(plain.score > 0 && fabs(w.score[0] - plain.score) < 0.05 * plain.score);
    world_fini(&w);
    outcome_fini(&plain);
}

/* With a batch of 3 rows one of 4 trainers has none, and a gradient of zero. */
static void a_trainer_without_rows_changes_no_weight(void **state)
{
    struct world w = world_of(4, 1, 1, 10); /* every fifth batch is short */
    (void)state;

    world_train(&w, small_dense, no_sets);
    check_together(&w, w.steps);
    assert_int_equal(w.pushes, 40);
    assert_int_equal(w.applied, 38);
    world_fini(&w);
}

/* ---- ending together ---- */

static void a_request_of_any_rank_ends_all_after_the_same_step(void **state)
{
    struct world last = world_of(2, 1, 0, 6); /* no answer comes after the last gradient */
    (void)state;

    last.requesting = 1;
    world_train(&last, small_dense, no_sets);
    world_fini(&last);
    for (int rank = 0; rank < 5; rank++) { /* trainers 0 to 2, servers 3 and 4 */
        struct world w = world_of(3, 2, 2, 40);
        w.requesting = rank;
        w.request_at = 6;
        world_train(&w, small_dense, no_sets);
        const int end = (int)w.ends[0][0];
        check_together(&w, end);
        /* Requests are sent with gradients, a server's through a trainer; some trainers are ahead
         * by then. */
        if (end < 6 || end > 6 + 3 + 3 * (w.staleness + 1)) {
            fail_msg("rank %d: the end is after step %d", rank, end);
        }
        assert_int_equal(w.pushes, 2 * 3 * end);
        world_fini(&w);
    }
}

static void a_hook_that_sets_enough_ends_all(void **state)
{
    struct world w = world_of(2, 2, 1, 40);
    (void)state;

    w.enough_at = 7;
    world_train(&w, small_dense, no_sets);
    const int end = (int)w.ends[0][0];
    check_together(&w, end);
    assert_true(end >= 7 && end <= 7 + w.staleness + 2);
    world_fini(&w);
}

/* ---- learning ---- */

/* Without momentum a delay of some steps out of 40 costs little: it learns all but a twentieth of
 * what synchronous training does (guessing among 5 classes is a loss of 1.61). */
static void stale_gradients_train_nearly_as_well(void **state)
{
    static const char *const sets[] = {"optimizer.lr=0.1", "optimizer.momentum=0", NULL};
    struct outcome plain;
    (void)state;

    train_in_step(3, SMALL_STEPS, sets, small_dense, &plain);
    for (int staleness = 1; staleness <= 4; staleness *= 2) {
        struct world w = world_of(3, 1, staleness, SMALL_STEPS);
        w.slow = 1;
        world_train(&w, small_dense, sets);
        check_together(&w, w.steps);
        const double loss = w.evaluation[0].loss, best = plain.evaluation[0].loss;
        if (!(loss < best + 0.05 * (1.61 - best))) {
            fail_msg("staleness %d: a loss of %g, not %g", staleness, loss, best);
        }
        world_fini(&w);
    }
    outcome_fini(&plain);
}

/* ---- memory ---- */

static dp_status ignore(void *context, const struct dp_step_result *r, bool *enough)
{
    (void)context;
    (void)r;
    (void)enough;
    return DP_OK;
}

static size_t creates(struct dp_group *group, const void *arg)
{
    const struct dp_async_hooks hooks = {.result = ignore};
    struct dp_trainer *t = NULL;
    struct dp_async *async = NULL;
    dp_status status = small_run_trainer(arg, group, 1, &t);

    if (status == DP_OK) {
        status = dp_exchange_agree(t->exchange, dp_async_create(t, &hooks, &async));
    }
    dp_async_destroy(async);
    dp_trainer_destroy(t);
    return status != DP_OK;
}

static void creating_survives_every_failed_allocation(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_own_norm, served), 0);
    check_failing_allocations(2, NULL, creates, &run);
    small_run_destroy(&run);
}

/* With other shardings trainers own parts, too, which no rank would update. */
static void only_servers_can_apply_stale_gradients(void **state)
{
    struct small_run run;
    (void)state;

    assert_int_equal(small_run_create(&run, small_dense, served), 0);
    run.config->comm.strategy = "zero1:over=shm"; /* after the check of the configuration */
    stderr_begin();
    assert_int_equal(on_local_ranks(2, creates, &run), 2);
    stderr_end();
    assert_non_null(strstr(stderr_text, "train.staleness: needs comm.strategy ps, not zero1"));
    small_run_destroy(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(staleness_0_is_synchronous_bit_for_bit),
        cmocka_unit_test(a_single_trainer_trains_as_in_synchronous_steps),
        cmocka_unit_test(no_trainer_is_further_ahead_than_allowed),
        cmocka_unit_test(every_gradient_is_applied_once),
        cmocka_unit_test(a_trainer_without_rows_changes_no_weight),
        cmocka_unit_test(a_request_of_any_rank_ends_all_after_the_same_step),
        cmocka_unit_test(a_hook_that_sets_enough_ends_all),
        cmocka_unit_test(stale_gradients_train_nearly_as_well),
        cmocka_unit_test(only_servers_can_apply_stale_gradients),
        cmocka_unit_test(creating_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests_name("async", tests, NULL, NULL);
}
