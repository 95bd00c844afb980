"""Builds the documents as a site, and reads it as a browser would without a network.

    site.py ROOT WORK
"""

import html.parser
import pathlib
import shutil
import subprocess
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.names = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(given["href"])


def problems(site):
    """What leads nowhere, and what a page loads from elsewhere."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    found.append(f"{path.name} loads {link}")
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{path.name} links to {link}")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].names:
                found.append(f"{path.name} links to {link}, which names no place there")
    for path in site.rglob("*.css"):
        if "url(http" in path.read_text():
            found.append(f"{path.name} loads from elsewhere")
    return found


def searched(site, words):
    """What the search page finds, opened as a file by a browser, if there is one."""
    browser = shutil.which("chromium")
    if not browser:
        return None
    page = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000",
                           f"--user-data-dir={site}/.browser", "--dump-dom",
                           f"file://{site}/search.html?q={urllib.parse.quote(words)}"],
                          capture_output=True, text=True, timeout=120).stdout
    return page.split('id="search-results"')[-1]


def main(root, work):
    if not shutil.which("sphinx-build"):
        print("site: skipped, sphinx-build is not here (tools/setup-debian docs)")
        return 77
    site = work / "site"
    shutil.rmtree(work, ignore_errors=True)
    subprocess.run([root / "tools/docs", site], check=True)
    assert not problems(site), "\n".join(problems(site))
    written = {page.stem for page in (root / "docs").glob("*.md")}
    built = {page.stem for page in (site / "docs").glob("*.html")}
    assert written == built, written ^ built
    metrics = Page(site / "docs/metrics.html")
    assert {"#"} <= {link[:1] for link in metrics.links}, "a page has no contents"

    found = searched(site, "escalation")
    assert found is None or "docs/metrics.html" in found, found
    assert found is None or "docs/metrics.html" not in searched(site, "nowherewritten")

    # A page that is missing, and one that loads something, are noticed.
    (site / "docs/metrics.html").rename(site / "docs/other.html")
    assert any("metrics" in problem for problem in problems(site))
    (site / "docs/other.html").write_text('<script src="https://example.org/a.js"></script>')
    assert any("loads https" in problem for problem in problems(site))
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*(pathlib.Path(argument).resolve() for argument in sys.argv[1:])))
