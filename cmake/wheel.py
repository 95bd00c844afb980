"""Writes the tree of the tarball as a wheel of Python: the program, its libraries and tsdiag.py (docs/packages.md).

    wheel.py TREE VERSION SUMMARY OUT     prints the path of the wheel, which is in folder OUT

The package `tsdiag` has `bin` and `lib` of the tree, which find each other, and the command `tsdiag` starts the program
there.  The library for devices also finds NVIDIA's libraries of CUDA where pip installs them.  Equal trees give equal wheels:
names are sorted, and their dates are SOURCE_DATE_EPOCH.
"""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

MACHINES = {"elf64-x86-64": "x86_64", "elf64-littleaarch64": "aarch64"}
FIRST_DATE = 315532800  # 1980, with which a zip begins


def headers(binary):
    return subprocess.run(["objdump", "-p", binary], stdout=subprocess.PIPE, check=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout  # in English


def platform(binaries):
    """The tag of the newest glibc that a binary asks for: manylinux_2_35_x86_64."""
    newest, machines = (0, 0), set()
    for binary in binaries:
        told = headers(binary)
        machines.add(MACHINES[re.search(r"file format (\S+)", told)[1]])
        for version in re.findall(r"0x.* GLIBC_(\S+)", told):
            if not re.fullmatch(r"[0-9.]+", version):
                sys.exit("%s asks for GLIBC_%s, for which wheels have no tag" % (binary, version))
            newest = max(newest, tuple(map(int, version.split(".")[:2])))
    (machine,) = machines
    return "manylinux_%d_%d_%s" % (*newest, machine)


def of_devices(library):
    """It, looking into the packages of NVIDIA beside `tsdiag` as well."""
    major = re.search(r"NEEDED +libcublas\.so\.(\d+)", headers(library))[1]
    folders = ["cublas/lib", "cusolver/lib"] if major == "12" else ["cu%s/lib" % major]  # since 13 all are in one
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(library, folder)
        for one in folders:
            subprocess.run(["patchelf", "--add-rpath", "$ORIGIN/../../../nvidia/" + one, copy], check=True)
        return pathlib.Path(copy).read_bytes()


def write(path, files):
    """A zip of {name: (contents, mode)}."""
    seconds = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), FIRST_DATE)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (contents, mode) in files.items():
            entry = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            wheel.writestr(entry, contents)


def main(tree, version, summary, out):
    tree = pathlib.Path(tree)
    binaries = [tree / "bin/tsdiag", *sorted(tree.glob("lib/tsdiag/*"))]
    tag = "py3-none-" + platform(binaries)
    files = {"tsdiag/__init__.py": ((tree / "share/tsdiag/tsdiag.py").read_bytes(), 0o644)}
    for binary in binaries:
        contents = of_devices(binary) if binary.name == "libtsdiag_cuda.so" else binary.read_bytes()
        files["tsdiag/%s" % binary.relative_to(tree)] = (contents, 0o755)

    about = "tsdiag-%s.dist-info/" % version
    doc = tree / "share/doc/tsdiag"
    licences = [doc / "LICENSE", *sorted((doc / "licenses").iterdir())]
    texts = {
        "METADATA": "Metadata-Version: 2.1\nName: tsdiag\nVersion: %s\nSummary: %s\nLicense: Apache-2.0\n"
                    "Requires-Python: >=3.8\n" % (version, summary),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: tsdiag\nRoot-Is-Purelib: false\nTag: %s\n" % tag,
        "entry_points.txt": "[console_scripts]\ntsdiag = tsdiag:main\n",
    }
    texts = {name: text.encode() for name, text in texts.items()}
    texts.update(("licenses/" + one.name, one.read_bytes()) for one in licences)
    for name, text in sorted(texts.items()):
        files[about + name] = (text, 0o644)
    record = ""
    for name, (contents, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).decode().rstrip("=")
        record += "%s,sha256=%s,%d\n" % (name, digest, len(contents))
    files[about + "RECORD"] = ((record + about + "RECORD,,\n").encode(), 0o644)

    path = os.path.join(out, "tsdiag-%s-%s.whl" % (version, tag))
    write(path, files)
    print(path)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
