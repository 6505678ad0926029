/* test_name_list.c - names of a folder in one piece of memory, in the order of their bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "runtime/data/formats/name_list.h"

enum { NAMES = 2000, STEP = 777 /* has no divisor with NAMES in common */ };

/* Name i of all, in their order; longer and shorter ones. */
static const char *name_of(int i)
{
    static char name[64];

    (void)snprintf(name, sizeof(name), "%04d%.*s", i, i % 13, "abcdefghijklm");
    return name;
}

static bool add_all(struct dp_name_list *list)
{
    for (int i = 0; i < NAMES; i++) {
        if (!dp_name_list_add(list, name_of(i * STEP % NAMES))) {
            return false;
        }
    }
    return true;
}

static void names_are_sorted_and_found(void **state)
{
    struct dp_name_list list = {NULL, 0, NULL, 0, 0};
    (void)state;

    assert_true(add_all(&list));
    assert_true(dp_name_list_sort(&list));
    assert_int_equal(list.count, NAMES);
    for (int i = 0; i < NAMES; i++) {
        assert_string_equal(list.at[i], name_of(i));
        assert_int_equal(dp_name_list_find(&list, name_of(i)), i);
    }
    assert_int_equal(dp_name_list_find(&list, ""), NAMES);
    assert_int_equal(dp_name_list_find(&list, "0000a"), NAMES);
    assert_int_equal(dp_name_list_find(&list, "9"), NAMES);
    dp_name_list_release(&list);
    assert_int_equal(dp_mem_live(), 0);
    assert_int_equal(list.count, 0);
    assert_int_equal(dp_name_list_find(&list, "a"), 0);
}

/* What was added before stays, and nothing is left at the end. */
static void without_memory_it_says_so(void **state)
{
    bool well = false;
    (void)state;

    for (int nth = 1; !well; nth++) {
        struct dp_name_list list = {NULL, 0, NULL, 0, 0};
        dp_mem_fail_nth(nth);
        well = add_all(&list) && dp_name_list_sort(&list);
        dp_mem_fail_nth(0);
        assert_true(nth < 100);
        if (list.count > 0) {
            assert_string_equal(list.text, name_of(0));
        }
        dp_name_list_release(&list);
        assert_int_equal(dp_mem_live(), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_sorted_and_found),
        cmocka_unit_test(without_memory_it_says_so),
    };

    return cmocka_run_group_tests_name("name_list", tests, NULL, NULL);
}
