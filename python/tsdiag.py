"""tsdiag from Python: this one file, the standard library, and the program `tsdiag`.

    import tsdiag
    result = tsdiag.probe("examples/char-gpt", samples=8, no_report=True)
    result.metrics                       # a pandas DataFrame; without pandas, a list of dicts
    result.run["model"]["layers"]        # run.json
    result.findings                      # the verdict
    tsdiag.load("char-gpt.tsdiag").curves
    tsdiag.compare("before", "after")["significant"]

Options are those of the command line, with _ for -: True is a flag, a list repeats an option, None
and False are left out.  The program is $TSDIAG, or `tsdiag` on PATH.
"""

import json
import os
import subprocess

try:
    import pandas
except ImportError:  # rows are dicts then
    pandas = None

__all__ = ["TsdiagError", "Result", "call", "probe", "load", "compare", "inspect", "metrics", "frame"]

_ANSWERS = (0, 4, 5)  # success; an assertion or a check failed, or is open: told in what is printed


class TsdiagError(RuntimeError):
    """What the program refused: its sentence, with the exit code in `code`."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def frame(rows):
    """A list of dicts as a DataFrame where pandas is installed, else as it is."""
    return rows if pandas is None else pandas.DataFrame(rows)


def _words(options):
    for name, value in options.items():
        word = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                yield word
            elif one is not None and one is not False:
                yield from (word, str(one))


def _output(words):
    program = os.environ.get("TSDIAG", "tsdiag")
    done = subprocess.run([program, *map(str, words)], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in _ANSWERS:
        sentence = done.stderr.decode("utf-8", "replace").strip()
        raise TsdiagError(done.returncode, sentence or "tsdiag ended with code %d" % done.returncode)
    return done.stdout.decode("utf-8")


def call(*words, **options):
    """What `tsdiag WORDS... --OPTIONS --json` prints (docs/json.md)."""
    return json.loads(_output([*words, *_words(options), "--json"]))


class Result:
    """A folder that tsdiag has written."""

    def __init__(self, folder, findings=None):
        self.folder = os.fspath(folder)
        self.findings = findings
        with open(os.path.join(self.folder, "run.json"), encoding="utf-8") as file:
            self.run = json.load(file)
        self._tables = None

    def __repr__(self):
        return "tsdiag.Result(%r)" % self.folder

    def _all(self):
        if self._tables is None:
            self._tables = {}
            for line in _output(["export", self.folder, "--to", "jsonl"]).splitlines():
                row = json.loads(line)
                self._tables.setdefault(row.pop("table"), []).append(row)
        return self._tables

    @property
    def tables(self):
        """The names of its tables."""
        return sorted(self._all())

    def table(self, name):
        """A table, as docs/export.md describes its columns."""
        return frame(self._all().get(name, []))

    @property
    def metrics(self):
        return self.table("metrics")

    @property
    def curves(self):
        return self.table("curves")


def load(folder):
    """An earlier result."""
    return Result(folder)


def probe(*models, **options):
    """Measures a model, or several checkpoints of a training."""
    told = call("probe", *models, **options)
    return Result(told["out"], told["findings"])


def compare(*results, **options):
    """What differs between results; `assert_` takes assertions.  `differences` is a frame."""
    folders = [one.folder if isinstance(one, Result) else one for one in results]
    told = call("compare", *folders, **options)
    if "differences" in told:
        told["differences"] = frame(told["differences"])
    return told


def inspect(model, **options):
    """What a file holds and what would be run; `tensors` is a frame."""
    told = call("inspect", model, **options)
    told["tensors"] = frame(told["tensors"])
    return told


def metrics():
    """The metrics, with their definitions."""
    return frame(call("list", "metrics"))
