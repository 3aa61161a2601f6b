#!/usr/bin/env python3
"""Checks the Markdown pages as GitHub renders them: links, anchors and pictures exist, tables have equal rows, fences close.

check_docs.py [--root DIR]: README.md, CONTRIBUTING.md, CHANGELOG.md, docs/, tuning_db/ and bench/ of that tree.
"""
import argparse
import pathlib
import re
import sys

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"(`+)(.+?)\1(?!`)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
FENCE = re.compile(r"^ {0,3}(```+|~~~+)(.*)$")


def pages(root):
    folders = [root / name for name in ("docs", "tuning_db", "bench", "python", "examples") if (root / name).is_dir()]
    found = sorted(root.glob("*.md"))
    for folder in folders:
        found += sorted(folder.rglob("*.md"))
    return found


def anchor_of(heading, seen):
    """GitHub's: lower case, no punctuation, spaces as hyphens; a number behind those that stand there already."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
    anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    count = seen.get(anchor, 0)
    seen[anchor] = count + 1
    return f"{anchor}-{count}" if count else anchor


class Page:
    """One file: its lines without code, its anchors."""

    def __init__(self, path):
        self.path = path
        self.problems = []
        self.text = []  # (number, line without code spans) outside of code
        self.anchors = set()
        fence, seen, before = None, {}, ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = FENCE.match(line)
            if fence is not None:
                if match and match.group(1).startswith(fence) and not match.group(2).strip():
                    fence = None
                continue
            if match:
                fence, opened = match.group(1), number
                continue
            indented = line.startswith("    ") and (not before.strip() or before.startswith("    "))
            if indented:
                before = line
                continue
            heading = HEADING.match(line)
            if heading:
                self.anchors.add(anchor_of(heading.group(2), seen))
            self.text.append((number, line))
            before = line
        if fence is not None:
            self.say(opened, "the code block that begins here has no end")

    def say(self, number, what):
        self.problems.append(f"{self.path}:{number}: {what}")


def cells(line):
    """Cells of a table's row: bars that are escaped part none."""
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return len(re.findall(r"(?<!\\)\|", inner)) + 1


def check_tables(page):
    lines = page.text
    for at, (number, line) in enumerate(lines):
        if not re.match(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$", line) or "|" not in line or at == 0:
            continue
        if lines[at - 1][0] != number - 1 or "|" not in lines[at - 1][1]:
            continue
        columns = cells(line)
        if cells(lines[at - 1][1]) != columns:
            page.say(number - 1, f"the table's heading has {cells(lines[at - 1][1])} cells, the line below it {columns}")
        if at > 1 and lines[at - 2][1].strip() and lines[at - 2][0] == number - 2:
            page.say(number - 1, "a table needs an empty line before it")
        for row, (row_number, text) in enumerate(lines[at + 1:], at + 1):
            if not text.strip() or row_number != lines[row - 1][0] + 1:
                break
            if cells(text) != columns:
                page.say(row_number, f"the row has {cells(text)} cells, its table {columns}")


def check_links(page, root, known):
    for number, line in page.text:
        for picture, text, target in LINK.findall(CODE.sub("", line)):
            if re.match(r"^[a-z]+:", target):
                continue
            if picture and not text:
                page.say(number, f"the picture {target} has no text for those who cannot see it")
            path, _, anchor = target.partition("#")
            file = (page.path.parent / path).resolve() if path else page.path.resolve()
            if not file.exists():
                page.say(number, f"there is no {target}")
                continue
            if root.resolve() not in (file, *file.parents):
                page.say(number, f"{target} lies outside of the tree: GitHub has no page of it")
            if anchor and file in known and anchor not in known[file].anchors:
                page.say(number, f"{path or page.path.name} has no heading for #{anchor}")


def check(root):
    known = {path.resolve(): Page(path) for path in pages(root)}
    for page in known.values():
        check_tables(page)
        check_links(page, root, known)
    return [problem for page in known.values() for problem in page.problems], len(known)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    problems, count = check(parser.parse_args().root)
    for problem in problems:
        print(problem)
    print(f"docs: {count} pages, {len(problems)} findings")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
