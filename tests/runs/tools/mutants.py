"""tests/mutants by itself: what it makes of a source, and that its list of equals fits the sources.
(It tries no mutant here: that takes builds of its own.)
"""
import pathlib
import sys

import harness
from harness import ROOT, check, same

sys.path.insert(0, str(ROOT / "tests/mutation"))

import operators  # noqa: E402

SOURCE = """\
#include "x.h"

static const int table[] = {1, 2};

int f(int a, int b) /* a < b */
{
    int sum = a + 1;
    char text[16];

    if (a < b && b != 0) {
        sum -= g(a, b);
        h(sum);
    }
    DP_DEBUG("%d < %d", a, 10);
    return true;
}
"""
EXPECTED = ((7, "arithmetic"), (7, "number"), (10, "condition"), (10, "logic"), (10, "number"),
            (10, "relation"), (11, "arguments"), (11, "assignment"), (11, "statement"),
            (12, "statement"), (15, "truth"))


def case_each_operator_changes_one_line_of_code():
    found = operators.mutants_of("x.c", SOURCE)
    for mutant in found:
        changed = operators.mutated(SOURCE, mutant).split("\n")
        differ = [i for i, line in enumerate(SOURCE.split("\n"), 1) if line != changed[i - 1]]
        same(differ, [mutant.line], f"the lines that differ for {mutant}")
    have = {(mutant.line, mutant.operator) for mutant in found}
    same(sorted(have), sorted(EXPECTED), "lines and operators")
    after = {mutant.after.strip() for mutant in found}
    for text in ("int sum = a - 1;", "if (a <= b && b != 0) {", "if (a < b || b != 0) {",
                 "if (!(a < b && b != 0)) {", "sum += g(a, b);", "sum -= g(b, a);", ";",
                 "return false;"):
        check(text in after, f"{text!r} is not among {sorted(after)}")


def case_the_list_of_equals_fits_the_sources():
    files = sorted((ROOT / "tests/mutation").glob("equal*.txt"))
    for block in "\n\n".join(file.read_text() for file in files).split("\n\n"):
        lines = [line for line in block.splitlines() if line and line[0] != "#"]
        if not lines:
            continue
        same(len(lines), 4, f"the lines of {lines}")
        place, before, after, _ = lines
        path = place.split()[0]
        mutants = operators.mutants_of(path, pathlib.Path(ROOT / path).read_text())
        check(any((m.before.strip(), m.after.strip()) == (before[2:], after[2:]) for m in mutants),
              f"{path} has no such mutant any more: {before} {after}")


if __name__ == "__main__":
    harness.main(globals())
