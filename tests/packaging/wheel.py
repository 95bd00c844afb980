"""Installs a wheel in an environment of its own, uses it and removes it, without a network.

    wheel.py WHEEL TREE WORK     exit code 77: python3 cannot make an environment here

TREE is that of the tarball, of which the wheel was written.
"""

import base64
import csv
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

SKIPPED = 77
# What manylinux_2_35 lets a wheel expect of the system, of the libraries that the program uses.
SYSTEM = {"linux-vdso.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1",
          "libdl.so.2", "libpthread.so.0", "librt.so.1"}
USE = """
import tsdiag
result = tsdiag.run("random:post-norm,d=32,heads=4,layers=2", "--tokens", "16", no_report=True, out="result")
(value,) = [row["value"] for row in result._all()["metrics"]
            if (row["metric"], row["layer"], row["stage"], row["head"]) == ("t_sim", 1, "out", None)]
assert "t_sim" in result.verdict and "%.4g" % value in result.verdict, (result.verdict, value)
assert len(result.metrics) > 100 and result.run["input"]["tokens"] == 16
assert open(result.files["metrics.csv"]).readline().startswith("model,step,layer")
"""


def run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, "%s: %s" % (words, done.stdout)
    return done.stdout


def check_contents(path, tree):
    """It has the files of the tree, RECORD each with its digest, and the tag is what the binaries ask for."""
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        rows = list(csv.reader(wheel.read(record).decode().splitlines()))
        assert [row[0] for row in rows] == names and len(set(names)) == len(names)
        for name, digest, size in rows[:-1]:
            contents = wheel.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).decode().rstrip("=")
            assert digest == "sha256=" + found and int(size) == len(contents), name
            if name.startswith(("tsdiag/bin/", "tsdiag/lib/")):
                assert contents == (tree / name[len("tsdiag/"):]).read_bytes(), name
        metadata = wheel.read(record.replace("RECORD", "METADATA")).decode()
        tag = re.search("^Tag: (.*)$", wheel.read(record.replace("RECORD", "WHEEL")).decode(), re.M)[1]
    about = dict(re.findall("^(.*?): (.*)$", metadata, re.M))
    assert path.name == "tsdiag-%s-%s.whl" % (about["Version"], tag), path.name
    binaries = [tree / "bin/tsdiag", *tree.glob("lib/tsdiag/*")]
    asked = re.findall(r"\(GLIBC_(\d+)\.(\d+)", run("objdump", "-T", *map(str, binaries)))
    assert "manylinux_%d_%d_" % max((int(a), int(b)) for a, b in asked) in tag, tag
    return about["Version"]


def check_writer(tree, work):
    """Equal trees give equal wheels, of the date that was asked for: the tree with a small library as its program."""
    wheels = []
    for name in ("one", "other"):
        copy = work / name
        for file in ("share/tsdiag/tsdiag.py", "share/doc/tsdiag/LICENSE", "share/doc/tsdiag/licenses/README"):
            (copy / file).parent.mkdir(parents=True)
            shutil.copyfile(tree / file, copy / file)
        for file in ("lib/tsdiag/libz.so.1", "bin/tsdiag"):
            (copy / file).parent.mkdir(parents=True)
            shutil.copyfile(tree / "lib/tsdiag/libz.so.1", copy / file)
        told = run(sys.executable, str(pathlib.Path(__file__).parents[2] / "cmake/wheel.py"), str(copy), "1", "A summary.",
                   str(copy), env=dict(os.environ, SOURCE_DATE_EPOCH="1700000001"))
        wheels.append(pathlib.Path(told.strip()))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as wheel:
        assert {one.date_time for one in wheel.infolist()} == {(2023, 11, 14, 22, 13, 20)}  # of even seconds


def files(folder):
    return {str(one) for one in folder.rglob("*") if "__pycache__" not in one.parts or "tsdiag" in one.parts}


def check_libraries(package):
    """The program and its libraries find each other inside of the package, and all else is the system's."""
    bundled = {one.name for one in (package / "lib/tsdiag").iterdir()}
    assert "libfmt.so.9" in bundled or len(bundled) > 5, bundled
    for binary in [package / "bin/tsdiag", *(package / "lib/tsdiag").iterdir()]:
        for line in run("ldd", str(binary), env={"PATH": "/usr/bin:/bin"}).splitlines():
            name = line.split()[0].rsplit("/", 1)[-1]
            if name == "statically":  # data alone
                continue
            place = pathlib.Path(re.search(r"(=> )?(\S*) \(0x", line)[2] or "/").resolve()
            inside = package.resolve() in place.parents
            assert inside if name in bundled else name in SYSTEM, "%s: %s" % (binary.name, line)


def main(path, tree, work):
    work.mkdir(parents=True)
    version = check_contents(path, tree)
    check_writer(tree, work)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(work), "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    made = subprocess.run([sys.executable, "-m", "venv", str(work / "env")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode:
        print("the wheel was not installed: python3-venv is not here")
        return SKIPPED
    inside = work / "env/bin"
    before = files(work / "env")
    pip = [str(inside / "python"), "-m", "pip"]
    run(*pip, "install", "--no-cache-dir", str(path), env=environment)
    (package,) = (work / "env").glob("lib/python3*/site-packages/tsdiag")
    check_libraries(package)
    assert run(str(inside / "tsdiag"), "--version", env=environment).startswith("tsdiag %s (" % version)
    refused = subprocess.run([str(inside / "tsdiag"), "probe", "random:nothing"], stderr=subprocess.PIPE, env=environment)
    assert refused.returncode in (1, 2) and b"nothing" in refused.stderr
    run(str(inside / "python"), "-c", USE, env=environment, cwd=work)
    run(*pip, "uninstall", "--yes", "tsdiag", env=environment)
    assert files(work / "env") == before, files(work / "env") - before
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*(pathlib.Path(one).absolute() for one in sys.argv[1:])))
