"""Traces modules of PyTorch by python/tsdiag.py, and runs its callback as trainers do; without PyTorch the callback alone.

    module.py TSDIAG MODULE
"""

import importlib.util
import os
import sys
import tempfile
import types
import warnings

from similarity import t_sim
from trace_hook import NANO

# Its layers are made where the hook does not look.
MADE_ELSEWHERE = NANO.replace("nn.ModuleList([Block(config) for _ in range(3)])", "made(config)") + '''
def made(config):
    return nn.ModuleList([Block(config) for _ in range(3)])
'''


class Told:
    """Trackers, each with the functions by which it is known; `told` is {step: {name: value}}."""

    def __init__(self):
        self.told = {}

    def keep(self, numbers, step=None):
        self.told.setdefault(step, {}).update(numbers)


class WandbLike(Told):
    def log(self, data, step=None, commit=None):
        self.keep(data, step)


class TrainerLike(Told):
    def log(self, logs, start_time=None):
        self.keep(logs)

    def log_metrics(self, split, metrics):  # another matter
        raise AssertionError


class MlflowLike(Told):
    def log_metrics(self, metrics, step=None):
        self.keep(metrics, step)


class WriterLike(Told):
    def add_scalar(self, tag, scalar_value, global_step=None):
        self.keep({tag: scalar_value}, global_step)


def train(callback, steps, model=None, first=True):
    """What Trainer of Hugging Face calls."""
    arguments = types.SimpleNamespace(output_dir="run")
    for step in steps:
        state = types.SimpleNamespace(global_step=step, is_world_process_zero=first)
        for event in ("on_init_end", "on_step_begin", "on_step_end", "on_save", "on_log"):
            # A value that is returned would take the place of the control.
            assert getattr(callback, event)(arguments, state, None, model=model, logs={}) is None


def check_callback(tsdiag):
    for seed, step in ((1, 100), (2, 200)):
        tsdiag.call("init", "random:gpt2,layers=2,d=16,heads=2", "-o", "run/checkpoint-%d" % step, seed=seed)
    names = {"tsdiag/%s/layer %02d" % (metric, layer) for metric in ("t_sim", "xi_ratio") for layer in (0, 1)}
    for tracker in (WandbLike(), TrainerLike(), MlflowLike(), WriterLike()):
        train(tsdiag.Callback(tracker, metrics=("t_sim", "xi_ratio"), tokens=6), (100, 200))
        steps = {None} if isinstance(tracker, TrainerLike) else {100, 200}
        assert set(tracker.told) == steps and all(set(one) == names for one in tracker.told.values()), tracker.told
    rows = {(row["layer"], row["stage"], row["metric"]): row["value"]
            for row in tsdiag.load("run/tsdiag/step-100")._all()["metrics"] if row["head"] is None}
    assert tracker.told[100]["tsdiag/t_sim/layer 01"] == rows[1, "out", "t_sim"]
    assert tracker.told[100]["tsdiag/xi_ratio/layer 01"] == rows[1, "attn", "xi_ratio"]
    assert tracker.told[100] != tracker.told[200]

    quiet = WandbLike()
    train(tsdiag.Callback(quiet), (100,), first=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(tsdiag.Callback(quiet), (300,))  # there is no such checkpoint
    assert not quiet.told and len(caught) == 1 and "checkpoint-300" in str(caught[0].message), caught
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(tsdiag.Callback(quiet, metrics=["t_sim", "t_simm"], tokens=6), (100,))
    assert len(caught) == 1 and "of t_simm" in str(caught[0].message), caught
    assert set(quiet.told[100]) == {"tsdiag/t_sim/layer %02d" % layer for layer in (0, 1)}, quiet.told
    try:
        tsdiag.Callback().a_member_of_none
        raise AssertionError("was found")
    except AttributeError:
        pass


def check_errors(tsdiag, program):
    """What goes wrong outside of the program is said as what it refuses itself."""
    for path, said in (("/nowhere/tsdiag", "/nowhere/tsdiag: No such file"), (program, "printed no JSON")):
        os.environ["TSDIAG"] = path
        try:
            tsdiag.call("--version")
            raise AssertionError("was read")
        except tsdiag.TsdiagError as error:
            assert said in str(error) and "\n" not in str(error), error
        finally:
            os.environ["TSDIAG"] = program


def check_lightning(tsdiag, module, inputs):
    seen = types.ModuleType("pytorch_lightning")
    seen.Callback = type("Callback", (), {})
    sys.modules["pytorch_lightning"] = seen
    try:
        logger = MlflowLike()
        trainer = types.SimpleNamespace(default_root_dir="lit", global_step=7, is_global_zero=True, loggers=[logger])
        callback = tsdiag.Callback(inputs=inputs).lightning()
        assert isinstance(callback, seen.Callback)
        callback.on_save_checkpoint(trainer, module, {})
        assert "tsdiag/t_sim/layer 02" in logger.told[7]
        try:
            tsdiag.Callback().lightning()
            raise AssertionError("was taken")
        except tsdiag.TsdiagError as error:
            assert "inputs=" in str(error)
    finally:
        del sys.modules["pytorch_lightning"]


def made_of(source, name):
    with open(name + ".py", "w") as file:
        file.write(source)
    return importlib.import_module(name).Net()


def check_trace(tsdiag, torch, module, inputs, hook, words):
    """Two batches; their similarity behind each layer by PyTorch, too."""
    module.train()
    trace = tsdiag.Trace(module)
    assert hook in trace.hook, trace.hook
    states = []
    hooks = [layer.register_forward_hook(lambda m, args, out: states.append(out.detach())) for layer in trace.layers]
    trace(inputs)(inputs + 1)
    for one in hooks:
        one.remove()
    assert all(one.training and not one._forward_hooks and not one._forward_pre_hooks for one in module.modules())
    result = trace.probe(no_report=True, force=True)
    assert result.run["input"]["samples"] == 2 * len(inputs)
    assert all(word in result.run["command"] for word in words), result.run["command"]
    found = {row["layer"]: row["value"] for row in result._all()["metrics"]
             if row["metric"] == "t_sim" and row["stage"] == "out"}
    count = len(trace.layers)
    assert len(found) == count and len(states) == 2 * count
    for layer in range(count):
        expected = t_sim(torch.cat([states[layer], states[count + layer]]))
        # States are float32 and sums of 240 entries are taken in another order.
        assert abs(found[layer] - expected) <= 1e-5 * expected, (layer, found[layer], expected)
    return result


def check_traces(tsdiag, torch):
    torch.manual_seed(0)
    sys.path.insert(0, os.getcwd())
    inputs = torch.randn(3, 10, 24)
    for first, placement in ((True, "pre"), (False, "post")):
        layer = torch.nn.TransformerEncoderLayer(24, 3, 40, batch_first=True, norm_first=first)
        stock = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        result = check_trace(tsdiag, torch, stock, inputs, "self_attn", ["--placement", placement])
        assert any(row["metric"] == "entropy" for row in result._all()["metrics"])
    later = torch.ones(10, 10).bool().triu(1)
    assert "--causal" in tsdiag.Trace(stock)(inputs, mask=later).probe(no_report=True, out="causal").run["command"]
    nano = made_of(NANO, "nano")
    result = check_trace(tsdiag, torch, nano, inputs, "Guessed from nano.py", ["--causal"])
    assert any(row["metric"] == "entropy" for row in result._all()["metrics"])
    check_trace(tsdiag, torch, made_of(MADE_ELSEWHERE, "elsewhere"), inputs, "blocks = layers", [])
    said = tsdiag.Trace(nano, layers=nano.transformer.h[:2])(inputs)
    assert said.probe(no_report=True, out="said").run["model"]["layers"] == 2
    # Frozen, PyTorch's own layers would skip the hooks inside of them; a class of no file has its layers alone.
    frozen = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).requires_grad_(False)
    result = check_trace(tsdiag, torch, frozen, inputs, "self_attn", [])
    assert any(row["metric"] == "entropy" for row in result._all()["metrics"])
    assert not any(one.requires_grad for one in frozen.parameters())
    sys.modules["gone"] = types.ModuleType("gone")
    sys.modules["gone"].__file__ = "/nowhere/gone.py"
    check_trace(tsdiag, torch, type("Gone", (type(nano),), {"__module__": "gone"})(), inputs, "blocks = layers", [])
    untouched = tsdiag.Trace(nano)
    try:
        untouched.probe()
        raise AssertionError("was measured")
    except tsdiag.TsdiagError as error:
        assert "call the Trace on inputs" in str(error)
    folder = os.path.dirname(untouched.folder)
    del untouched
    assert not os.path.exists(folder)
    try:
        tsdiag.Trace(torch.nn.Linear(2, 2))
        raise AssertionError("was taken")
    except tsdiag.TsdiagError as error:
        assert "Linear" in str(error) and "layers=" in str(error)
    tracker = WandbLike()
    for batch in (inputs, [inputs], {"x": inputs}):
        train(tsdiag.Callback(tracker, inputs=batch, metrics=["t_sim"]), (1,), nano)
        assert len(tracker.told.pop(1)) == 3
    check_lightning(tsdiag, nano, inputs)


def main(program, path):
    os.environ["TSDIAG"] = program
    spec = importlib.util.spec_from_file_location("tsdiag", path)
    tsdiag = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tsdiag)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_errors(tsdiag, program)
        check_callback(tsdiag)
        try:
            import torch
        except ImportError:
            print("there is no PyTorch: nothing was traced")
            return
        check_traces(tsdiag, torch)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
