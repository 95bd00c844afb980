"""tsdiag from Python: this one file, the standard library, and the program `tsdiag`.

    import tsdiag
    result = tsdiag.run("examples/char-gpt", "--samples", "8", no_report=True)
    result.verdict                       # one sentence; result.findings has all that is said
    result.metrics                       # a pandas DataFrame; without pandas, a list of dicts
    result.run["model"]["layers"]        # run.json
    result.files["metrics.csv"]          # where it is
    tsdiag.Trace(module)(inputs).probe() # any module of PyTorch
    trainer.add_callback(tsdiag.Callback(trainer))   # each checkpoint of a training
    tsdiag.load("char-gpt.tsdiag").curves
    tsdiag.compare("before", "after")["significant"]

Options are those of the command line, with _ for -: True is a flag, a list repeats an option, None
and False are left out.  The program is $TSDIAG, that of the wheel, or `tsdiag` on PATH.
"""

import contextlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
import weakref
from inspect import signature

__all__ = ["TsdiagError", "Result", "Trace", "Callback", "call", "run", "probe", "load", "compare", "inspect", "metrics",
           "frame"]

_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "tsdiag")  # a wheel has it there

_ANSWERS = (0, 4, 5)  # success; an assertion or a check failed, or is open: told in what is printed


class TsdiagError(RuntimeError):
    """What the program refused: its sentence, with the exit code in `code`."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def frame(rows):
    """A list of dicts as a DataFrame where pandas is installed, else as it is."""
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _words(options):
    for name, value in options.items():
        word = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                yield word
            elif one is not None and one is not False:
                yield from (word, str(one))


def _output(words):
    program = os.environ.get("TSDIAG") or (_OWN if os.path.exists(_OWN) else "tsdiag")
    try:
        done = subprocess.run([program, *map(str, words)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise TsdiagError(127, "%s: %s; expected the program tsdiag: on PATH, or its path in TSDIAG"
                          % (program, error.strerror)) from None
    if done.returncode not in _ANSWERS:
        sentence = done.stderr.decode("utf-8", "replace").strip()
        raise TsdiagError(done.returncode, sentence or "tsdiag ended with code %d" % done.returncode)
    return done.stdout.decode("utf-8")


def call(*words, **options):
    """What `tsdiag WORDS... --OPTIONS --json` prints (docs/json.md)."""
    told = _output([*words, *_words(options), "--json"])
    try:
        return json.loads(told)
    except ValueError:
        raise TsdiagError(1, "tsdiag %s: printed no JSON" % " ".join(map(str, words))) from None


class Result:
    """A folder that tsdiag has written."""

    def __init__(self, folder):
        self.folder = os.fspath(folder)
        with open(os.path.join(self.folder, "run.json"), encoding="utf-8") as file:
            self.run = json.load(file)
        self.findings = self.run.get("findings")
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
    def verdict(self):
        """What was found, in one sentence; None of a result of a version that did not keep it."""
        return self.findings[0]["text"] if self.findings else self.run.get("verdict")

    @property
    def files(self):
        """The paths of its files by name: run.json, metrics.csv, report.html, ..."""
        return {name: os.path.join(self.folder, name) for name in sorted(os.listdir(self.folder))}

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


def run(*words, **options):
    """Measures a model, or several checkpoints of a training: `tsdiag probe WORDS...`.  Of several random models what
    comes back is their comparison, without a page (no_report) as `compare` tells it."""
    told = call("probe", *words, **options)
    return Result(told["out"]) if told["out"] else told


probe = run  # the name of the command


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


class Trace:
    """What flows through a module of PyTorch, measured: `Trace(module)(inputs).probe(samples=8)`.

    A call runs the module once, evaluating but with gradients, and keeps its states as one more batch.  It executes the lines
    of `tsdiag trace-hook`, which are in `hook`: those guessed from the source of the module's class, and where the module has
    not what they name, those of its layers alone.  `layers` are the modules that follow each other; where not given, the list of
    modules of one class that holds most parameters.
    """

    def __init__(self, module, layers=None):
        self.module, self.layers, self.batches = module, layers or _layers(module), 0
        self.causal = None  # what the hook saw of masks; None: nothing
        kept = tempfile.mkdtemp(prefix="tsdiag-")
        weakref.finalize(self, shutil.rmtree, kept, ignore_errors=True)
        self.folder = os.path.join(kept, type(module).__name__)
        os.mkdir(self.folder)
        for self.hook in _hooks(module, self.layers, guess=layers is None):
            try:
                with self._hooked():
                    return
            except (AttributeError, IndexError, TypeError):  # names that the module does not have
                continue
        raise TsdiagError(2, "%s: %s" % (type(module).__name__, "no list of layers was found; say layers=" if layers is None
                                         else "layers= are no modules that a hook can be put on"))

    @contextlib.contextmanager
    def _hooked(self):
        names = {"model": self.module, "layers": self.layers}
        begin, _, end = self.hook.partition("\nmodel(inputs)")
        try:
            exec(begin, names)
            yield names, end
        finally:
            for hook in reversed(names.get("hooks", ())):
                hook.remove()

    def __call__(self, *args, **kwargs):
        import torch
        modes = [(one, one.training) for one in self.module.modules()]
        frozen = [one for one in self.module.parameters() if one.is_floating_point() and not one.requires_grad]
        try:
            with self._hooked() as (names, end):
                self.module.eval()
                for one in frozen:  # PyTorch's own layers skip hooks where no gradient is asked for
                    one.requires_grad_(True)
                with torch.enable_grad():
                    self.module(*args, **kwargs)
                path = os.path.join(self.folder, "batch-%d.pt" % self.batches)
                exec(end.replace('"trace.pt"', repr(path)), names)
                self.causal = names["saved"].get("is_causal", self.causal)
        finally:
            for one, mode in modes:
                one.training = mode
            for one in frozen:
                one.requires_grad_(False)
        self.batches += 1
        return self

    def probe(self, *words, **options):
        """Measures the batches so far: `run` with what the hook knows, as `--placement pre`."""
        if not self.batches:
            raise TsdiagError(2, "nothing was traced: call the Trace on inputs first")
        known = re.search(r"^# tsdiag probe trace\.pt(.*)", self.hook, re.M)[1].split()
        if self.causal is not None:
            known = [word for word in known if word != "--causal"] + ["--causal"] * bool(self.causal)
        return run(self.folder, *known, *words, **options)


def _layers(module):
    """The list of modules of one class that holds most parameters; None: there is none."""
    from torch import nn
    lists = [one for one in module.modules() if isinstance(one, (nn.ModuleList, nn.Sequential)) and len(one) > 1
             and len({type(layer) for layer in one}) == 1]
    return max(lists, key=lambda one: sum(p.numel() for p in one.parameters()), default=None)


def _hooks(module, layers, guess):
    """Texts of `tsdiag trace-hook`, that which knows most first."""
    from torch import nn
    file = getattr(sys.modules.get(type(module).__module__), "__file__", None) or ""
    if layers and all(type(one) is nn.TransformerEncoderLayer for one in layers):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as source:
            source.write("class Model(nn.Module):\n    def __init__(self):\n        self.layers = nn.ModuleList("
                         "[nn.TransformerEncoderLayer(batch_first=%s, norm_first=%s)])\n"
                         % (layers[0].self_attn.batch_first, layers[0].norm_first))
            source.flush()
            yield _of_layers(call("trace-hook", source.name)["text"])
    elif guess and file.endswith(".py") and os.path.isfile(file):
        yield call("trace-hook", file)["text"]
    yield _of_layers(call("trace-hook")["text"])


def _of_layers(hook):
    return hook.replace("blocks = model.layers\n", "blocks = layers\n")


class Callback:
    """Measures each checkpoint of a training and logs numbers: `trainer.add_callback(tsdiag.Callback(trainer))`.

    For Trainer of Hugging Face; `Callback(inputs=batch).lightning()` is one for Lightning, which logs to the trainer's loggers.
    tracker: who is told the numbers: a Trainer, which tells all of its `report_to`; wandb, trackio, mlflow; a SummaryWriter.
    inputs:  a batch on which the module in memory is traced; without it the checkpoint's files are opened.
    metrics: names (`tsdiag list metrics`), each at the stage that summaries read, for every layer; further options are of `probe`.
    Results are in OUTPUT_DIR/tsdiag/step-N.  What cannot be measured is a warning, and the training goes on.
    """

    def __init__(self, tracker=None, inputs=None, metrics=("t_sim", "t_cos", "effective_rank"), **options):
        self.tracker, self.inputs = tracker, inputs
        self.metrics = [metrics] if isinstance(metrics, str) else list(metrics)
        self.options = {"no_report": True, "force": True, **options}

    def __getattr__(self, name):  # the other events of a Trainer
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)

    def on_save(self, args, state, control, model=None, **others):
        if state.is_world_process_zero:
            self.measure(args.output_dir, state.global_step, model, [self.tracker] if self.tracker else [])

    def lightning(self):
        if self.inputs is None:
            raise TsdiagError(2, "Lightning saves a checkpoint after it tells of it: say inputs=")
        name = "pytorch_lightning" if "pytorch_lightning" in sys.modules else "lightning.pytorch"
        measure = self.measure

        class Lightning(importlib.import_module(name).Callback):
            def on_save_checkpoint(self, trainer, module, checkpoint):
                if trainer.is_global_zero:
                    measure(trainer.default_root_dir, trainer.global_step, module, trainer.loggers)

        return Lightning()

    def measure(self, folder, step, module, trackers):
        options = {"out": os.path.join(folder, "tsdiag", "step-%d" % step), **self.options}
        try:
            if self.inputs is None:
                result = run(os.path.join(folder, "checkpoint-%d" % step), **options)
            else:
                result = _traced(module, self.inputs).probe(**options)
            numbers = _numbers(result, self.metrics)
            missing = [name for name in self.metrics if not any(one.startswith("tsdiag/%s/" % name) for one in numbers)]
            if missing:
                warnings.warn("tsdiag, step %d: no layer has a number of %s" % (step, ", ".join(missing)))
            for tracker in trackers if numbers else []:
                _log(tracker, numbers, step)
        except Exception as error:
            warnings.warn("tsdiag, step %d: %s" % (step, error))


def _traced(module, inputs):
    device = next(module.parameters()).device
    move = lambda x: x.to(device) if hasattr(x, "to") else x
    if hasattr(inputs, "keys"):
        return Trace(module)(**{name: move(x) for name, x in inputs.items()})
    return Trace(module)(*map(move, inputs if isinstance(inputs, (list, tuple)) else [inputs]))


def _numbers(result, metrics):
    """{"tsdiag/t_sim/layer 03": value}, of no single head."""
    stages = {one["name"]: one["stage"] for one in result.run["schema"] if one["name"] in metrics}
    return {"tsdiag/%s/layer %02d" % (row["metric"], row["layer"]): row["value"] for row in result._all()["metrics"]
            if row["stage"] == stages.get(row["metric"]) and {row["head"], row["tensor"]} == {None}
            and None not in (row["layer"], row["value"])}


def _log(tracker, numbers, step):
    if hasattr(tracker, "log"):  # W&B, trackio; a Trainer knows the step
        tracker.log(numbers, **({"step": step} if "step" in signature(tracker.log).parameters else {}))
    elif hasattr(tracker, "log_metrics"):  # MLflow, loggers of Lightning
        tracker.log_metrics(numbers, step=step)
    else:  # TensorBoard
        for name, value in numbers.items():
            tracker.add_scalar(name, value, step)


def main():
    """The command `tsdiag` of a wheel: its program in place of this process."""
    os.execv(_OWN, ["tsdiag", *sys.argv[1:]])
