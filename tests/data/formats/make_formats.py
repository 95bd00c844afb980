"""Writes the sample files of this folder and expected.json, which says what is in them.

    python3 make_formats.py          (PyTorch 1.13, NumPy 1.24)

The values in expected.json come from PyTorch and NumPy, or are written down here for files that these
cannot write; nothing of tsdiag is used.
"""
import argparse
import collections
import enum
import io
import json
import pathlib
import pickle
import struct
import zipfile

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
expected = {}
NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.bool: "bool",
}
NUMPY_NAMES = {"f4": "f32", "f8": "f64", "f2": "f16", "i8": "i64", "i4": "i32", "i2": "i16",
               "i1": "i8", "u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64", "b1": "bool"}


class Color(enum.Enum):
    RED = 1


Color.__module__ = "colors"


def entry(dtype, shape, values):
    return {"dtype": dtype, "shape": list(shape), "values": [float(v) for v in values]}


def of_tensor(t):
    t = t.detach()
    return entry(NAMES[t.dtype], t.shape, t.double().reshape(-1).tolist())


def of_array(a):
    return entry(NUMPY_NAMES[a.dtype.str[1:]], a.shape, a.astype("f8").reshape(-1).tolist())


def expect(name, tensors):
    expected[name] = [[key, value] for key, value in tensors]


def flat(prefix, tree):
    for key, value in tree.items():
        path = prefix + str(key)
        if isinstance(value, dict):
            yield from flat(path + ".", value)
        elif isinstance(value, torch.Tensor):
            yield path, of_tensor(value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            yield path, of_array(value)


def save(name, tree, **options):
    torch.save(tree, HERE / name, **options)
    expect(name, flat("", tree))


def repack(source, name, change=lambda n, b: b, method=zipfile.ZIP_STORED, zip64=False, extra={}):
    with zipfile.ZipFile(HERE / source) as old, zipfile.ZipFile(HERE / name, "w", method) as new:
        entries = {i.filename: old.read(i) for i in old.infolist()}
        for key, data in {**entries, **extra}.items():
            info = zipfile.ZipInfo(key)
            info.compress_type = method
            with new.open(info, "w", force_zip64=zip64) as out:
                out.write(change(key, data))
    expected[name] = expected[source]


def torch_zip():
    g = torch.Generator().manual_seed(1)
    r = lambda *s: torch.randn(*s, generator=g)
    save("types.pt", collections.OrderedDict(
        [(str(t).split(".")[1], (r(2, 3) * 3).to(t)) for t in NAMES] +
        [("scalar", torch.tensor(2.5)), ("empty", torch.zeros(0, 4)),
         ("nonfinite", torch.tensor([1.0, float("nan"), float("-inf")]))]))
    base = r(4, 6)
    save("strided.pt", {
        "base": base, "transposed": base.t(), "columns": base[:, 1:4], "step": base[::2, ::3],
        "expanded": base[0].expand(3, 6), "diagonal": base.diagonal(), "one": base[2:3, 5:6],
        "permuted": r(2, 3, 4).permute(2, 0, 1), "tied": base})
    model = {"w": r(2, 2), "b": torch.nn.Parameter(r(2))}
    save("protocol4.pt", {"model": model, "epoch": 3, "big": 2 ** 70}, pickle_protocol=4)
    save("protocol5.pt", {"model": model, "array": np.arange(6, dtype="f4").reshape(2, 3)},
         pickle_protocol=5)
    counts = collections.defaultdict(int)
    counts["a"] = 1
    save("namespace.bin", {
        "model": {"module._orig_mod.w": r(2, 2), "module.v": r(3)},
        "args": argparse.Namespace(lr=0.1, betas=(0.9, 0.99), name="deit", out=pathlib.PurePosixPath(
            "/tmp/x")),
        "loss": np.float32(0.25), "steps": np.int64(7), "flag": np.bool_(True),
        "nan": float("nan"), "inf": [float("inf"), -float("inf")], "big": 2 ** 63, "none": None,
        "array": np.array([[1, 2], [3, 4]], dtype=">i2"), "objects": np.array(["a", 1], dtype=object),
        "counts": counts, "tags": {"x"}, "color": Color.RED, "size": torch.Size([2, 3]),
        "device": torch.device("cpu"), "dtype": torch.float16, "raw": b"\xff\x00", "text": b"abc",
        "optimizer": {"state": {0: {"exp_avg": r(2)}}, "param_groups": [{"lr": 0.1}]}})
    save("lightning.ckpt", {
        "epoch": 1, "global_step": 10, "pytorch-lightning_version": "1.9.0",
        "state_dict": {"net.embed.weight": r(3, 2), "net.head.0.weight": r(2, 3)},
        "optimizer_states": [], "hyper_parameters": {"d": 2}})
    torch.save(r(2, 2).t(), HERE / "bare.pt")
    expect("bare.pt", [("tensor", of_tensor(torch.load(HERE / "bare.pt")))])
    pair = [r(2), (r(1), 5)]
    torch.save(pair, HERE / "list.pt")
    expect("list.pt", [("0", of_tensor(pair[0])), ("1.0", of_tensor(pair[1][0]))])
    cycle = {"w": r(2)}
    cycle["self"] = cycle
    torch.save(cycle, HERE / "cycle.pt")
    expect("cycle.pt", [("w", of_tensor(cycle["w"]))])
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    torch.save({"net": net, "epoch": 2}, HERE / "module.pt")
    expect("module.pt", [("net." + k, of_tensor(v)) for k, v in net.state_dict().items()])
    script = torch.jit.script(torch.nn.Linear(2, 2))
    script.save(str(HERE / "torchscript.pt"))
    expect("torchscript.pt", [(k, of_tensor(v)) for k, v in script.state_dict().items()])


def repacked():
    def big(name, data):
        key = name.split("/", 1)[1]
        if not key.startswith("data/"):
            return data
        return np.frombuffer(data, "<f4").astype(">f4").tobytes()

    torch.save({"w": torch.arange(6.0).view(2, 3), "v": torch.tensor([0.5])}, HERE / "plain.pt")
    expect("plain.pt", flat("", torch.load(HERE / "plain.pt")))
    repack("plain.pt", "big_endian.pt", big, extra={"plain/byteorder": b"big"})
    repack("plain.pt", "deflated.pt", method=zipfile.ZIP_DEFLATED)
    repack("plain.pt", "zip64.pt", zip64=True)


def hand_pickle(name, parts, storages):
    """A torch zip whose pickle is written opcode by opcode: forms that PyTorch 1.13 cannot write."""
    with zipfile.ZipFile(HERE / name, "w") as out:
        out.writestr("archive/data.pkl", b"".join(parts))
        for key, data in storages.items():
            out.writestr(f"archive/data/{key}", data)


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def hand_written():
    def storage(kind, key, count):
        return (b"(" + text("storage") + b"ctorch\n" + kind + b"\n" + text(key) + text("cpu") + b"K" +
                bytes([count]) + b"tQ")

    def tensor8(dtype, key):  # _rebuild_tensor_v3 over an untyped storage
        return (b"ctorch._utils\n_rebuild_tensor_v3\n(" + storage(b"storage.UntypedStorage", key, 4)
                .replace(b"ctorch\nstorage.", b"ctorch.storage\n") +
                b"K\x00K\x02K\x02\x86K\x02K\x01\x86\x89ccollections\nOrderedDict\n)Rctorch\n" + dtype +
                b"\ntR")

    hand_pickle("float8.pt", [
        b"\x80\x02}(", text("e4m3"), tensor8(b"float8_e4m3fn", "0"), text("e5m2"),
        tensor8(b"float8_e5m2", "1"), b"u."],
        {"0": bytes([0x38, 0xB8, 0x01, 0x7E]), "1": bytes([0x3C, 0xBC, 0x01, 0x7B])})
    expect("float8.pt", [("e4m3", entry("f8_e4m3", (2, 2), [1, -1, 2.0 ** -9, 448])),
                         ("e5m2", entry("f8_e5m2", (2, 2), [1, -1, 2.0 ** -16, 57344]))])

    # Protocol 0: all in text.
    hand_pickle("protocol0.pt", [
        b"(dp0\nVw\\u00e9\np1\nctorch._utils\n_rebuild_tensor\n",
        b"((S'storage'\nctorch\nFloatStorage\nS'0'\nS'cpu'\nI2\ntQI0\n(I2\nt(I1\nttRs",
        b"Vlr\nF0.5\nsVn\nL12L\nsVyes\nI01\ns.",
    ], {"0": struct.pack("<2f", 1.5, -2)})
    expect("protocol0.pt", [("w\u00e9", entry("f32", (2,), [1.5, -2]))])

    # An old file: storages with views, numel of the root, data after the pickles.
    def viewed(key, offset, size):
        return (b"ctorch._utils\n_rebuild_tensor\n((" + text("storage") + b"ctorch\nFloatStorage\n" +
                text("7") + text("cpu") + b"K\x06(" + text(key) + b"K" + bytes([offset]) + b"K" +
                bytes([size]) + b"ttQK\x00K" + bytes([size]) + b"\x85K\x01\x85tR")

    stream = io.BytesIO()
    pickle.dump(0x1950a86a20f9469cfc6c, stream, 2)
    pickle.dump(1001, stream, 2)
    pickle.dump({"protocol_version": 1001, "little_endian": True,
                 "type_sizes": {"short": 2, "int": 4, "long": 4}}, stream, 2)
    stream.write(b"\x80\x02}(" + text("a") + viewed("70", 1, 2) + text("b") + viewed("71", 3, 3) + b"u.")
    pickle.dump(["7"], stream, 2)
    stream.write(struct.pack("<q6f", 6, *range(6)))
    (HERE / "legacy_views.pt").write_bytes(stream.getvalue())
    expect("legacy_views.pt", [("a", entry("f32", (2,), [1, 2])), ("b", entry("f32", (3,), [3, 4, 5]))])


def legacy():
    base = torch.arange(12.0).view(3, 4)
    tree = {"base": base, "t": base.t(), "row": base[1], "long": torch.tensor([1, -2]),
            "half": torch.tensor([0.5, -1.5], dtype=torch.float16), "epoch": 4}
    for name, protocol in (("legacy.pt", 2), ("legacy_protocol4.pt", 4)):
        save(name, tree, _use_new_zipfile_serialization=False, pickle_protocol=protocol)


def numpy_files():
    rng = np.random.default_rng(2)
    arrays = {k: (rng.standard_normal((2, 3)) * 9).astype(k) for k in
              ("f4", "f8", "f2", "i4", "i8", "u1", "b1")}
    arrays["fortran"] = np.asfortranarray(rng.standard_normal((3, 4)).astype("f4"))
    arrays["big"] = rng.standard_normal((2, 2)).astype(">f8")
    arrays["big_integer"] = np.array([1, -300], dtype=">i2")
    arrays["scalar"] = np.float32(3.5)
    arrays["empty"] = np.zeros((0, 3), dtype="f4")
    np.savez(HERE / "stored.npz", **arrays)
    np.savez_compressed(HERE / "deflated.npz", **arrays)
    for name in ("stored.npz", "deflated.npz"):
        expect(name, [(k, of_array(np.asarray(v))) for k, v in arrays.items()])
    values = np.array([1.0, -2.5, 3.140625, 65536.0], dtype="f4")
    bf16 = (values.view("u4") >> 16).astype("u2").view("V2")
    np.savez(HERE / "bfloat16.npz", w=bf16)
    expect("bfloat16.npz", [("w", entry("bf16", (4,), values))])
    np.save(HERE / "fortran.npy", arrays["fortran"])
    expect("fortran.npy", [("array", of_array(arrays["fortran"]))])
    with open(HERE / "version2.npy", "wb") as out:
        np.lib.format.write_array(out, arrays["f8"], version=(2, 0))
    expect("version2.npy", [("array", of_array(arrays["f8"]))])
    np.savez(HERE / "objects.npz", good=arrays["f4"], bad=np.array([None, 1], dtype=object))


def write_safetensors(path, tensors, metadata=None, pad=True, spaces=0):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text_ = json.dumps(header).encode() + b" " * spaces
    if pad:
        text_ += b" " * (-len(text_) % 8)
    path.write_bytes(struct.pack("<Q", len(text_)) + text_ + data)


def safetensors():
    f4 = np.arange(6, dtype="<f4").reshape(2, 3) - 2.5
    write_safetensors(HERE / "types.safetensors", {
        "f32": ("F32", [2, 3], f4.tobytes()), "f64": ("F64", [], struct.pack("<d", 0.1)),
        "bf16": ("BF16", [2], bytes.fromhex("803fc0c0")), "f16": ("F16", [2], bytes.fromhex("003c0100")),
        "i64": ("I64", [1], struct.pack("<q", -7)), "u16": ("U16", [1], struct.pack("<H", 65535)),
        "bool": ("BOOL", [2], b"\x00\x01"), "f8": ("F8_E4M3", [2], b"\x38\xc0"),
        "empty": ("F32", [0, 5], b"")}, {"format": "pt"})
    expect("types.safetensors", [
        ("f32", of_array(f4)), ("f64", entry("f64", (), [0.1])), ("bf16", entry("bf16", (2,), [1, -6])),
        ("f16", entry("f16", (2,), [1, 2.0 ** -24])), ("i64", entry("i64", (1,), [-7])),
        ("u16", entry("u16", (1,), [65535])), ("bool", entry("bool", (2,), [0, 1])),
        ("f8", entry("f8_e4m3", (2,), [1, -2])), ("empty", entry("f32", (0, 5), []))])
    write_safetensors(HERE / "unaligned.safetensors",
                      {"byte": ("U8", [1], b"\x05"), "w": ("F32", [2, 3], f4.tobytes())}, pad=False)
    expect("unaligned.safetensors", [("byte", entry("u8", (1,), [5])), ("w", of_array(f4))])


def sharded():
    a, b = np.arange(4, dtype="<f4"), np.arange(3, dtype="<f4") * -1
    for folder, suffix in (("sharded", "safetensors"), ("sharded_torch", "bin")):
        directory = HERE / folder
        directory.mkdir(exist_ok=True)
        stem = "model" if suffix == "safetensors" else "pytorch_model"
        names = [f"{stem}-0000{i}-of-00002.{suffix}" for i in (1, 2)]
        if suffix == "bin":
            torch.save({"a": torch.tensor(a)}, directory / names[0])
            torch.save({"b": torch.tensor(b)}, directory / names[1])
        else:
            write_safetensors(directory / names[0], {"a": ("F32", [4], a.tobytes())}, {"format": "pt"})
            write_safetensors(directory / names[1], {"b": ("F32", [3], b.tobytes())}, {"format": "pt"})
        index = {"metadata": {"total_size": 28}, "weight_map": {"a": names[0], "b": names[1]}}
        (directory / f"{stem}.{suffix}.index.json").write_text(json.dumps(index, indent=2) + "\n")
        expect(folder, [("a", of_array(a)), ("b", of_array(b))])


def gguf():
    key = b"general.architecture"
    body = struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key
    (HERE / "empty.gguf").write_bytes(b"GGUF" + body + struct.pack("<IQ", 8, 4) + b"bert")


def flax():
    """MessagePack of nested dicts; an array is the extension type 1 of [shape, type, bytes]."""
    def text(word):
        return bytes([0xa0 | len(word)]) + word.encode()

    def array(shape, dtype, data, kind=1):
        body = b"\x93" + bytes([0x90 | len(shape)]) + bytes(shape) + text(dtype) + b"\xc4" + bytes([len(data)]) + data
        return b"\xc7" + bytes([len(body), kind]) + body
    f4 = np.arange(6, dtype="<f4").reshape(2, 3) - 2.5
    layer = b"\x83" + text("kernel") + array((2, 3), "float32", f4.tobytes()) \
        + text("half") + array((2,), "bfloat16", bytes.fromhex("803fc0c0")) \
        + text("none") + array((0, 4), "float16", b"")
    (HERE / "flax.msgpack").write_bytes(
        b"\x84" + text("layer") + layer + text("count") + array((), "int32", struct.pack("<i", -7), 3)
        + text("step") + b"\xd1" + struct.pack(">h", -300) + text("note") + b"\x93\xc3\xc0" + text("x"))
    expect("flax.msgpack", [("layer.kernel", of_array(f4)), ("layer.half", entry("bf16", (2,), [1, -6])),
                            ("layer.none", entry("f16", (0, 4), [])), ("count", entry("i32", (), [-7]))])


def llama2c():
    d, inner, heads, keys, words, tokens = 8, 8, 2, 1, 16, 2
    rng = np.random.RandomState(7)
    vectors = {name: rng.randn(d).astype("<f4") for name in ("attention_norm", "ffn_norm", "norm")}
    rows = {"tok_embeddings": words, "wq": d, "wk": d // 2, "wv": d // 2, "wo": d, "w1": inner, "w2": d, "w3": inner}
    full = lambda n: f"layers.0.attention.{n}.weight" if n in ("wq", "wk", "wv", "wo") else \
        f"layers.0.feed_forward.{n}.weight" if n in ("w1", "w2", "w3") else \
        f"layers.0.{n}.weight" if n.endswith("_norm") else n + ".weight"
    matrices = {name: rng.randn(n, d).astype("<f4") for name, n in rows.items()}
    sizes = struct.pack("<7i", d, inner, 1, heads, keys, words, tokens)
    old = ("tok_embeddings", "attention_norm", "wq", "wk", "wv", "wo", "ffn_norm", "w1", "w2", "w3", "norm")
    both = {**vectors, **matrices}
    angles = rng.randn(tokens * d // heads).astype("<f4")
    (HERE / "llama2c.bin").write_bytes(sizes + b"".join(both[n].tobytes() for n in old) + angles.tobytes())
    expect("llama2c.bin", [(full(n), of_array(both[n])) for n in old])
    group, data, listed = 4, b"", []
    for name in ("attention_norm", "ffn_norm", "norm"):
        data += vectors[name].tobytes()
        listed.append((full(name), of_array(vectors[name])))
    for name, a in matrices.items():
        codes = rng.randint(-127, 128, a.shape).astype("i1")
        scales = np.abs(rng.randn(a.shape[0], d // group)).astype("<f4")
        data += codes.tobytes() + scales.tobytes()
        values = codes.astype("f8") * np.repeat(scales.astype("f8"), group, 1)
        listed.append((full(name), entry("i8", a.shape, values.reshape(-1).tolist())))
    start = b"24ka" + struct.pack("<i", 2) + sizes + struct.pack("<Bi", 1, group)
    (HERE / "llama2c_2.bin").write_bytes(start + bytes(256 - len(start)) + data)
    expect("llama2c_2.bin", listed)


if __name__ == "__main__":
    import sys
    import types
    sys.modules["colors"] = types.ModuleType("colors")
    sys.modules["colors"].Color = Color
    for make in (torch_zip, repacked, hand_written, legacy, numpy_files, safetensors, sharded, gguf,
                 flax, llama2c):
        make()
    clean = json.dumps(expected, indent=None).replace("-Infinity", '"-inf"').replace("NaN", '"nan"')
    (HERE / "expected.json").write_text(clean.replace("]]], ", "]]],\n") + "\n")
