#!/usr/bin/env python3
"""Makes the pictures in docs/figures again, from the program itself: make_figures.py PROGRAM.

Needs a Chromium. The pictures of a search come from a new one on this machine, so their numbers differ each time.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/integration/report"))
from devtools import Browser, find_chromium  # noqa: E402

FIGURES = ROOT / "docs/figures"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    chromium, why = find_chromium()
    if chromium is None:
        sys.exit("make_figures.py: " + why)
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        def nestor(*arguments):
            subprocess.run([program, *arguments], check=True, cwd=folder, env={**os.environ, "NESTOR_LIBCUDA": "/nonexistent"})
        nestor("db", "import", "--shipped", "--db", "shipped.db")
        nestor("report", "attention", "--variant", "causal.bf16", "--sizes", "queries=4096,keys=4096,head_dim=128,heads=16", "--db",
               "shipped.db", "-o", "attention.html")
        nestor("tune", "softmax", "--rows", "256", "--width", "512", "--target", "host", "--trials", "400", "--time", "120", "--db",
               "softmax.db", "--report", "softmax.html")
        FIGURES.mkdir(exist_ok=True)
        browser = Browser(chromium)
        try:
            browser.resize(1000)
            for page, theme, sections in (("attention", "light", ("good", "space", "warps")), ("softmax", "light", ("found",)),
                                          ("softmax", "dark", ("chart-coordinates",))):
                browser.theme(theme)
                browser.open(os.path.join(folder, page + ".html"))
                if page == "attention":
                    browser.run("(() => { const s = document.querySelector('#space input[type=range]'); s.value = 9;"
                                " s.dispatchEvent(new Event('input')); })()")
                for section in sections:
                    browser.screenshot(str(FIGURES / f"report_{section.removeprefix('chart-')}.png"), "#" + section)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
