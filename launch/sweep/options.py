"""The command line of ddp_sweep."""
import argparse
import os
import pathlib
import re

from sweep.failure import USAGE, Failure
from sweep.project.links import burst, link
from sweep.project.places import ranks_of

DEFAULT_STEPS = 200
MOST_RANKS = 1 << 20
MOST_RUNS = 10000
# Flags of ddp_train that a sweep gives by itself, or that do no training.
OURS = ("--out", "--steps", "--resume", "--set", "--check", "--dry-run", "--selftest", "--list",
        "--print-config", "--evaluate", "--version", "--help")

PROJECTED = ("comm.bucket_mb", "comm.first_bucket_mb")  # with --from

USAGE_TEXT = """\
ddp_sweep model.cfg --ranks 1,2,4 --out DIR [flags] [-- flags of ddp_train]
       ddp_sweep --project 2-4096 --from RUN [--link 100gbit,5us] [--node-of 8] [--json]
       ddp_sweep --prune FOLDER [--yes]"""

DESCRIPTION = """\
Trains a model with every combination of ranks, strategies, compressors, batches and settings, each
in a folder of its own in DIR/points, and compares them: a table, DIR/sweep.json, DIR/sweep.csv and
DIR/sweep.html. After an interruption the same command goes on."""

EPILOG = """\
exit codes: 0 the sweep has ended (a run that failed is a result, too, and shown as such; if all
failed, the code of the first one); 64 usage, or DIR holds something else; 65 a damaged file; 66 a
missing file; 69 something is not available here: hosts, Slurm, mpirun; 74 cannot write; 75 stopped
by a signal, to be continued; 78 configuration, or DIR holds another sweep. See docs/sweep.md."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(f"{message} (see ddp_sweep --help)", USAGE)


def split_values(text):
    """The values of a list with commas. A comma inside of brackets or quotes belongs to a value,
    and so does what reads as an option of the one before: hier:inner=shm,outer=ring."""
    values, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        elif letter == "," and depth == 0:
            values.append("")
            continue
        values[-1] += letter
    joined = []
    for value in (value.strip() for value in values):
        if joined and re.match(r"\w+=", value) and ":" in joined[-1]:
            joined[-1] += "," + value
        else:
            joined.append(value)
    return joined


def texts(flag):
    def read(text):
        values = split_values(text)
        if not all(values):
            raise Failure(f"{flag} {text}: an empty value", USAGE)
        return list(dict.fromkeys(values))
    return read


def counts(flag, most):
    def read(text):
        values = split_values(text)
        for value in values:
            if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= most):
                raise Failure(f"{flag} {text}: {value or 'an empty value'} is no number from 1 to "
                              f"{most}", USAGE)
        return sorted({int(value) for value in values})
    return read


def count(flag, most):
    def read(text):
        values = counts(flag, most)(text)
        if len(values) != 1:
            raise Failure(f"{flag} {text}: one number is expected", USAGE)
        return values[0]
    return read


def steps(text):
    return None if text == "all" else count("--steps", 10**9)(text)


def setting(text):
    """(key, [values]) of --set KEY=A,B."""
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][\w.\[\]]*", key):
        raise Failure(f"--set {text}: expected KEY=VALUE, or KEY=A,B", USAGE)
    return key, list(dict.fromkeys(split_values(value)))


def netlab(text):
    """(hosts, rate or None) of --netlab N[,rate]."""
    hosts, _, rate = text.partition(",")
    return count("--netlab", 250)(hosts), rate or None


# Keys that have a flag of their own.
AXES = (("comm.strategy", "strategy", texts("--strategy")),
        ("comm.compressor", "compressor", texts("--compressor")),
        ("train.global_batch", "batch", counts("--batch", 1 << 24)))


def add_axes(parser):
    add = parser.add_argument
    add("--ranks", metavar="A,B", type=counts("--ranks", MOST_RANKS), help="numbers of ranks")
    add("--strategy", metavar="A,B", type=texts("--strategy"),
        help="values of comm.strategy; default: the model's")
    add("--compressor", metavar="A,B", type=texts("--compressor"),
        help="values of comm.compressor; default: the model's")
    add("--batch", metavar="A,B", type=counts("--batch", 1 << 24),
        help="global batches of one rank; default: the model's")
    add("--mode", choices=("strong", "weak", "both"),
        help="strong: the global batch is the same for all numbers of ranks; weak: it is --batch "
        "times the ranks (default: strong; of --project weak)")
    add("--set", metavar="KEY=A,B", dest="settings", type=setting, action="append", default=[],
        help="a key of model.cfg with one value, or several to be tried (repeatable)")
    add("--repeat", metavar="N", type=count("--repeat", 1000), default=1,
        help="runs of each combination; figures are medians (default: %(default)s)")
    add("--steps", metavar="N", type=steps, default=DEFAULT_STEPS,
        help="steps of a run; all: as many as the model says (default: %(default)s)")


def add_places(parser):
    add = parser.add_argument
    add("--out", metavar="DIR", type=pathlib.Path, help="folder of the sweep")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--hostfile", metavar="FILE", type=pathlib.Path,
                       help="ranks on the hosts of an Open MPI host file")
    where.add_argument("--netlab", metavar="N[,RATE]", type=netlab,
                       help="ranks on N hosts made of network namespaces, see launch/netlab")
    where.add_argument("--slurm", action="store_true",
                       help="as array jobs of Slurm: submits them, and waits")
    add("--sbatch", metavar="FLAGS", default="", help="more flags of sbatch, with --slurm")
    add("--no-wait", action="store_true", help="with --slurm: ends when all is submitted")
    add("--collect", action="store_true",
        help="begins no run: shows what has ended, also of jobs of Slurm")
    add("--synthetic", action="store_true", help="as for ddp_train: generated data")
    add("--device", metavar="NAME", help="as for ddp_train")
    add("--mpirun", metavar="FLAGS", default="",
        help="more flags of mpirun; without them a rank has one core where there are enough")
    add("--prices", metavar="FILE", type=pathlib.Path,
        help="what machine types cost, in lines NAME: DOLLARS an hour: which to rent")
    add("--machine", metavar="NAME", help="the type of --prices that the sweep runs on")
    add("--with", metavar="DIR", dest="others", type=pathlib.Path, action="append", default=[],
        help="a sweep of the same model on another machine type, for --prices (repeatable)")
    add("--dry-run", action="store_true", help="prints the runs and ends")


def add_projection(parser):
    add = parser.add_argument
    add("--project", metavar="A-B", help="predicts a run on other ranks: A, 2 A, 4 A ... B; or a "
        "list. With --from it runs nothing; else the curves of the sweep (docs/projection.md)")
    add("--from", metavar="RUN", dest="source", type=pathlib.Path,
        help="with --project: the folder of a run on two ranks or more")
    add("--link", metavar="RATE,LATENCY", type=link,
        help="with --project: a network, as 100gbit,5us; default: as the run has measured")
    add("--node-of", metavar="N", type=count("--node-of", MOST_RANKS),
        help="with --project: ranks of a host, which share its link; default: as in the run")
    add("--burst", metavar="BYTES", type=burst, default=0.0,
        help="with --project: what a link lets pass at once after a pause, as 128kb (a token "
        "bucket); of the run's links and of --link; default: nothing")
    add("--crowd", metavar="N", type=count("--crowd", MOST_RANKS), default=1,
        help="with --project: ranks that take turns on a core, for each that it had in the run; "
        "default: 1")
    add("--json", action="store_true", help="with --project: prints JSON")


def make_parser(version):
    parser = Parser(prog="ddp_sweep", usage=USAGE_TEXT, description=DESCRIPTION, epilog=EPILOG,
                    formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
                        prog, width=100, max_help_position=24), allow_abbrev=False)
    parser.add_argument("model", metavar="model.cfg", nargs="?", help="as for ddp_train")
    add_axes(parser)
    add_places(parser)
    add_projection(parser)
    parser.add_argument("--prune", metavar="FOLDER", type=pathlib.Path,
                        help="lists runs and sweeps below a folder by size, to delete them")
    parser.add_argument("--yes", action="store_true", help="with --prune: deletes them")
    parser.add_argument("--version", action="version", version=f"lockstep {version}")
    return parser


def check_flags(flags):
    """Those after --."""
    for flag in flags:
        name = flag.partition("=")[0]
        if name in OURS:
            raise Failure(f"{name} after --: it belongs to ddp_sweep itself, or does no training",
                          USAGE)


def settle_projection(args):
    """Whether it is one, and no sweep."""
    if args.project is None:
        if (args.source is not None or args.link is not None or args.node_of or args.json
                or args.burst or args.crowd > 1):
            raise Failure("--from, --link, --burst, --node-of, --crowd and --json belong to "
                          "--project 2-4096", USAGE)
        return False
    ranks_of(args.project)
    if args.model is not None:
        if args.source is not None or args.json:
            raise Failure("--project with a model projects the curves of its sweep: without --from "
                          "and --json", USAGE)
        return False
    if args.source is None:
        raise Failure("--project from which run? --from RUN", USAGE)
    if args.out is not None or args.ranks is not None:
        raise Failure("--project goes with --from, --link, --burst, --node-of, --crowd, "
                      "--strategy, --mode, --set and --json", USAGE)
    for key, values in args.settings:
        if key not in PROJECTED or len(values) != 1:
            raise Failure(f"--set {key} with --project: it wants one value of "
                          f"{' or '.join(PROJECTED)}", USAGE)
    args.mode = "weak" if args.mode is None else args.mode
    if args.mode == "both":
        raise Failure("--project wants --mode weak or --mode strong", USAGE)
    return True


def settle(args):
    """What belongs together."""
    if args.prune is not None or args.yes:
        if args.prune is None or args.model is not None or args.out is not None:
            raise Failure("--prune FOLDER [--yes] stands alone", USAGE)
        return
    if settle_projection(args):
        return
    if args.model is None:
        raise Failure("which model? ddp_sweep model.cfg --ranks 1,2 --out DIR", USAGE)
    if args.ranks is None:
        raise Failure("how many ranks? --ranks 1,2,4", USAGE)
    if args.out is None:
        raise Failure("where to? --out DIR", USAGE)
    if args.prices is None and (args.machine is not None or args.others):
        raise Failure("--machine and --with belong to --prices FILE", USAGE)
    if not args.slurm and (args.no_wait or args.sbatch):
        raise Failure("--no-wait and --sbatch belong to --slurm", USAGE)
    args.mode = args.mode or "strong"
    keys = [key for key, _ in args.settings]
    for key in keys:
        if keys.count(key) > 1:
            raise Failure(f"--set {key} is given twice: --set {key}=A,B has several values", USAGE)
    for key, name, read in AXES:
        if key in keys:
            if getattr(args, name) is not None:
                raise Failure(f"--set {key} and --{name}: one of them", USAGE)
            setattr(args, name, read(",".join(dict(args.settings)[key])))
    args.settings = [(key, values) for key, values in args.settings
                     if key not in [axis[0] for axis in AXES]]


def with_flags_joined(words):
    """--sbatch --exclusive as --sbatch=--exclusive, or argparse takes it for a flag of ours."""
    joined = []
    for word in words:
        if joined and joined[-1] in ("--sbatch", "--mpirun"):
            joined[-1] += "=" + word
        else:
            joined.append(word)
    return joined


def parse(words, version):
    at = words.index("--") if "--" in words else len(words)
    args = make_parser(version).parse_args(with_flags_joined(words[:at]))
    args.flags = [*(["--synthetic"] if args.synthetic else []),
                  *(["--device", args.device] if args.device else []), *words[at + 1:]]
    check_flags(args.flags)
    settle(args)
    args.out = pathlib.Path(os.path.abspath(args.out)) if args.out is not None else None
    return args
