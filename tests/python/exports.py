"""Exports of a result, read by decoders that share nothing with tsdiag, and python/tsdiag.py.

usage: exports.py TSDIAG tsdiag.py

Event files and Parquet are decoded here from their specifications; where pyarrow or Node's hyparquet
can be found (NODE_PATH), those read the Parquet files as well.
"""

import importlib.util
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
MODEL = "random:post-norm,d=12,heads=3,layers=2"


def tsdiag(*words):
    done = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, (words, done.stderr.decode())
    return done.stdout.decode()


# ---- CRC-32C, bit by bit

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # the check value of the catalogue of CRCs


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# ---- protocol buffers and event files

def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(wire)
            if size is None:
                assert wire == 2, wire
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size
        yield number, value


def events(path):
    """(tag, step) -> a number, or the fields of a histogram."""
    with open(path, "rb") as file:
        data = file.read()
    at, found, first = 0, {}, True
    while at < len(data):
        head = data[at:at + 8]
        (size,) = struct.unpack("<Q", head)
        assert struct.unpack("<I", data[at + 8:at + 12])[0] == masked(head)
        body = data[at + 12:at + 12 + size]
        assert struct.unpack("<I", data[at + 12 + size:at + 16 + size])[0] == masked(body)
        at += 16 + size
        event = dict(fields(body))
        if first:
            assert event[3] == b"brain.Event:2"
            first = False
            continue
        (value,) = [dict(fields(one)) for number, one in fields(event[5]) if number == 1]
        key = value[1].decode(), event.get(2, 0)
        assert key not in found, key
        if 2 in value:
            found[key] = struct.unpack("<f", value[2])[0]
        else:
            histo = dict(fields(value[5]))
            doubles = {n: struct.unpack("<%dd" % (len(b) // 8), b) for n, b in histo.items()}
            found[key] = doubles
    return found


# ---- Parquet: Thrift's compact protocol, pages

def zigzag(value):
    return value >> 1 ^ -(value & 1)


def thrift_value(data, at, kind):
    if kind in (1, 2):
        return kind == 1, at
    if kind in (4, 5, 6):
        value, at = varint(data, at)
        return zigzag(value), at
    if kind == 8:
        size, at = varint(data, at)
        return data[at:at + size], at + size
    if kind == 9:
        head = data[at]
        at += 1
        size = head >> 4
        if size == 15:
            size, at = varint(data, at)
        out = []
        for _ in range(size):
            one, at = thrift_value(data, at, head & 15)
            out.append(one)
        return out, at
    assert kind == 12, kind
    return thrift_struct(data, at)


def thrift_struct(data, at):
    out, last = {}, 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return out, at
        if head >> 4:
            last += head >> 4
        else:
            last, at = varint(data, at)
            last = zigzag(last)
        out[last], at = thrift_value(data, at, head & 15)


def hybrid(data, at, width, count):
    """`count` values of the hybrid of runs and bit-packed groups."""
    out = []
    while len(out) < count:
        head, at = varint(data, at)
        if head & 1:
            size = (head >> 1) * width
            bits = int.from_bytes(data[at:at + size], "little")
            at += size
            out += [bits >> width * i & (1 << width) - 1 for i in range((head >> 1) * 8)]
        else:
            size = (width + 7) // 8
            out += [int.from_bytes(data[at:at + size], "little")] * (head >> 1)
            at += size
    return out[:count]


def plain(data, at, kind, count):
    out = []
    for _ in range(count):
        if kind == 6:
            (size,) = struct.unpack_from("<I", data, at)
            out.append(data[at + 4:at + 4 + size].decode())
            at += 4 + size
        else:
            out.append(struct.unpack_from({2: "<q", 5: "<d"}[kind], data, at)[0])
            at += 8
    assert at == len(data)
    return out


def parquet(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:4] == data[-4:] == b"PAR1"
    (size,) = struct.unpack("<I", data[-8:-4])
    meta, end = thrift_struct(data, len(data) - 8 - size)
    assert end == len(data) - 8
    columns = {}
    for group in meta[4]:
        for chunk in group[1]:
            about = chunk[3]
            name = about[3][0].decode()
            at, cells, dictionary = about.get(11, about[9]), [], None
            while len(cells) < about[5]:
                head, at = thrift_struct(data, at)
                body, at = data[at:at + head[3]], at + head[3]
                if head[1] == 2:
                    dictionary = plain(body, 0, about[1], head[7][1])
                    continue
                count = head[5][1]
                (length,) = struct.unpack_from("<I", body)
                there = hybrid(body, 4, 1, count)
                rest = body[4 + length:]
                if head[5][2] == 8:
                    keys = hybrid(rest, 1, rest[0], sum(there))
                    values = iter([dictionary[k] for k in keys])
                else:
                    values = iter(plain(rest, 0, about[1], sum(there)))
                cells += [next(values) if one else None for one in there]
            columns.setdefault(name, []).extend(cells)
    names = [one[4].decode() for one in meta[2][1:]]
    assert list(columns) == names or meta[3] == 0
    assert all(len(cells) == meta[3] for cells in columns.values())
    return [dict(zip(names, row)) for row in zip(*(columns.get(name, []) for name in names))]


def other_readers(path, expected):
    """Libraries, where they are."""
    seen = []
    try:
        import pyarrow.parquet
        assert pyarrow.parquet.read_table(path).to_pylist() == expected
        seen.append("pyarrow")
    except ImportError:
        pass
    script = """
        const {asyncBufferFromFile, parquetReadObjects} = await import(process.argv[2]);
        const file = await asyncBufferFromFile(process.argv[1]);
        const plain = (k, v) => typeof v === 'bigint' ? Number(v) : v;
        console.log(JSON.stringify(await parquetReadObjects({file}), plain));"""
    for folder in os.environ.get("NODE_PATH", "").split(os.pathsep):
        library = os.path.join(folder, "hyparquet", "src", "node.js")
        if not folder or not os.path.exists(library):
            continue
        done = subprocess.run(["node", "--input-type=module", "-e", script, path, library],
                              stdout=subprocess.PIPE, check=True)
        rows = [{k: v for k, v in row.items()} for row in json.loads(done.stdout)]
        assert [{k: row.get(k) for k in e} for row, e in zip(rows, expected)] == expected
        assert len(rows) == len(expected)
        seen.append("hyparquet")
    return seen


# ---- the checks

def lines(folder):
    tables = {}
    for line in tsdiag("export", folder, "--to", "jsonl").splitlines():
        row = json.loads(line)
        tables.setdefault(row.pop("table"), []).append(row)
    return tables


def check_parquet(folder):
    tables = lines(folder)
    tsdiag("export", folder, "--to", "parquet", "--out", folder + ".parquet")
    files = set(os.listdir(folder + ".parquet")) - {"files.sha256"}
    assert files >= {name + ".parquet" for name in tables}
    for empty in files - {name + ".parquet" for name in tables}:
        assert parquet(os.path.join(folder + ".parquet", empty)) == [], empty
    readers = []
    for name, rows in tables.items():
        path = os.path.join(folder + ".parquet", name + ".parquet")
        assert parquet(path) == rows, name
        readers = other_readers(path, rows)
    return readers


def check_tensorboard(folder, stepped):
    tables = lines(folder)
    tsdiag("export", folder, "--to", "tensorboard", "--out", folder + ".events")
    path = os.path.join(folder + ".events", "events.out.tfevents.0.tsdiag")
    found = events(path)
    heads = {}
    for row in tables["metrics"]:
        if row["value"] is None:
            continue
        tag = row["metric"] + ("@" + row["stage"] if row["stage"] else "")
        if stepped and row["layer"] is not None:
            tag += "/layer %02d" % row["layer"]
        step = (row["step"] if stepped else row["layer"]) or 0
        if row["head"] is not None:
            heads.setdefault((tag + "/heads", step), []).append(row["value"])
        else:
            single = struct.unpack("<f", struct.pack("<f", row["value"]))[0]
            assert found.pop((tag, step)) == single, (tag, step)
    assert heads
    for key, values in heads.items():
        histo = found.pop(key)
        assert histo[1] == (min(values),) and histo[2] == (max(values),) and histo[3] == (len(values),)
        assert math.isclose(histo[4][0], sum(values), rel_tol=1e-12)
        limits, counts = histo[6], histo[7]
        assert list(limits) == sorted(limits) and limits[-1] == max(values)
        for i, count in enumerate(counts):
            low = limits[i - 1] if i else -math.inf
            assert count == sum(low < v <= limits[i] for v in values), key
    assert not found or stepped, list(found)[:3]
    return path, tables


def main():
    os.environ["TSDIAG"] = PROGRAM
    spec = importlib.util.spec_from_file_location("tsdiag", sys.argv[2])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        result = module.probe(MODEL, tokens=6, samples=2, out="one", no_report=True, quiet=None)
        assert result.folder == "one" and result.run["model"]["layers"] == 2
        assert result.findings[0]["headline"] is True and result.verdict == result.findings[0]["text"]
        assert result.files["run.json"] == os.path.join("one", "run.json") and module.load("one").findings == result.findings
        rows = result.metrics
        count = sum(1 for _ in open("one/metrics.csv")) - 1
        assert len(rows) == count > 10, (len(rows), count)
        assert len(result.curves) == sum(1 for _ in open("one/curves.csv")) - 1
        if isinstance(rows, list):
            assert rows[0]["metric"] and set(rows[0]) == set(rows[-1])
        else:
            assert {"metric", "of", "unit", "value"} <= set(rows.columns)
        drawn = ["random:%s-norm,d=8,heads=2,layers=2" % place for place in ("post", "pre")]
        compared = module.run(*drawn, tokens=6, out="drawn")
        assert compared.folder == os.path.join("drawn", "comparison") and "t_sim" in compared.verdict, compared.verdict
        assert len(module.run(*drawn, tokens=6, out="plain", no_report=True)["compared"]) == 2
        told = module.compare(result, "one", assert_=["t_sim@out:last < 2", "t_sim@out:last > 2"])
        assert [one["holds"] for one in told["assertions"][::2]] == [True, False], told["assertions"]
        assert told["significant"] == 0
        assert len(module.inspect(MODEL)["tensors"]) > 10
        assert len(module.metrics()) > 20
        try:
            module.probe("random:nothing")
            raise AssertionError("was taken")
        except module.TsdiagError as error:
            assert error.code in (1, 2) and "nothing" in str(error), error

        readers = check_parquet("one")
        check_tensorboard("one", stepped=False)
        for seed in "12":
            tsdiag("init", MODEL, "--seed", seed, "-o", "run/checkpoint-%s00" % seed)
        tsdiag("probe", "run", "--tokens", "6", "--no-report", "--out", "two")
        check_parquet("two")
        path, tables = check_tensorboard("two", stepped=True)
        # The tree's own reader of event logs.
        tsdiag("gradients", path, "--tag", "t_sim@out/layer 01", "--no-report", "-o", "logged")
        (mean,) = [r["value"] for r in lines("logged")["metrics"] if r["metric"] == "grad_mean"]
        values = [r["value"] for r in tables["metrics"]
                  if r["metric"] == "t_sim" and r["stage"] == "out" and r["layer"] == 1]
        assert math.isclose(mean, sum(values) / len(values), rel_tol=1e-6), (mean, values)
        tsdiag("train", "random:gpt2,layers=1,d=16,heads=2", "--data", "copy", "--tokens", "9",
               "--steps", "3", "-o", "trained", "-q")
        check_parquet("trained")
        tsdiag("export", "trained", "--to", "tensorboard", "--out", "trained.events")
        found = events("trained.events/events.out.tfevents.0.tsdiag")
        norms = [row for row in lines("trained")["gradients"]]
        assert len({found["gradients/grad_norm" + ("" if r["layer"] is None else
                          "/layer %02d" % r["layer"]), r["step"]] for r in norms}) > 1
        losses = [row["loss"] for row in lines("trained")["steps"]]
        assert [found["steps/loss", s] for s in (1, 2, 3)] == [
            struct.unpack("<f", struct.pack("<f", x))[0] for x in losses]
    print("read by this script" + "".join(", " + one for one in readers)
          + ("" if isinstance(rows, list) else "; with pandas"))


main()
