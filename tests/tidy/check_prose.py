#!/usr/bin/python3
"""Fails when a comment or a page has a new sentence that begins with a headless Who, What, Which or "That which".

Such a sentence has a clause for its subject ("What is free is forgotten."), and the reader has to guess who acts. A
question that ends with "?" is fine, and so are headings, and the head row of a table.

    check_prose.py ROOT            names the sentences of each folder that has more of them than LEFT allows
    check_prose.py ROOT FOLDER     lists all that a folder has
    check_prose.py ROOT --lower    writes the counts that have become smaller into LEFT
    check_prose.py --self-test     shows that it bites

LEFT says how many sentences a folder still has. A number may only shrink: when a folder has fewer, `--lower` is due.
"""

import pathlib
import re
import sys

LEFT = {}

TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*', re.S)
HEADLESS = re.compile(r"(?:Who|What|Which|That which)\b")
MARKER = re.compile(r"(?:[-*+]|\(?\d+[.)]|>)\s+")  # of an item in a list


def sentences(lines):
    """(line, sentence) of numbered lines of prose. An empty line or the marker of a list's item ends a sentence."""
    parts, part = [], []
    for number, line in lines:
        text = line.strip()
        item = MARKER.match(text)
        if not text or item:
            parts.append(part)
            part = []
        text = text[item.end():] if item else text
        part += [(number, word) for word in text.split()]
    for part in parts + [part]:
        begun = []
        for number, word in part:
            begun.append((number, word))
            if re.search(r'[.!?]["\')*]*$', word):
                yield begun[0][0], " ".join(word for _, word in begun)
                begun = []
        if begun:
            yield begun[0][0], " ".join(word for _, word in begun)


def comment_lines(source):
    """Numbered lines of each comment in C, without what marks it as one."""
    for token in TOKEN.finditer(source):
        text = token.group(0)
        if not text.startswith("/"):
            continue
        first = source.count("\n", 0, token.start()) + 1
        lines = re.sub(r"\*/$", "", text).split("\n")
        yield [(first + i, re.sub(r"^\s*(?:/\*+|//+|\*)", "", line)) for i, line in enumerate(lines)]


def page_lines(page):
    """Numbered lines of each block of a page: a paragraph, or a cell of a table's body. Code and headings are none."""
    block, code, lines = [], False, page.split("\n")
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            code = not code
            continue
        if code or line.startswith("#"):
            yield block
            block = []
        elif line.startswith("|"):
            head = number < len(lines) and re.fullmatch(r"\|[-:| ]+\|", lines[number].strip())
            if not head:
                yield from ([(number, cell)] for cell in line.strip("|").split("|"))
        else:
            block.append((number, line.replace("**", "")))
    yield block


def headless(path, text):
    blocks = page_lines(text) if path.suffix == ".md" else comment_lines(text)
    for lines in blocks:
        for number, sentence in sentences(lines):
            if HEADLESS.match(sentence) and not sentence.endswith("?"):
                yield number, sentence


def found(root):
    """{folder: [place and sentence]} of the whole tree."""
    result = {}
    files = [path for path in root.rglob("*") if path.suffix in (".c", ".h", ".proto", ".md")]
    for path in sorted(files):
        place = path.relative_to(root)
        is_page = path.suffix == ".md"
        if place.parts[0].startswith((".", "build")) or (is_page and place.parts[0] not in ("docs", "README.md")):
            continue
        for number, sentence in headless(path, path.read_text()):
            result.setdefault(place.parts[0], []).append("%s:%d: %s" % (place, number, sentence))
    return result


def faults(result, left):
    for folder in sorted(set(result) | set(left)):
        have, may = len(result.get(folder, [])), left.get(folder, 0)
        if have > may:
            yield "%s/ has %d sentences with a headless subject, %d are allowed:" % (folder, have, may)
            yield from ("  " + place for place in result[folder])
        elif have < may:
            yield "%s/ has only %d left of %d: run check_prose.py ROOT --lower" % (folder, have, may)


def lower(result):
    path = pathlib.Path(__file__)
    counts = {folder: min(may, len(result.get(folder, []))) for folder, may in LEFT.items()}
    rows = ['    "%s": %d,\n' % row for row in sorted(counts.items()) if row[1]]
    text = path.read_text()
    path.write_text(re.sub(r"(?<=^LEFT = \{\n).*?(?=^\})", lambda _: "".join(rows), text, count=1, flags=re.S | re.M))


def self_test():
    def of(name, text):
        return [sentence for _, sentence in headless(pathlib.Path(name), text)]

    assert of("a.c", "/* What is free is forgotten. */") == ["What is free is forgotten."]
    assert of("a.c", "/* Reads it. Who asks\n * waits (so long). It ends. */") == ["Who asks waits (so long)."]
    assert of("a.c", "// Which one\n// counts is open.\n") == ["Which one counts is open."]
    assert of("a.c", "/* That which\n * is old goes */") == ["That which is old goes"]
    listed = "/* Rules:\n *\n * - Who waits is woken.\n * (2) What comes counts. */"
    assert of("a.h", listed) == ["Who waits is woken.", "What comes counts."]
    assert of("a.c", "/* Who holds it, and\n * since when? */ x = \"/* What is this. */\";") == []
    assert of("a.c", "/* It is that which counts. Whatever comes. */") == []
    table = "# What is it\n\n| What | Who |\n|---|---|\n| a | What goes. |\n\n```\nWhat runs.\n```\n"
    assert of("a.md", table) == ["What goes."]
    page = "- **Who asks** is told.\n- It is. What is\n  not is not.\n\nWho is it?\n"
    assert of("a.md", page) == ["Who asks is told.", "What is not is not."]
    one = {"kv": ["kv/a.c:1: What is."]}
    assert list(faults(one, {"kv": 1})) == []
    assert len(list(faults(one, {}))) == 2 and "allowed" in list(faults(one, {"kv": 0}))[0]
    assert ["--lower" in fault for fault in faults({}, {"kv": 1})] == [True]
    print("it bites")


def main():
    if sys.argv[1] == "--self-test":
        return self_test()
    result = found(pathlib.Path(sys.argv[1]))
    if sys.argv[2:] == ["--lower"]:
        return lower(result)
    if sys.argv[2:]:
        return print("\n".join(result.get(sys.argv[2], [])))
    told = list(faults(result, LEFT))
    for fault in told:
        print(fault)
    sys.exit(1 if told else 0)


if __name__ == "__main__":
    main()
