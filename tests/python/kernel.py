"""Runs the first cell of notebooks_cpp/README.md by clang-repl, with the flags and the library of Jupyter's kernel.

    kernel.py KERNEL_JSON CLANG_REPL README
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile


def main(description, repl, readme):
    kernel = json.loads(pathlib.Path(description).read_text())
    root = pathlib.Path(readme).parent.parent
    name = json.loads((root / "notebooks_cpp/01_similarity.ipynb").read_text())["metadata"]["kernelspec"]
    assert kernel["display_name"] == name["display_name"] and f"--name {name['name']}" in pathlib.Path(readme).read_text()
    assert kernel["argv"][:3] == ["xcpp", "-f", "{connection_file}"]
    flags = kernel["argv"][3:]
    cell = re.search(r"```cpp\n(.*?)```", pathlib.Path(readme).read_text(), re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root / "examples", pathlib.Path(folder) / "examples")
        (pathlib.Path(folder) / "cell.inc").write_text(cell)
        done = subprocess.run([repl, *(word for flag in flags for word in ("-Xcc", flag))], cwd=folder,
                              env=dict(os.environ, **kernel["env"]), capture_output=True, text=True,
                              input='#include "show.hpp"\n#include "cell.inc"\n'
                                    'std::printf("%zu rows\\n", result.table.metrics().size());\n%quit\n')
    rows = re.search(r"(\d+) rows", done.stdout)
    assert rows and int(rows[1]) > 100, done.stdout + done.stderr


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*map(os.path.abspath, sys.argv[1:]))
