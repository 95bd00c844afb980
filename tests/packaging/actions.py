"""Runs the steps of examples/github-actions in a repository of their kind.

    actions.py TSDIAG FOLDER
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap


def parts_of(workflow):
    """The commands of its steps by name, and the variables of its job."""
    text = workflow.read_text()
    try:
        import yaml
    except ImportError:
        pass  # without it only what the steps do is tested
    else:
        assert list(yaml.safe_load(text)["jobs"]), workflow
    steps = {name: textwrap.dedent(body) for name, body in
             re.findall(r"- name: (.*)\n(?:(?!      - ).*\n)*?        run: \|\n((?:          .*\n|\n)+)", text)}
    return steps, dict(re.findall(r'^      ([A-Z]+): "?(.*?)"?$', text, re.M))


def compare(program, examples):
    steps, settings = parts_of(examples / "compare.yml")
    assert set(steps) == {"Install tsdiag", "Compare the checkpoints"}, steps.keys()
    assert set(settings) == {"REFERENCE", "NEW", "ASSERTION"}, settings
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "tsdiag").symlink_to(program)
        for checkpoint in (settings["REFERENCE"], settings["NEW"]):
            shutil.copytree(examples.parent / "char-gpt", folder / checkpoint)

        def run(**changes):
            environment = dict(os.environ, **dict(settings, **changes))
            environment["PATH"] = f"{folder}:{environment['PATH']}"
            return subprocess.run(["bash", "-e", "-c", steps["Compare the checkpoints"]], cwd=folder, env=environment,
                                  capture_output=True, text=True)

        done = run()
        assert done.returncode == 0, done.stdout + done.stderr
        page = folder / "results/compared/report.html"
        assert page.exists()
        page.unlink()
        done = run(ASSERTION="B-A: t_sim@out:last > 0.05")
        assert done.returncode == 4 and page.exists(), done.stdout + done.stderr


def checkpoints(program, examples):
    steps, settings = parts_of(examples / "checkpoints.yml")
    assert set(steps) == {"Install tsdiag", "Probe the new checkpoints"}, steps.keys()
    assert set(settings) == {"CHECKPOINTS", "ASSERTION"}, settings
    assert steps["Install tsdiag"] == parts_of(examples / "compare.yml")[0]["Install tsdiag"]
    model = examples.parent / "char-gpt"
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
    for run in (checkpoints, compare):
        run(os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).absolute())
