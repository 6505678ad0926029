/*
 * option_spelling.c - finds the known word that an unknown one may be a misspelling of.
 */
#include <ctype.h>
#include <string.h>

#include "base/option.h"

enum { WORD_MAX = 64 /* longer words are not misspellings of ours */ };

static int least(int a, int b)
{
    return a < b ? a : b;
}

int dp_edit_distance(const char *a, const char *b)
{
    const int rows = (int)strnlen(a, WORD_MAX), cols = (int)strnlen(b, WORD_MAX);
    int cost[3][WORD_MAX + 1]; /* rows i, i-1 and i-2 of the table, in turn */

    if (rows == WORD_MAX || cols == WORD_MAX) {
        return WORD_MAX;
    }
    for (int j = 0; j <= cols; j++) {
        cost[0][j] = j;
    }
    for (int i = 1; i <= rows; i++) {
        int *now = cost[i % 3];
        const int *above = cost[(i + 2) % 3], *twice = cost[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= cols; j++) {
            const int change = above[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = least(change, least(above[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                now[j] = least(now[j], twice[j - 2] + 1);
            }
        }
    }
    return cost[rows % 3][cols];
}

static void fold_case(const char *word, char *folded)
{
    size_t i = 0;

    for (; i < WORD_MAX && word[i] != '\0'; i++) {
        folded[i] = (char)tolower((unsigned char)word[i]);
    }
    folded[i] = '\0';
}

bool dp_looks_like(const char *word, const char *known)
{
    char a[WORD_MAX + 1] = "", b[WORD_MAX + 1] = "";
    const size_t length = strlen(known);
    const int slips = length <= 3 ? 1 : length <= 7 ? 2 : 3;

    fold_case(word, a);
    fold_case(known, b);
    /* Either few letters differ, or the word is an abbreviation. */
    return (strlen(a) > (size_t)slips && dp_edit_distance(a, b) <= slips) || strcmp(a, b) == 0 ||
           (strlen(a) >= 3 && strncmp(a, b, strlen(a)) == 0);
}
