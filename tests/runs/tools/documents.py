"""What the documents say is so: each of their commands works as typed, the generated parts are
those that their programs make, what they name exists, and the messages that they explain are ours.

A block of commands is fenced by ```sh. In one with lines that begin with "$ ", only those are
commands, and the others what they print. Blocks of a document run in its order, in a copy of the
repository, with little data and few steps (the environment's settings, which --set and flags still
override). Two comments on the line before a block say otherwise:

    <!-- not run: why -->      it cannot run here: other machines, a GPU, an hour
    <!-- run: netlab -->       it wants the right to make network namespaces
    <!-- run: prints this -->  its output has these lines, but for numbers; "..." stands for others
"""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import harness
from harness import ROOT, check, same

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
DESIGN = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(r"(?:<!-- (not run|run): ([^\n]+?) -->\n)?```sh\n(.*?)```\n", re.S)
SETTINGS = {"DP_TRAIN_STEPS": "4", "DP_TRAIN_GLOBAL_BATCH": "32", "DP_DATA_SOURCE": "synthetic",
            "DP_DATA_SAMPLES": "256", "DP_DATA_TEST_SAMPLES": "64"}
PATIENCE = 300  # seconds that one block may take, on a busy machine

# Stands in for cmake: it configures as it is asked to, but instead of compiling once more what the
# tests run on, it links that. What ninja would do has to be sound nevertheless.
CMAKE = """\
#!/bin/bash
set -e
[ ! -L build ] || rm build # the folder that is tested stays as it is
[ "$1" = --build ] || exec {cmake} "$@"
[ ! -e "$2/build.ninja" ] || {cmake} "$@" -- -n >/dev/null # which make cannot do
for program in {build}/ddp_*; do ln -sf "$program" "$2/"; done
"""
APT = '#!/bin/sh\necho "E: no packages are installed by a test: $*" >&2\nexit 100\n'


def commands(text):
    """What a block runs: all of it, or its lines that begin with "$ ", with what they go on in."""
    if not re.search(r"^\$ ", text, re.M):
        return text
    return "".join(line + "\n" for line in re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, re.M))


def blocks(text):
    """(kind, note, block, line) of each block of a document; kind: run, not run, or empty."""
    for match in BLOCK.finditer(text):
        yield match[1] or "", match[2] or "", match[3], text.count("\n", 0, match.start(3))


def shapes(text):
    """Its lines without numbers, and with single blanks."""
    return [" ".join(re.sub(r"[\d.,]*\d", "#", line).split()) for line in text.splitlines()]


def check_output(block, printed, where):
    """What a block shows is what came, line for line in that order."""
    came = iter(shapes(printed))
    for line in shapes(re.sub(r"^\$ (?:.*\\\n)*.*\n", "", block, flags=re.M)):
        check(line in ("...", "") or line in came,
              f"{where} shows a line like\n{line}\nbut this was printed:\n{printed}")


def copy_repository():
    """A copy without what was built here, whose `build` is the folder that is tested."""
    def left_out(folder, names):
        top = pathlib.Path(folder) == ROOT
        return [name for name in names if name in (".git", ".venv", "__pycache__")
                or (top and re.match("build|runs$", name)) or name.endswith(".safetensors")]

    copy = harness.scratch / "lockstep"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left_out)
    tools = harness.scratch / "tools"
    tools.mkdir()
    cmake = CMAKE.format(cmake=shutil.which("cmake"), build=harness.build)
    for name, text in (("cmake", cmake), ("apt-get", APT)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    return copy, tools


@functools.cache
def netlab_refuses():
    done = subprocess.run([str(ROOT / "launch/netlab"), "2", "--", "true"], check=False,
                          capture_output=True, stdin=subprocess.DEVNULL)
    return done.returncode != 0


def run_page(page):
    """Runs the blocks of a page; names the one that fails."""
    found = [(note, block, line) for kind, note, block, line in blocks(page.read_text())
             if kind != "not run" and not (note == "netlab" and netlab_refuses())]
    if not found:
        return 0
    copy, tools = copy_repository()
    env = harness.environment("", {**SETTINGS, "PATH": f"{tools}:{os.environ['PATH']}"})
    env = {name: value for name, value in env.items()
           if not name.startswith(("OMPI_", "PRTE_"))}  # what launch/env.sh sets, it has to set
    for note, block, line in found:
        script = commands(block)
        if not (copy / "build").exists() and "launch/quickstart" not in script:
            (copy / "build").symlink_to(harness.build)
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=copy, env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
        same(done.returncode, 0, f"the exit code of {page.name}, line {line}:\n{script}"
             f"--- which printed\n{done.stdout[-3000:]}---\n")
        if note == "prints this":
            check_output(block, done.stdout, f"{page.name}, line {line},")
    return len(found)


def case_commands_of_the_readme_work_as_typed():
    check(run_page(ROOT / "README.md") >= 3, "too few blocks were found")


def case_commands_of_the_other_pages_work_as_typed():
    ran = 0
    for page in PAGES[1:]:
        shutil.rmtree(harness.scratch / "lockstep", ignore_errors=True)
        shutil.rmtree(harness.scratch / "tools", ignore_errors=True)
        ran += run_page(page)
    check(ran >= 6, f"only {ran} blocks were run")


def case_blocks_and_their_marks_are_read_right():
    text = ("```sh\na\n```\n<!-- not run: no GPU -->\n```sh\nb \\\n c\n```\n```text\nd\n```\n"
            "<!-- run: netlab -->\n```sh\n$ e \\\n  f\n...\ng\n$ h\n```\n")
    same([(*found[:2], commands(found[2]), found[3]) for found in blocks(text)],
         [("", "", "a\n", 1), ("not run", "no GPU", "b \\\n c\n", 5),
          ("run", "netlab", "e \\\n  f\nh\n", 13)], "the blocks")


def case_what_a_block_prints_is_compared_but_for_numbers():
    block = "$ a \\\n  b\n...\ntook 1.5 s\n...\ndone\n"
    check_output(block, "x\ntook 2,000 s\n3\ndone\n", "here")
    for printed in ("done\ntook 2 s\n", "took 2 ms\ndone\n", "took 2 s\n"):
        try:
            check_output(block, printed, "here")
        except AssertionError:
            continue
        check(False, f"this counts as what is shown:\n{printed}")


def case_fences_and_marks_are_none_but_these():
    for page in PAGES:
        text = page.read_text()
        found = re.findall(r"^```(\w*)$", text, re.M)
        check(set(found[::2]) <= {"sh", "yaml", "text", "python"} and not any(found[1::2]),
              f"{page.name}: fences of other kinds: {found}")
        same(len(list(blocks(text))), found[::2].count("sh"), f"blocks of {page.name}")
        marks = re.findall(r"<!-- (?:not run|run): .*-->\n(.*)", text)
        check(all(line == "```sh" for line in marks), f"{page.name}: a mark before {marks}")


def case_generated_parts_are_what_their_programs_make():
    sys.path.insert(0, str(ROOT / "docs"))
    sys.dont_write_bytecode = True
    import make_configuration
    import make_results
    for path, page in make_configuration.PAGES.items():
        check(path.read_text() == page(harness.build),
              f"{path.name} is not up to date: run docs/make_configuration.py build")
    check(make_results.PICTURE.read_text() == make_results.picture(),
          "docs/results.svg is not up to date: run docs/make_results.py")
    check(make_results.PICTURE.stat().st_size < 100_000, "docs/results.svg is too large")
    for path in make_results.TABLES:
        check(path.read_text() == make_results.with_table(path),
              f"{path.name}: its table of peers is not up to date: run docs/make_results.py")


def anchors(text):
    """What GitHub makes of a page's headings."""
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def case_what_documents_name_exists():
    for page in (*PAGES, *DESIGN, *(ROOT / "benchmarks/results").rglob("*.md")):
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text):
            path, _, anchor = (target[0] or target[1]).partition("#")
            if "://" in path:
                continue
            file = page.parent / path if path else page
            check(file.exists(), f"{page.name} leads to {path}, which does not exist")
            check(not anchor or anchor in anchors(file.read_text()),
                  f"{page.name}: {path} has no heading '{anchor}'")
    for page in (*PAGES, *DESIGN):
        for path in re.findall(r"`((?:\w+/)+\w+\.(?:c|h|cu|def|cfg|py|sh|md|json))`",
                               page.read_text()):
            check((ROOT / path).exists() or re.match("(runs|build)/", path),
                  f"{page.name} names {path}, which does not exist")


def literals():
    """All texts of the sources, one a line; those that stand beside each other are one."""
    found = []
    for top in ("base", "collectives", "kernels", "models", "runtime", "launch"):
        for path in (ROOT / top).rglob("*.[ch]"):
            text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
            for joined in re.findall(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*', text):
                found.append("".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', joined)))
    return "\n".join(found).replace('\\"', '"').replace("%%", "%")


def case_messages_that_are_explained_are_ours():
    text = (ROOT / "docs/troubleshooting.md").read_text()
    headings = re.findall(r"^### `(.*)`$", text, re.M)
    check(len(headings) > 20, f"only {len(headings)} messages are explained")
    ours = literals()
    for heading in headings:
        parts = (re.escape(part.strip()) for part in heading.split("..."))
        check(re.search(".*".join(parts), ours), f"no message is '{heading}'")


if __name__ == "__main__":
    harness.main(globals())
