#!/usr/bin/env python3
"""Makes the pictures in docs/figures again, from the program itself: make_figures.py PROGRAM [NAME ...].

NAME: of pictures (explore, report_good, ...); all of them without. Needs a Chromium. The pictures of a search come from a new one on this
machine, so their numbers differ each time.
"""
import html
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/integration/report"))
from devtools import Browser, find_chromium  # noqa: E402

FIGURES = ROOT / "docs/figures"
ROWS = """apply_rule(reassociate)
compute_at(length, out.i)
compute_at(squares, out.i)
compute_at(squares_init, out.i)
parallel(out.i)
vectorize(squares.k)
vectorize(out.c)
"""
STENCIL = "skew(out.r_y, out.r_x, 1)\ntile(out.r_y, out.r_x, yo, xo, yi, xi, 8, 8)\n"
SESSION = ("split(out.c, 8, co, ci)", "why parallel(mean.k)", "suggest 5")
SLIDER = ("(() => {{ const s = document.querySelector('#{0} input[type=range]'); s.value = {1};"
          " s.dispatchEvent(new Event('input')); }})()")
SELECT_LOOPS = ("(() => {{ for (const wanted of ['{0}', '{1}']) for (const box of document.querySelectorAll('#space select'))"
                " for (const option of box.options) if (option.text === wanted)"
                " {{ box.value = option.value; box.dispatchEvent(new Event('change')); }} }})()")
SELECT_STEP = "document.querySelectorAll('#schedule ol.steps button')[{0}].click()"
INKS = {"1": "font-weight:bold", "2": "opacity:.6", "31": "color:#ff7b72", "32": "color:#7ee787", "33": "color:#e3b341", "36": "color:#76e3ea"}


class Maker:
    """Runs the program in a folder of its own, and takes pictures of pages."""

    def __init__(self, program, chromium, folder, names):
        self.program, self.folder, self.names = program, folder, names
        self.browser = Browser(chromium)
        self.browser.resize(1000)

    def nestor(self, *arguments, lines=None):
        subprocess.run([self.program, *arguments], check=True, cwd=self.folder, input=lines, text=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "NESTOR_LIBCUDA": "/nonexistent"})

    def wanted(self, *names):
        return not self.names or any(name in self.names for name in names)

    def picture(self, name, page, selector, *, theme="light", script=None):
        if not self.wanted(name):
            return
        self.browser.theme(theme)
        self.browser.open(os.path.join(self.folder, page))
        if script:
            self.browser.run(script)
        self.browser.screenshot(str(FIGURES / f"{name}.png"), selector)

    def attention(self):
        if not self.wanted("report_good", "report_space", "report_warps"):
            return
        self.nestor("db", "import", "--shipped", "--db", "shipped.db")
        self.nestor("report", "attention", "--variant", "causal.bf16", "--sizes", "queries=4096,keys=4096,head_dim=128,heads=16", "--db",
                    "shipped.db", "-o", "attention.html")
        for section in ("good", "space", "warps"):
            self.picture("report_" + section, "attention.html", "#" + section, script=SLIDER.format("space", 9))

    def search(self):
        if not self.wanted("report_found", "report_coordinates"):
            return
        self.nestor("tune", "softmax", "--rows", "256", "--width", "512", "--target", "host", "--trials", "400", "--time", "120", "--db",
                    "softmax.db", "--report", "softmax.html")
        self.picture("report_found", "softmax.html", "#found")
        self.picture("report_coordinates", "softmax.html", "#chart-coordinates", theme="dark")

    def steps(self):
        """The schedule of docs/tutorial.md, and a stencil in tiles."""
        if self.wanted("report_steps"):
            definition = re.search(r"```python\n(.*?)```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL).group(1)
            subprocess.run([sys.executable, "-c", definition], check=True, cwd=self.folder,
                           env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "NESTOR_PROGRAM": self.program})
            self.nestor("explore", "./unit_rows.nest.json", "--target", "host", "--db", "rows.db", lines=ROWS + "report rows.html\n")
            self.picture("report_steps", "rows.html", "#schedule", script=SELECT_STEP.format(3))
        if self.wanted("stencil_tiles"):
            self.nestor("explore", "seidel2d", "--height", "64", "--width", "64", "--steps", "1", "--target", "host", "--db", "stencil.db",
                        lines=STENCIL + "report stencil.html\n")
            self.picture("stencil_tiles", "stencil.html", "#space", script=SELECT_LOOPS.format("out", "yo × xo") + ";" + SLIDER.format("space", 60))

    def explorer(self):
        """A session on a terminal, as its escape sequences colour it."""
        if not self.wanted("explore"):
            return
        os.environ["NESTOR_PROGRAM"] = self.program
        sys.path.insert(0, str(ROOT / "tests/integration/explore"))
        from explore_terminal_test import Session  # pylint: disable=import-outside-toplevel
        session = Session("layernorm", "--rows", "64", "--width", "512", "--target", "host", columns=100, folder=self.folder)
        session.wait_prompt(0)
        since = len(session.raw)
        for line in SESSION:
            session.type(line)
        text = session.raw[since:].decode()
        session.end()
        page = ("<!doctype html><html data-ready=1><meta charset=utf-8><body style='margin:0'><pre id=terminal style='margin:0;padding:16px;background:#0d1117;"
                f"color:#e6edf3;font:13px/1.45 monospace;width:100ch;white-space:pre-wrap'>{self.as_html(text)}</pre>")
        pathlib.Path(self.folder, "explore.html").write_text(page)
        self.picture("explore", "explore.html", "#terminal")

    @staticmethod
    def as_html(text):
        text = re.sub(r"\r+\n", "\n", text)
        text = re.sub(r"[^\n]*\r\x1b\[K(?=[^\n])", "", text)  # lines of progress, which the next one overwrites
        parts, opened = [], False
        for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", text):
            if not part.startswith("\x1b"):
                parts.append(html.escape(part.replace("\r", "")))
            elif part.endswith("m"):
                parts.append("</span>" if opened else "")
                ink = INKS.get(part[2:-1])
                opened = ink is not None
                parts.append(f'<span style="{ink}">' if opened else "")
        return "> " + "".join(parts).rstrip().removesuffix("&gt;").rstrip() + ("</span>" if opened else "")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    chromium, why = find_chromium()
    if chromium is None:
        sys.exit("make_figures.py: " + why)
    FIGURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        maker = Maker(os.path.abspath(sys.argv[1]), chromium, folder, sys.argv[2:])
        try:
            for part in (maker.attention, maker.search, maker.steps, maker.explorer):
                part()
        finally:
            maker.browser.close()


if __name__ == "__main__":
    main()
