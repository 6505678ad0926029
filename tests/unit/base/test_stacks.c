/* test_stacks.c - the names of the functions that threads are in, also while they are stuck. */
#define _GNU_SOURCE /* pthread_setname_np */

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/system/stacks.h"
#include "base/system/symbol.h"

static sem_t lock;
static atomic_int asleep, end;

/* The compiler must keep them as they are. */
__attribute__((noinline)) static int wait_for_the_lock(void)
{
    atomic_store(&asleep, 1);
    while (sem_wait(&lock) != 0) {
    }
    return atomic_load(&end);
}

__attribute__((noinline)) static int be_stuck(void)
{
    return wait_for_the_lock() + 1;
}

static void *sleep_there(void *unused)
{
    (void)unused;
    (void)pthread_setname_np(pthread_self(), "dp-sleeper");
    return be_stuck() > 1 ? &lock : NULL;
}

static void *spin_there(void *unused)
{
    (void)unused;
    (void)pthread_setname_np(pthread_self(), "dp-spinner");
    atomic_store(&asleep, 2);
    while (atomic_load(&end) == 0) {
    }
    return NULL;
}

/* Prints from another thread than the first one, as a failure detector does. */
static void *print(void *text)
{
    dp_stacks_print(text, 4096);
    return NULL;
}

static void wait_until_asleep(int value)
{
    while (atomic_load(&asleep) != value) {
        (void)usleep(1000);
    }
    (void)usleep(20000);
}

static void a_thread_that_waits_and_the_first_one_are_told_with_their_functions(void **state)
{
    char text[4096];
    pthread_t sleeper, printer;
    const char *line;
    (void)state;

    dp_stacks_init();
    dp_stacks_init();
    assert_int_equal(sem_init(&lock, 0, 0), 0);
    assert_int_equal(pthread_create(&sleeper, NULL, sleep_there, NULL), 0);
    wait_until_asleep(1);
    assert_int_equal(pthread_create(&printer, NULL, print, text), 0);
    assert_int_equal(pthread_join(printer, NULL), 0);
    assert_int_equal(strncmp(text, "test_stacks: ", 13), 0);
    assert_non_null(strstr(text, " < a_thread_that_waits_and_the_first_one_are_told"));
    line = strstr(text, "\ndp-sleeper: ");
    assert_non_null(line);
    line = strstr(line, "wait_for_the_lock < be_stuck < sleep_there");
    assert_non_null(line);
    assert_null(strstr(text, "clone3 (libc.so.6) < "));
    (void)sem_post(&lock);
    assert_int_equal(pthread_join(sleeper, NULL), 0);
}

static void a_thread_that_computes_is_left_alone(void **state)
{
    char text[4096];
    pthread_t spinner, printer;
    (void)state;

    assert_int_equal(pthread_create(&spinner, NULL, spin_there, NULL), 0);
    wait_until_asleep(2);
    assert_int_equal(pthread_create(&printer, NULL, print, text), 0);
    assert_int_equal(pthread_join(printer, NULL), 0);
    atomic_store(&end, 1);
    assert_int_equal(pthread_join(spinner, NULL), 0);
    assert_non_null(strstr(text, "\ndp-spinner: not known"));
}

static void a_text_that_does_not_fit_is_cut(void **state)
{
    char text[4096], small[24];
    pthread_t printer;
    (void)state;

    memset(small, 'x', sizeof(small));
    dp_stacks_print(small, 8); /* of the other threads: there is none */
    assert_string_equal(small, "");
    atomic_store(&asleep, 0);
    assert_int_equal(pthread_create(&printer, NULL, sleep_there, NULL), 0);
    wait_until_asleep(1);
    dp_stacks_print(text, sizeof(text));
    dp_stacks_print(small, 16);
    assert_int_equal(strlen(small), 15);
    assert_int_equal(strncmp(small, text, 15), 0);
    assert_int_equal(small[16], 'x');
    (void)sem_post(&lock);
    assert_int_equal(pthread_join(printer, NULL), 0);
}

static void functions_have_names_also_those_that_are_not_exported(void **state)
{
    static const char data[] = "no function";
    char name[64];
    (void)state;

    dp_symbol_name((uintptr_t)be_stuck + 1, name, sizeof(name));
    assert_string_equal(name, "be_stuck");
    dp_symbol_name((uintptr_t)sem_post, name, sizeof(name));
    assert_non_null(strstr(name, "sem_post")); /* a sanitizer has one of its own */
    dp_symbol_name((uintptr_t)data, name, sizeof(name));
    assert_int_equal(strncmp(name, "test_stacks+0x", 14), 0);
    dp_symbol_name((uintptr_t)&name, name, sizeof(name)); /* the stack: of no file */
    assert_string_equal(name, "?");
    dp_symbol_name(0, name, 4);
    assert_string_equal(name, "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_have_names_also_those_that_are_not_exported),
        cmocka_unit_test(a_thread_that_waits_and_the_first_one_are_told_with_their_functions),
        cmocka_unit_test(a_thread_that_computes_is_left_alone),
        cmocka_unit_test(a_text_that_does_not_fit_is_cut),
    };

    return cmocka_run_group_tests_name("stacks", tests, NULL, NULL);
}
