/*
 * test_remote_fetch.c - files are fetched whole over connections that break off and are shared, and
 * records are read from a server as from a folder.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "runtime/data/records/inspect.h"
#include "runtime/data/records/pack.h"
#include "runtime/data/records/records.h"
#include "runtime/data/records/shard_origin.h"
#include "runtime/data/remote/remote.h"
#include "runtime/data/sample_reader.h"
#include "tests/support/files/array_files.h"
#include "tests/support/files/picture_files.h"
#include "tests/support/held_mutexes.h"
#include "tests/support/http_server.h"
#include "tests/support/same_blocks.h"
#include "tests/support/scratch.h"

enum { ROWS = 700, FEATURES = 300, FILE_MOST = 1 << 18, THREADS = 7 };

static char root[64], packed[80], cache[80], address[80];

/* ---- pauses, which only the clock sees ---- */

enum { NAPS = 64 };

static struct {
    int count, ms[NAPS];
    int longer; /* so many times as long as asked for; 0: as others are */
    atomic_llong ns;
} naps;

int nanosleep(const struct timespec *requested_time, struct timespec *remaining)
{
    const long long ns = requested_time->tv_sec * 1000000000LL + requested_time->tv_nsec;

    if (naps.longer == 0) {
        return (int)syscall(SYS_nanosleep, requested_time, remaining);
    }
    assert_true(naps.count < NAPS);
    naps.ms[naps.count++] = (int)(ns / 1000000);
    atomic_fetch_add(&naps.ns, ns * naps.longer);
    return 0;
}

int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    const int result = (int)syscall(SYS_clock_gettime, clock_id, tp);
    const long long ns = atomic_load(&naps.ns) + tp->tv_nsec;

    tp->tv_sec += (time_t)(ns / 1000000000);
    tp->tv_nsec = (long)(ns % 1000000000);
    return result;
}

/* ---- the server: files of `packed` ---- */

static struct {
    size_t most;        /* bytes of an answer, after which the connection ends; 0: all */
    atomic_int refuses; /* so many requests from now on are answered, then none */
    bool busy;          /* no request is answered: try again */
    size_t zeros;       /* so many bytes are the answer to all requests; 0: files */
    atomic_int tries;   /* while it was busy */
} rules;

static size_t read_file(const char *name, uint8_t *out)
{
    char path[160];
    FILE *file;
    size_t bytes = 0;

    (void)snprintf(path, sizeof(path), "%s/%s", packed, name);
    file = fopen(path, "rb");
    if (file != NULL) {
        bytes = fread(out, 1, FILE_MOST, file);
        (void)fclose(file);
    }
    return bytes;
}

static bool send_zeros(int fd, size_t bytes)
{
    static const char zeros[1 << 20];
    bool goes_on = http_send_head(fd, "200 OK", "", bytes);

    for (size_t left = bytes; goes_on && left > 0;) {
        const size_t count = left < sizeof(zeros) ? left : sizeof(zeros);
        goes_on = http_send(fd, zeros, count);
        left -= count;
    }
    return goes_on;
}

static bool answer(int fd, const char *request)
{
    const char *asked = strstr(request, "Range: ");
    unsigned long long first = 0, last = FILE_MOST;
    uint8_t *content = malloc(FILE_MOST);
    char name[64] = "", line[128] = "";
    size_t bytes, count;
    bool goes_on;

    if (content == NULL) {
        abort();
    }
    if (rules.zeros > 0) {
        free(content);
        return send_zeros(fd, rules.zeros);
    }
    (void)sscanf(request, "GET /%63[^ ]", name); /* NOLINT(cert-err34-c) */
    if (atomic_fetch_sub(&rules.refuses, 1) == 0) {
        free(content);
        return http_send_head(fd, "403 Forbidden", "", 0);
    }
    if (rules.busy) {
        atomic_fetch_add(&rules.tries, 1);
        free(content);
        return http_send_head(fd, "503 Service Unavailable", "", 0);
    }
    bytes = read_file(name, content);
    if (asked != NULL) {
        (void)sscanf(asked, "Range: bytes=%llu-%llu", &first, &last); /* NOLINT(cert-err34-c) */
    }
    if (first >= bytes) {
        free(content);
        return http_send_head(fd, "416 Range Not Satisfiable", "", 0);
    }
    last = last < bytes ? last : bytes - 1;
    count = (size_t)(last + 1 - first);
    (void)snprintf(line, sizeof(line), "Content-Range: bytes %llu-%llu/%zu\r\n", first, last,
                   bytes);
    goes_on = rules.most == 0 || count <= rules.most;
    goes_on = http_send_head(fd, asked != NULL ? "206 Partial Content" : "200 OK",
                             asked != NULL ? line : "", count) &&
              http_send(fd, content + first, goes_on ? count : rules.most) && goes_on;
    free(content);
    return goes_on;
}

static int pack_and_serve(void **state)
{
    static uint8_t numbers[ROWS * FEATURES], labels[ROWS];
    struct dp_pack_options options = {.to = packed, .shard_bytes = 150000, .threads = 1};
    struct dp_pack_result result;
    char arrays[80];
    (void)state;

    (void)snprintf(root, sizeof(root), "/tmp/test_remote_fetch.XXXXXX");
    (void)snprintf(arrays, sizeof(arrays), "%s/arrays", mkdtemp(root) == NULL ? "" : root);
    (void)snprintf(packed, sizeof(packed), "%s/packed", root);
    (void)snprintf(cache, sizeof(cache), "%s/cache", root);
    if (mkdir(arrays, 0700) != 0) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(numbers); i++) {
        numbers[i] = (uint8_t)(i % 251);
    }
    npy_file(arrays, "train_images.npy", "|u1", "(700, 300)", numbers, sizeof(numbers));
    npy_file(arrays, "train_labels.npy", "|u1", "(700,)", labels, sizeof(labels));
    npy_file(arrays, "test_images.npy", "|u1", "(40, 300)", numbers, (size_t)40 * FEATURES);
    npy_file(arrays, "test_labels.npy", "|u1", "(40,)", labels, 40);
    options.from = arrays;
    if (dp_pack(&options, &result) != DP_OK || http_server_start(answer) != 0) {
        return 1;
    }
    (void)snprintf(address, sizeof(address), "http://127.0.0.1:%d", http_server.port);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_server_stop();
    remove_tree(root);
    return dp_mem_live() != 0;
}

static int obey_no_rule(void **state)
{
    (void)state;
    rules.most = 0;
    rules.busy = false;
    rules.zeros = 0;
    atomic_store(&rules.refuses, -1);
    naps.count = 0;
    naps.longer = 0;
    return 0;
}

/* ---- fetching ---- */

struct taken {
    uint8_t bytes[FILE_MOST];
    size_t count;
};

static dp_status take(void *context, const void *data, size_t bytes)
{
    struct taken *t = context;

    assert_true(t->count + bytes <= FILE_MOST);
    memcpy(t->bytes + t->count, data, bytes);
    t->count += bytes;
    return DP_OK;
}

/* Each answer ends after a part of it, and the next request asks for the rest. */
static void a_fetch_goes_on_where_it_broke_off(void **state)
{
    enum { BEGIN = 1000, END = 91000 };
    static struct taken taken;
    static uint8_t whole[FILE_MOST];
    const size_t total = read_file("shard-00000.rec", whole);
    const struct dp_remote_want want = {.name = "shard-00000.rec",
                                        .begin = BEGIN,
                                        .end = END,
                                        .total = total,
                                        .take = take,
                                        .context = &taken};
    const int before = atomic_load(&http_server.connections);
    struct dp_remote *remote = NULL;
    (void)state;

    rules.most = 40000;
    assert_int_equal(dp_remote_open(address, 60, &remote), DP_OK);
    assert_int_equal(dp_remote_get(remote, &want), DP_OK);
    dp_remote_close(remote);
    assert_int_equal(taken.count, END - BEGIN);
    assert_memory_equal(taken.bytes, whole + BEGIN, END - BEGIN);
    assert_int_equal(atomic_load(&http_server.connections), before + 3);
}

/* Up to 5 s, for two minutes: 29 times, or less where the test itself takes seconds. */
static void a_busy_server_is_asked_less_and_less_often(void **state)
{
    static const int pauses[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000};
    const struct dp_remote_want want = {.name = "index.json", .begin = 0, .end = 1, .take = take};
    struct dp_remote *remote = NULL;
    (void)state;

    rules.busy = true;
    naps.longer = 1;
    atomic_store(&rules.tries, 0);
    assert_int_equal(dp_remote_open(address, 120, &remote), DP_OK);
    assert_int_equal(dp_remote_get(remote, &want), DP_ERR_NOINPUT);
    dp_remote_close(remote);
    assert_int_equal(atomic_load(&rules.tries), naps.count + 1);
    assert_in_range(naps.count, 26, 29);
    for (size_t i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
        assert_int_equal(naps.ms[i], pauses[i]);
    }
}

/* Each nap takes most of the patience, so that two in a row take more. */
static void patience_begins_anew_with_all_that_comes(void **state)
{
    enum { BEGIN = 1000, END = 1100, PIECE = 25 };
    static struct taken taken;
    const struct dp_remote_want want = {
        .name = "shard-00000.rec", .begin = BEGIN, .end = END, .take = take, .context = &taken};
    struct dp_remote *remote = NULL;
    (void)state;

    rules.most = PIECE;
    naps.longer = 900; /* 90 s in place of 0.1 s */
    assert_int_equal(dp_remote_open(address, 120, &remote), DP_OK);
    assert_int_equal(dp_remote_get(remote, &want), DP_OK);
    assert_int_equal(taken.count, END - BEGIN);
    assert_int_equal(naps.count, (END - BEGIN) / PIECE - 1);
    for (int i = 0; i < naps.count; i++) {
        assert_int_equal(naps.ms[i], 100);
    }
    rules.busy = true;
    naps.count = 0;
    assert_int_equal(dp_remote_get(remote, &want), DP_ERR_NOINPUT);
    assert_int_equal(naps.count, 2);
    dp_remote_close(remote);
}

/* Threads that all are in the middle of a fetch at the same time. */
struct crowd {
    struct dp_remote *remote;
    pthread_barrier_t all;
};

static dp_status wait_for_all(void *context, const void *data, size_t bytes)
{
    struct crowd *crowd = context;
    (void)data;

    (void)pthread_barrier_wait(&crowd->all);
    return bytes == 1 ? DP_OK : DP_ERR_DISAGREE;
}

static void *fetch_beside(void *context)
{
    struct crowd *crowd = context;
    const struct dp_remote_want want = {
        .name = "index.json", .begin = 2, .end = 3, .take = wait_for_all, .context = crowd};

    return dp_remote_get(crowd->remote, &want) == DP_OK ? NULL : crowd;
}

static void connections_of_many_threads_are_all_closed(void **state)
{
    pthread_t threads[THREADS];
    struct crowd crowd;
    (void)state;

    assert_int_equal(dp_remote_open(address, 60, &crowd.remote), DP_OK);
    assert_int_equal(pthread_barrier_init(&crowd.all, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fetch_beside, &crowd), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    (void)pthread_barrier_destroy(&crowd.all);
    dp_remote_close(crowd.remote);
    assert_int_equal(dp_mem_live(), 0);
    http_server_wait();
}

/* ---- records ---- */

static struct dp_shard_store_config from_server(void)
{
    return (struct dp_shard_store_config){.dir = address, .cache = cache, .patience_s = 60};
}

/* The second time from copies. */
static void records_of_a_server_are_those_of_its_folder(void **state)
{
    const struct dp_shard_store_config there = from_server(), here = {.dir = packed};
    const int before = dup(STDERR_FILENO);
    (void)state;

    (void)close(before);
    for (int time = 0; time < 2; time++) {
        struct dp_records *remote = NULL, *local = NULL;
        int after;
        assert_int_equal(dp_records_open(&there, &remote), DP_OK);
        assert_int_equal(dp_records_open(&here, &local), DP_OK);
        assert_int_equal(dp_records_verify(remote), DP_OK);
        assert_same_blocks(remote, local);
        dp_records_close(remote);
        dp_records_close(local);
        assert_int_equal(dp_mem_live(), 0);
        http_server_wait(); /* its side of connections is closed, too */
        after = dup(STDERR_FILENO);
        (void)close(after);
        assert_int_equal(after, before);
    }
}

static int files_in(const char *folder)
{
    DIR *listed = opendir(folder);
    int count = 0;

    if (listed == NULL) {
        return -1;
    }
    while (scratch_next(listed) != NULL) {
        count++;
    }
    (void)closedir(listed);
    return count;
}

/* They are asked for by themselves. */
static void a_few_samples_to_look_at_copy_no_shard(void **state)
{
    const struct dp_source_config config = {
        .dir = address, .remote_wait_s = 60, .local_cache = cache, .input = {.count = FEATURES}};
    struct dp_samples *samples = NULL;
    size_t bytes;
    int files;
    (void)state;

    remove_tree(cache);
    assert_int_equal(dp_samples_open("records", &config, &samples), DP_OK);
    files = files_in(cache);
    bytes = dp_sample_reader_need(samples);
    assert_true(bytes >= FEATURES);
    assert_int_equal(files_in(cache), files);
    dp_samples_close(samples);
}

static void blocks_that_are_looked_at_are_those_of_the_folder(void **state)
{
    const struct dp_shard_store_config there = from_server(), here = {.dir = packed};
    struct dp_records *remote = NULL, *local = NULL;
    (void)state;

    assert_int_equal(dp_records_open(&there, &remote), DP_OK);
    assert_int_equal(dp_records_open(&here, &local), DP_OK);
    dp_records_look(remote, true);
    assert_same_blocks(remote, local);
    dp_records_close(remote);
    dp_records_close(local);
}

static void copies_go_to_a_folder_of_the_users_where_none_is_named(void **state)
{
    struct dp_shard_store_config there = from_server();
    const char *before = getenv("TMPDIR");
    struct dp_records *records = NULL;
    char own[128];
    (void)state;

    there.cache = NULL;
    (void)snprintf(own, sizeof(own), "%s", before != NULL ? before : "");
    assert_int_equal(setenv("TMPDIR", root, 1), 0);
    assert_int_equal(dp_records_open(&there, &records), DP_OK);
    assert_int_equal(own[0] != '\0' ? setenv("TMPDIR", own, 1) : unsetenv("TMPDIR"), 0);
    assert_int_equal(dp_records_verify(records), DP_OK);
    dp_records_close(records);
    (void)snprintf(own, sizeof(own), "%s/lockstep-cache-%lu", root, (unsigned long)geteuid());
    assert_true(files_in(own) > 0);
}

/* A part of it had come. */
static void an_index_that_is_refused_halfway_leaves_nothing(void **state)
{
    const struct dp_shard_store_config there = from_server();
    struct dp_records *records = NULL;
    struct dp_log_capture capture;
    (void)state;

    remove_tree(cache); /* has the text of the last one, for a few seconds */
    rules.most = 200;
    atomic_store(&rules.refuses, 1);
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_records_open(&there, &records), DP_ERR_NOINPUT);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_non_null(strstr(dp_log_captured(&capture), "/index.json: is refused (HTTP 403)"));
    assert_null(records);
    assert_int_equal(dp_mem_live(), 0);
}

static void an_index_may_have_as_many_bytes_as_its_limit(void **state)
{
    struct dp_shard_origin *origin = NULL;
    struct dp_log_capture capture;
    char *text = NULL;
    size_t bytes = 0;
    (void)state;

    assert_int_equal(dp_shard_origin_open(address, 60, &origin), DP_OK);
    rules.zeros = DP_RECORDS_INDEX_BYTES;
    assert_int_equal(dp_shard_origin_index(origin, &text, &bytes), DP_OK);
    assert_int_equal(bytes, DP_RECORDS_INDEX_BYTES);
    dp_free(text);
    rules.zeros = DP_RECORDS_INDEX_BYTES + 1;
    dp_log_capture_begin(&capture, DP_LOG_ERROR);
    assert_int_equal(dp_shard_origin_index(origin, &text, &bytes), DP_ERR_DATA);
    dp_log_capture_end(&capture, DP_LOG_DROP);
    assert_non_null(strstr(dp_log_captured(&capture), "is longer than 67108864 bytes"));
    dp_shard_origin_close(origin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_fetch_goes_on_where_it_broke_off, obey_no_rule),
        cmocka_unit_test_setup(a_busy_server_is_asked_less_and_less_often, obey_no_rule),
        cmocka_unit_test_setup(patience_begins_anew_with_all_that_comes, obey_no_rule),
        cmocka_unit_test_setup(connections_of_many_threads_are_all_closed, obey_no_rule),
        cmocka_unit_test_setup(records_of_a_server_are_those_of_its_folder, obey_no_rule),
        cmocka_unit_test_setup(a_few_samples_to_look_at_copy_no_shard, obey_no_rule),
        cmocka_unit_test_setup(blocks_that_are_looked_at_are_those_of_the_folder, obey_no_rule),
        cmocka_unit_test_setup(copies_go_to_a_folder_of_the_users_where_none_is_named,
                               obey_no_rule),
        cmocka_unit_test_setup(an_index_that_is_refused_halfway_leaves_nothing, obey_no_rule),
        cmocka_unit_test_setup(an_index_may_have_as_many_bytes_as_its_limit, obey_no_rule),
    };

    dp_log_set_level(DP_LOG_NONE);
    return cmocka_run_group_tests_name("remote_fetch", tests, pack_and_serve, stop) != 0 ||
           dp_mem_live() != 0; /* cmocka counts no failed teardown of a group */
}
