/* test_broadcast_text.c - a text of rank 0 comes to all, or why it has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "tests/support/local_world.h"

struct text {
    const char *text; /* NULL: rank 0 has none */
    dp_status status;
};

static size_t gets_text(struct dp_group *group, const void *arg)
{
    const struct text *sent = arg;
    const size_t bytes = sent->text == NULL ? 0 : strlen(sent->text) + 1;
    char *text = NULL;
    size_t wrong = 0;

    if (group->rank == 0 && sent->text != NULL) {
        text = dp_zalloc(1, bytes);
        if (text == NULL) {
            return 1;
        }
        memcpy(text, sent->text, bytes);
    }
    wrong += dp_group_broadcast_text(group, &text, group->rank == 0 ? sent->status : DP_OK) !=
             sent->status;
    if (sent->status == DP_OK && sent->text != NULL) {
        wrong += text == NULL || strcmp(text, sent->text) != 0;
    } else {
        wrong += group->rank > 0 && text != NULL;
    }
    dp_free(text);
    return wrong;
}

static void all_get_the_text_of_rank_0(void **state)
{
    static const struct text texts[] = {{"", DP_OK},
                                        {"a", DP_OK},
                                        {"two lines\nof a file\n", DP_OK},
                                        {NULL, DP_ERR_DATA},
                                        {"half of it", DP_ERR_CONFIG}};
    const size_t live = dp_mem_live();
    (void)state;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (int ranks = 1; ranks <= 5; ranks++) {
            assert_int_equal(on_local_ranks(ranks, gets_text, &texts[i]), 0);
        }
    }
    assert_int_equal(dp_mem_live(), live);
}

static void without_memory_for_it_no_rank_waits(void **state)
{
    static const struct text text = {"text", DP_OK};
    (void)state;

    check_failing_allocations(3, NULL, gets_text, &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_get_the_text_of_rank_0),
        cmocka_unit_test(without_memory_for_it_no_rank_waits),
    };

    return cmocka_run_group_tests_name("broadcast_text", tests, NULL, NULL);
}
