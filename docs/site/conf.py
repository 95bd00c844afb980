"""The documents as a site: tools/docs.  Sphinx reads the Markdown of the repository as it is, and what is to be found
beside each page, in which order, from the table "Further" of README.md: a document that is not there is an error."""

import re

project = "tsdiag"
author = "the authors of tsdiag"
copyright = "the authors of tsdiag; Apache License 2.0"
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/*.md", "notebooks_cpp/README.md", "examples/char-gpt/README.md"]
root_doc = "README"
myst_heading_anchors = 3
html_theme = "furo"
html_title = "tsdiag"
html_show_sphinx = False
html_copy_source = False
html_extra_path = ["index.html"]


def add_contents(app, name, source):
    if name != root_doc:
        return
    placed = set()
    for group, entries in re.findall(r"^\| \*\*(.*?)\*\* \|(.*)\|$", source[0].split("## Further")[1], re.M):
        pages = [page for page in re.findall(r"\]\(([^)]*)\.md\)", entries) if page not in placed]
        placed.update(pages)
        pages = "\n".join(pages)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {group}\n\n{pages}\n```\n"


def setup(app):
    app.connect("source-read", add_contents)
