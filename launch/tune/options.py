"""The command line of ddp_tune."""
import argparse
import os
import pathlib

from sweep.failure import USAGE, Failure
from sweep.options import with_flags_joined
from tune.goals import GOALS

# Flags of ddp_train that ddp_tune gives by itself, or that do no training.
OURS = ("--out", "--resume", "--set", "--check", "--dry-run", "--selftest", "--list",
        "--print-config", "--evaluate", "--version", "--help")

USAGE_TEXT = "ddp_tune model.cfg space.yaml --trials N --out DIR [flags] [-- flags of ddp_train]"

DESCRIPTION = """\
Trains a model with values that Optuna chooses for the keys of space.yaml, and keeps what was best:
DIR/best.yaml is a model.cfg. The study lies in DIR/study.db, runs in DIR/trials. After an
interruption the same command goes on."""

EPILOG = """\
space.yaml has a line for each key: optimizer.lr: {log: [1e-4, 1]}, optimizer.momentum: {float:
[0, 0.95]}, train.global_batch: {choice: [64, 128]}, model.layers[7].dense.units: {int: [16, 64]}

exit codes: 0; 64 usage; 66 a missing file; 69 something is not available here, as Optuna; 74 cannot
write; 75 stopped by a signal, to be continued; 78 configuration, or DIR holds another study; if all
trials failed, the code of the last one. See docs/tune.md."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(f"{message} (see ddp_tune --help)", USAGE)


def count(text):
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text or 'an empty value'} is no number from 1 on")
    return int(text)


def make_parser(version):
    parser = Parser(prog="ddp_tune", usage=USAGE_TEXT, description=DESCRIPTION, epilog=EPILOG,
                    formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                        prog, width=100, max_help_position=24), allow_abbrev=False)
    add = parser.add_argument
    add("model", metavar="model.cfg", help="as for ddp_train")
    add("space", metavar="space.yaml", help="the keys that are tried, see below")
    add("--trials", metavar="N", type=count, required=True,
        help="trials in all, those of earlier starts included")
    add("--out", metavar="DIR", type=pathlib.Path, required=True, help="folder of the study")
    add("--goal", choices=tuple(GOALS), default="test_accuracy",
        help="what is sought (default: %(default)s)")
    add("--parallel", metavar="N", type=count,
        help="trials at a time, which share the cores (default: 1; with --slurm 4)")
    add("--slurm", action="store_true",
        help="trials as jobs of Slurm, each with its nodes for itself")
    add("--sbatch", metavar="FLAGS", default="", help="more flags of sbatch, with --slurm")
    add("--ranks", metavar="N", type=count, default=1,
        help="ranks of a trial (default: %(default)s)")
    add("--pruner", choices=("median", "hyperband", "none"), default="median",
        help="ends trials whose evaluations are poor (default: %(default)s)")
    add("--seed", metavar="N", type=int, default=1,
        help="of Optuna's choices; the same ones come only without --parallel (default: 1)")
    add("--set", metavar="KEY=VALUE", dest="settings", action="append", default=[],
        help="a key of model.cfg, for all trials (repeatable)")
    add("--version", action="version", version=f"lockstep {version}")
    return parser


def parse(words, version):
    at = words.index("--") if "--" in words else len(words)
    args = make_parser(version).parse_args(with_flags_joined(words[:at]))
    args.flags = words[at + 1:]
    for flag in args.flags:
        if flag.partition("=")[0] in OURS:
            raise Failure(f"{flag} after --: it belongs to ddp_tune itself, or does no training",
                          USAGE)
    for setting in args.settings:
        if "=" not in setting:
            raise Failure(f"--set {setting}: expected KEY=VALUE", USAGE)
    if args.sbatch and not args.slurm:
        raise Failure("--sbatch belongs to --slurm", USAGE)
    args.parallel = args.parallel or (4 if args.slurm else 1)
    args.out = pathlib.Path(os.path.abspath(args.out))
    return args
