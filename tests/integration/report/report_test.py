"""nestor report in a real browser: every chart, no error, keyboard, names, widths, much data and hostile texts.

NESTOR_PROGRAM is the program; NESTOR_REPORT_SHOTS a folder for screenshots of every section, if any are wanted.
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from devtools import Browser, find_chromium

PROGRAM = os.environ.get("NESTOR_PROGRAM", "nestor")
SHOTS = os.environ.get("NESTOR_REPORT_SHOTS", "")
HOSTILE = "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script><!-- &lt;b&gt; \u2028 '\"`"
TRIALS = 10_000

CHARTS = {
    "search": {"chart-times", "chart-samples", "chart-convergence", "chart-stages", "chart-coordinates", "chart-effect-0",
               "chart-heat", "chart-roofline", "chart-space"},
    "shipped": {"chart-times", "chart-samples", "chart-convergence", "chart-stages", "chart-roofline", "chart-space",
                "chart-warps-0"},
}


def nestor(*arguments, check=True):
    environment = {**os.environ, "NESTOR_LIBCUDA": "/nonexistent"}
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, env=environment, timeout=300, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"nestor {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def embedded(path):
    """The data of a report, as its own script reads it."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    start = page.index('id="data">') + len('id="data">')
    return json.loads(page[start:page.index("</script>", start)]), page


class LiveReader(threading.Thread):
    """Reads a report again and again while a search writes it."""

    def __init__(self, path):
        super().__init__()
        self.path, self.done, self.problems, self.live, self.sizes = path, False, [], set(), set()

    def run(self):
        while not self.done:
            try:
                data, page = embedded(self.path)
                self.live.add(data["live"])
                self.sizes.add(len(data.get("trials", {}).get("id", [])))
                if not page.rstrip().endswith("</html>"):
                    self.problems.append("a page was cut off")
            except FileNotFoundError:
                pass
            except (ValueError, KeyError) as error:
                self.problems.append(repr(error))
            time.sleep(0.02)


def make_many(source, target, count):
    """A database of `count` trials like those of `source`, with hostile reasons among them."""
    lines = nestor("db", "export", "--inline-code", "--db", source).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    slow = [record for record in records if not record["kernel"] and record["median_ms"] > 0] or records
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
        file.write("\n".join(lines) + "\n")
        for k in range(count - len(records)):
            record = dict(slow[k % len(slow)])
            record["kernel"] = None
            record.pop("signature", None)  # it is another record
            record["created"] = f"2027-01-{1 + k // 5000:02}T{k // 3600 % 24:02}:{k // 60 % 60:02}:{k % 60:02}Z"
            failed = k % 7 == 0
            record["status"] = "crash" if failed else "slow"
            record["median_ms"] = 0 if failed else record["median_ms"] * (1 + (k * 7919 % 1000) / 500)
            record["samples_ms"] = [] if failed else [record["median_ms"]]
            record["reason"] = f"{HOSTILE} {k % 50}"
            file.write(json.dumps(record) + "\n")
    try:
        nestor("db", "import", file.name, "--db", target)
    finally:
        os.unlink(file.name)


class Reports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="nestor_report_")
        place = lambda name: os.path.join(cls.folder.name, name)
        cls.pages = {name: place(name + ".html") for name in ("search", "shipped", "many", "live")}
        cls.reader = LiveReader(cls.pages["live"])
        cls.reader.start()
        try:
            nestor("tune", "softmax", "--rows", "64", "--width", "128", "--target", "host", "--trials", "60", "--time", "60",
                   "--db", place("host.db"), "--report", cls.pages["live"])
        finally:
            cls.reader.done = True
            cls.reader.join()
        nestor("report", "softmax", "--db", place("host.db"), "-o", cls.pages["search"])
        nestor("db", "import", "--shipped", "--db", place("shipped.db"))
        nestor("report", "attention", "--variant", "causal.bf16", "--sizes", "queries=4096,keys=4096,head_dim=128",
               "--db", place("shipped.db"), "-o", cls.pages["shipped"])
        make_many(place("host.db"), place("many.db"), TRIALS)
        nestor("report", "softmax", "--db", place("many.db"), "-o", cls.pages["many"])
        cls.browser = Browser(find_chromium()[0])

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def open(self, name, width=1280, theme="light"):
        self.browser.theme(theme)
        self.browser.resize(width)
        return self.browser.open(self.pages[name])

    def assert_silent(self):
        self.assertEqual(self.browser.console, [])
        self.assertEqual([url for url in self.browser.requests if not url.startswith(("file://", "data:"))], [])

    def test_every_chart_is_drawn_at_every_width_without_overflow(self):
        drawn = ("[...document.querySelectorAll('[data-chart]')].map(f => [f.dataset.chart, "
                 "f.querySelector('canvas') ? 99 : f.querySelectorAll('svg path[d]:not([d=\"\"]), svg rect, svg line').length])")
        for name, wanted in CHARTS.items():
            for width in (1280, 400):
                for theme in ("light", "dark"):
                    with self.subTest(page=name, width=width, theme=theme):
                        self.open(name, width, theme)
                        charts = dict(self.browser.run(drawn))
                        self.assertLessEqual(wanted, set(charts))
                        self.assertEqual([chart for chart, marks in charts.items() if marks < 2], [])
                        self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), width)
                        self.assertEqual(self.browser.run("document.querySelectorAll('#notes').length"), 0)
                        self.assert_silent()
                        self.shoot(name, width, theme)

    def shoot(self, name, width, theme):
        if not SHOTS:
            return
        os.makedirs(SHOTS, exist_ok=True)
        for section in self.browser.run("[...document.querySelectorAll('main > section')].map(s => s.id)"):
            self.browser.screenshot(os.path.join(SHOTS, f"{name}_{section}_{width}_{theme}.png"), "#" + section)

    def test_everything_to_use_has_a_name(self):
        roles = {"button", "combobox", "slider", "checkbox", "searchbox", "image", "img", "link", "heading", "figure", "region", "table"}
        for name in CHARTS:
            self.open(name)
            nodes = self.browser.call("Accessibility.getFullAXTree")["nodes"]
            seen, nameless = set(), []
            for node in nodes:
                role = node.get("role", {}).get("value")
                if node.get("ignored") or role not in roles:
                    continue
                seen.add(role)
                if role != "table" and not node.get("name", {}).get("value", "").strip():
                    nameless.append((role, node.get("backendDOMNodeId")))
            self.assertEqual(nameless, [], name)
            self.assertLessEqual({"button", "slider", "heading", "link"}, seen)
            self.assertTrue(seen & {"image", "img"})

    def test_keys_reach_and_move_everything(self):
        self.open("search")
        run, key = self.browser.run, self.browser.key
        key("Tab", 9)
        self.assertEqual(run("document.activeElement.className"), "skip")
        run("document.querySelector('#space input[type=range]').focus()")
        before = run("document.querySelector('#chart-space').innerHTML")
        key("ArrowRight", 39)
        self.assertIn("after 1 visit", run("document.querySelector('#space [role=status]').textContent"))
        self.assertNotEqual(run("document.querySelector('#chart-space').innerHTML"), before)
        run("document.querySelector('#schedule .steps [aria-current]').focus()")
        last = run("document.querySelector('#schedule .steps [aria-current]').textContent")
        key("ArrowUp", 38)
        self.assertNotEqual(run("document.querySelector('#schedule .steps [aria-current]').textContent"), last)
        self.assertTrue(run("document.activeElement.hasAttribute('aria-current')"))
        run("document.getElementById('theme').focus()")
        key("Enter", 13)
        run("document.getElementById('theme').click()")
        self.assertEqual(run("document.documentElement.dataset.theme"), "dark")
        self.assert_silent()

    def test_ranges_and_filters_choose_trials(self):
        self.open("search")
        run = self.browser.run
        status = "document.querySelector('#matters [role=status]').textContent"
        self.assertEqual(run(status), "all trials")
        run("(() => { const to = document.querySelector('#matters select[aria-label=\"Largest value kept\"]');"
            " to.value = '0'; to.dispatchEvent(new Event('change')); })()")
        kept = run(status)
        self.assertRegex(kept, r"^[0-9]+ trials? kept$")
        self.assertIn(f"{kept.split()[0]} of", run("document.querySelector('#trials .row:last-child [role=status]').textContent"))
        run("[...document.querySelectorAll('#matters button')].find(b => b.textContent === 'Keep all').click()")
        self.assertEqual(run(status), "all trials")
        run("(() => { const find = document.querySelector('#trials input'); find.value = 'no such words at all';"
            " find.dispatchEvent(new Event('input')); })()")
        self.assertIn("0 of", run("document.querySelector('#trials .row:last-child [role=status]').textContent"))
        self.assert_silent()

    def test_dragging_along_an_axis_keeps_a_range(self):
        self.open("search")
        self.browser.run("document.querySelector('#chart-coordinates').scrollIntoView({block: 'center', behavior: 'instant'})")
        box = self.browser.run("(() => { const r = document.querySelector('#chart-coordinates canvas').getBoundingClientRect(); return [r.x, r.y]; })()")
        for kind, y in (("mousePressed", 250), ("mouseMoved", 265), ("mouseReleased", 284)):
            self.browser.call("Input.dispatchMouseEvent", type=kind, x=box[0] + 34, y=box[1] + y, button="left", clickCount=1)
        self.assertRegex(self.browser.run("document.querySelector('#matters [role=status]').textContent"), "kept$")

    def test_texts_of_a_database_stay_texts(self):
        self.open("many")
        run = self.browser.run
        run("new Promise(done => setTimeout(done, 300))")
        self.assertIsNone(run("window.hacked ?? null"))
        self.assertEqual(run("document.querySelectorAll('img, iframe, object, embed').length"), 0)
        self.assertEqual(run("document.querySelectorAll('script').length"), 2)
        self.assertTrue(run("document.querySelector('#failures').textContent.includes('<img src=x onerror=window.hacked=#></script>')"))
        self.assert_silent()

    def test_ten_thousand_trials(self):
        first = self.open("many")
        second = self.open("many")
        megabytes = os.path.getsize(self.pages["many"]) / 1e6
        drawn = self.browser.run("document.documentElement.dataset.ready")
        print(f"\n{TRIALS:,} trials: {megabytes:.2f} MB, open in {first:.2f} s, again in {second:.2f} s (drawn after {drawn} ms)")
        self.assertLess(megabytes, 2)
        self.assertEqual(len(embedded(self.pages["many"])[0]["trials"]["id"]), TRIALS)
        self.assertIn("10,000", self.browser.run("document.querySelector('#found .lead').textContent"))

    def test_paper_has_no_controls(self):
        self.open("shipped")
        self.browser.call("Emulation.setEmulatedMedia", media="print")
        shown = self.browser.run("[...document.querySelectorAll('nav, .noprint, .tools')].filter(n => getComputedStyle(n).display !== 'none').length")
        self.browser.call("Emulation.setEmulatedMedia", media="")
        self.assertEqual(shown, 0)

    def test_a_search_under_way_is_always_a_whole_page(self):
        self.assertEqual(self.reader.problems, [])
        self.assertIn(True, self.reader.live)
        self.assertIn(0, self.reader.sizes, "there is a page before the first trial")
        data, _ = embedded(self.pages["live"])
        self.assertFalse(data["live"])
        self.assertIn("story", data)
        self.assertIn("guess", data["trials"]["origins"])
        self.assertIn("starting point", data["trials"]["origins"])

    def test_two_trials_side_by_side(self):
        database = os.path.join(self.folder.name, "host.db")
        trials = embedded(self.pages["search"])[0]["trials"]
        other = next(i for i, s in zip(trials["id"], trials["status"]) if i != embedded(self.pages["search"])[0]["best"])
        path = os.path.join(self.folder.name, "against.html")
        nestor("report", "softmax", "--against", str(other), "--db", database, "-o", path)
        self.browser.resize(1280)
        self.browser.open(path)
        self.assertIn(f"Beside trial {other}", self.browser.run("document.querySelector('#against').textContent"))
        self.assert_silent()


if __name__ == "__main__":
    found, why = find_chromium()
    if found is None:
        print("skipped: " + why)
        sys.exit(0)
    unittest.main(verbosity=2)
