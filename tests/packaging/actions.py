"""Runs the steps of examples/github-actions/checkpoints.yml in a repository of their kind.

    actions.py TSDIAG WORKFLOW
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap


def main(program, workflow):
    text = pathlib.Path(workflow).read_text()
    steps = {name: textwrap.dedent(body) for name, body in
             re.findall(r"- name: (.*)\n(?:(?!      - ).*\n)*?        run: \|\n((?:          .*\n|\n)+)", text)}
    assert set(steps) == {"Install tsdiag", "Probe the new checkpoints"}, steps.keys()
    settings = dict(re.findall(r'^      ([A-Z]+): "?(.*?)"?$', text, re.M))
    assert set(settings) == {"CHECKPOINTS", "ASSERTION"}, settings
    model = pathlib.Path(workflow).parents[1] / "char-gpt"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        root = folder / "repository"
        temporary = folder / "runner"
        temporary.mkdir()

        # Installs a tarball: the one of the address, here a file.
        inside = folder / "tsdiag-1" / "bin"
        inside.mkdir(parents=True)
        (inside / "tsdiag").symlink_to(program)
        subprocess.run(["tar", "-czf", folder / "tsdiag.tar.gz", "-C", folder, "tsdiag-1"], check=True)
        install = steps["Install tsdiag"].replace("${{ vars.TSDIAG_TARBALL }}", f"file://{folder}/tsdiag.tar.gz")
        assert "${{" not in install
        added = folder / "path"
        environment = dict(os.environ, RUNNER_TEMP=str(temporary), GITHUB_PATH=str(added), **settings)
        if shutil.which("curl"):
            subprocess.run(["bash", "-e", "-c", install], env=environment, check=True)
            environment["PATH"] = f"{added.read_text().strip()}:{environment['PATH']}"
            assert shutil.which("tsdiag", path=environment["PATH"]).startswith(str(temporary))
        else:
            environment["PATH"] = f"{inside}:{environment['PATH']}"

        def git(*arguments):
            return subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments], cwd=root,
                                  check=True, capture_output=True, text=True).stdout.strip()

        def push(before, **changes):
            return subprocess.run(["bash", "-e", "-c", steps["Probe the new checkpoints"]], cwd=root,
                                  env=dict(environment, BEFORE=before, **changes), capture_output=True, text=True)

        root.mkdir()
        git("init", "-q")
        (root / "checkpoints").mkdir()
        shutil.copytree(model, root / "checkpoints" / "step-1")
        git("add", ".")
        git("commit", "-qm", "one")
        first = git("rev-parse", "HEAD")
        done = push("0" * 40)  # what GitHub says before the first push
        assert done.returncode == 0 and "== step-1" in done.stdout, done.stdout + done.stderr
        assert (root / "results/step-1/report.html").exists()

        shutil.copytree(model, root / "checkpoints" / "step-2")
        git("add", "checkpoints")
        git("commit", "-qm", "two")
        second = git("rev-parse", "HEAD")
        done = push(first)
        assert done.returncode == 0 and "== step-2" in done.stdout and "step-1" not in done.stdout, done.stdout
        shutil.rmtree(root / "results")
        done = push(first, ASSERTION="t_sim@out:last < 0")
        assert done.returncode == 4 and (root / "results/step-2/report.html").exists(), done.stdout + done.stderr

        git("rm", "-qr", "checkpoints/step-2")
        git("commit", "-qm", "three")
        done = push(second)
        assert done.returncode == 0 and "==" not in done.stdout, done.stdout + done.stderr


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
