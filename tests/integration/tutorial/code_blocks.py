"""Code blocks of a Markdown file: `code_blocks.py FILE LANGUAGE` prints those of one language, one after the other."""
import re
import sys


def code_blocks(text, language):
    """The contents of ```LANGUAGE blocks, in their order."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def in_short(code):
    """The same with searches of two seconds."""
    return re.sub(r"(\btime=|time_budget_s = |--time )\d+", r"\g<1>2", code)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(in_short("\n".join(code_blocks(file.read(), sys.argv[2]))))
