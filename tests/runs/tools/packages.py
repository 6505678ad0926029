"""How launch/quickstart and tests/run install packages, with programs that pretend to be apt's, and
what they say of a build folder that is not theirs."""
import os
import shutil
import subprocess

import harness
from harness import ROOT, check, same

# $STATE holds the folder `lists` once there are lists, and a file for each installed package.
PROGRAMS = {
    "sudo": 'exec "$@"',
    "dpkg-query": '[ -e "$STATE/${*: -1}" ] && echo installed',
    "apt-cache": """
[ -d "$STATE/lists" ] && grep -qx "$2" "$STATE/known" && echo "  Candidate: 1.0-1"
[ "$2" != virtual ] || echo "  Candidate: (none)"
sleep 0.1 # whoever has read enough has left by now
echo "  Version table:"
""",
    "apt-get": """
echo "$*" >>"$STATE/calls"
mode=
for word; do
    case $word in
    update) mkdir -p "$STATE/lists" ;;
    install) mode=install ;;
    -*) ;;
    *)
        if [ "$mode" = install ]; then
            [ -d "$STATE/lists" ] && grep -qx "$word" "$STATE/known" || exit 100
            touch "$STATE/$word"
        fi
        ;;
    esac
done""",
}


def install(function, *packages, known=()):
    """What a function of launch/build.sh says, its exit code, how often lists were fetched, and
    what is installed then."""
    state, tools = harness.scratch / "state", harness.scratch / "tools"
    if not tools.exists():
        tools.mkdir()
        state.mkdir()
        for name, text in PROGRAMS.items():
            (tools / name).write_text(f"#!/bin/bash\n{text}\n")
            (tools / name).chmod(0o755)
    (state / "known").write_text("".join(f"{name}\n" for name in known))
    (state / "calls").write_text("")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", 'self=test; . "$0"; "$@" || exit $?; "$@"',
         str(ROOT / "launch/build.sh"), function, *packages],
        env=dict(os.environ, STATE=str(state), PATH=f"{tools}:{os.environ['PATH']}"),
        capture_output=True, text=True, timeout=60, check=False)
    updates = (state / "calls").read_text().count(" update\n")
    found = sorted(name for name in packages if (state / name).exists())
    return done.stdout + done.stderr, done.returncode, updates, found


def case_lists_are_fetched_before_a_tool_counts_as_unknown():
    text, code, updates, found = install("dp_install_tools", "cppcheck", "clang-14",
                                         known=("cppcheck", "clang-14"))
    same((code, updates, found), (0, 1, ["clang-14", "cppcheck"]), f"what came of\n{text}")
    same(text, "test: installing cppcheck clang-14\n", "what is said")
    same(install("dp_install_tools", "cppcheck", "clang-14"), ("", 0, 0, ["clang-14", "cppcheck"]),
         "installing what is there")


def case_what_a_distribution_lacks_is_reported_and_the_rest_installed():
    for name in ("odd", "virtual"):
        text, code, updates, found = install("dp_install_tools", name, "cppcheck",
                                             known=("cppcheck",))
        same((code, updates, found), (0, 1, ["cppcheck"]), f"what came of\n{text}")
        check_said(text, f"test: this distribution has no {name}: its tests are skipped")
        (harness.scratch / "state/cppcheck").unlink()


def case_what_a_build_needs_and_is_not_to_be_had_is_an_error():
    text, code, updates, found = install("dp_install", "gcc", "odd", known=("gcc",))
    same((code, updates, found), (69, 1, ["gcc"]), f"what came of\n{text}")
    check_said(text, "test: apt-get could not install: gcc odd")


def case_a_build_folder_of_somebody_else_is_one_line_and_left_alone():
    harness.scratch.chmod(0o755)
    script, cache = (shutil.copy(ROOT / "launch/build.sh", harness.scratch),
                     harness.scratch / "build/CMakeCache.txt")
    cache.parent.mkdir()
    cache.write_text("of another source folder\n")
    cache.parent.chmod(0o555)
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for folder in (cache.parent, cache / "below"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", '. "$0"; self=test root=/; dp_configure "$1"',
             str(script), str(folder)], capture_output=True, text=True, timeout=60, check=False,
            cwd="/", **user)
        same((done.returncode, done.stdout, done.stderr),
             (74, "", f"test: cannot write {folder}: copy the repository into a folder of your "
              "own\n"), f"what comes of {folder}")
    check_said(cache.read_text(), "of another source folder")


def case_quickstart_takes_no_arguments_and_explains_itself():
    alone = harness.scratch / "launch/quickstart"  # without what it would install and build with
    alone.parent.mkdir()
    alone.write_bytes((ROOT / "launch/quickstart").read_bytes())
    for word, code in (("--help", 0), ("-h", 0), ("--hlep", 64)):
        done = subprocess.run(["bash", str(alone), word], capture_output=True, text=True,
                              timeout=60, check=False)
        text = done.stdout + done.stderr
        same(done.returncode, code, f"exit code of {word}: {text}")
        check(("no arguments, and found '--hlep'" if code else "usage: ") in text, text)


def check_said(text, line):
    harness.check(line in text.splitlines(), f"no '{line}' in\n{text}")


if __name__ == "__main__":
    harness.main(globals())
