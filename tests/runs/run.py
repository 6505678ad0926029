#!/usr/bin/env python3
"""Runs the cases of a subject, tests/runs/<room>/<subject>.py, or those of some names:

    tests/runs/run.py BUILD SUBJECT [NAME...]
"""
import runpy
import sys

import harness

if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} BUILD SUBJECT [NAME...]")
    build, subject = sys.argv[1:3]
    found = list((harness.ROOT / "tests/runs").glob(f"*/{subject}.py"))
    if len(found) != 1:
        sys.exit(f"{sys.argv[0]}: no tests/runs/*/{subject}.py")
    sys.argv[:3] = [str(found[0]), build]
    runpy.run_path(str(found[0]), run_name="__main__")  # ends the program, if it has cases
    sys.exit(f"{found[0]}: no cases")
