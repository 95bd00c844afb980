"""Runs the commands of docs/tutorial.md and looks for what the page says that they print.

    tutorial.py TSDIAG PAGE
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile


def main(program, page):
    root = pathlib.Path(page).parent.parent
    blocks = re.findall(r"^```(sh|text)\n(.*?)^```", pathlib.Path(page).read_text(), re.M | re.S)
    commands = sum(text.count("\n") for kind, text in blocks if kind == "sh")
    assert commands == 12, f"{commands} commands"
    printed, looked_for = "", 0
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root / "examples", pathlib.Path(folder) / "examples")
        environment = dict(os.environ, PATH=f"{pathlib.Path(program).parent}:{os.environ['PATH']}")
        for kind, text in blocks:
            if kind == "sh":
                print(text, flush=True)
                done = subprocess.run(["bash", "-ec", text], cwd=folder, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                printed = " ".join(done.stdout.split())
                continue
            for line in text.splitlines():
                assert " ".join(line.split()) in printed, f"not printed: {line}\n{printed}"
                looked_for += 1
        for result in ("char", "collapse", "cured", "mine.tsdiag", "run", "run.tsdiag", "watched"):
            assert (pathlib.Path(folder) / result / "report.html").stat().st_size > 10000, result
    assert looked_for == 23, f"{looked_for} lines"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
