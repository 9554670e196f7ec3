"""The blocks of a page, and whether what a command printed is what the page shows. Both are plain functions of text.

A block is run when its language is sh (also bash, shell) or console, unless the line before it says <!-- not run: REASON -->. A block of sh that
begins with #! is a program: it is kept as the file that its next line names. In a block of console, lines that begin with "$ " are commands
(with as many further lines as the shell needs), the others are what they print."""
import os, re, subprocess

FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^`]*)$")
NOT_RUN = re.compile(r"^ *<!-- not run: (.+) -->$")
SHELL = {"sh": "sh", "bash": "sh", "shell": "sh", "console": "console"}


class Wrong(Exception):
    """A page that cannot be read, or that says what is not so."""


class Skip(Exception):
    """A page that cannot be run here."""


class Block:
    def __init__(self, line, language, text, section, reason):
        self.line = line                # of its first line in the page
        self.language = SHELL.get(language, language)
        self.text = text
        self.section = section          # the heading above
        self.reason = reason            # why it is not run, or None

    def shell(self):
        return self.language in SHELL.values()

    def program(self):
        """The name of the file that the block is, or None."""
        lines = self.text.split("\n")
        return lines[1].split()[1] if self.language == "sh" and lines[0].startswith("#!") else None


def blocks_of(text):
    blocks, section, reason, lines = [], "", None, iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        fence, said = FENCE.match(line), NOT_RUN.match(line)
        if fence:
            inside, language = [], fence[3].strip()
            if not re.fullmatch("[a-z]*", language):
                raise Wrong("line %d: a block's language is one word in lower case, not \"%s\"" % (number, language))
            for _, inner in lines:
                if inner.strip().startswith(fence[2]) and not inner.strip().strip(fence[2][0]):
                    break
                inside.append(inner[len(fence[1]):])
            else:
                raise Wrong("line %d: the block has no end" % number)
            block = Block(number + 1, language, "\n".join(inside), section, reason)
            if not block.shell() and (block.reason or any(l.startswith("$ ") for l in inside)):
                raise Wrong("line %d: a block with commands is \"console\" or \"sh\", not \"%s\"" % (number, language))
            blocks.append(block)
            reason = None
        elif reason and line.strip():
            raise Wrong("line %d: no block comes after \"not run\"" % number)
        elif said:
            reason = said[1]
        elif line.startswith("#"):
            section = line.lstrip("# ")
    if reason:
        raise Wrong("the last line: no block comes after \"not run\"")
    return blocks


def look_over(block, root):
    """Of a block that is not run: it is one for the shell, and the files of the repository that it names are there."""
    if not whole(block.text):
        raise Wrong("line %d: no shell understands it" % block.line)
    for path in re.findall(r"(?<![\w/.-])(?:tests|docs|deploy|bench)/[\w./-]*\w", block.text):
        if not os.path.exists(os.path.join(root, path)):
            raise Wrong("line %d: there is no %s" % (block.line, path))


def whole(command):
    """Whether the shell needs no further line."""
    return subprocess.run(["bash", "-n"], input=command + "\n", text=True, capture_output=True).returncode == 0


def commands_of(block):
    """[(line in the page, command, the lines that are shown)] of a block of console."""
    found, lines = [], block.text.split("\n")
    at = 0
    while at < len(lines):
        if not lines[at].startswith("$ "):
            if not found:
                raise Wrong("line %d: a block of console begins with \"$ \"" % block.line)
            found[-1][2].append(lines[at])
            at += 1
            continue
        begin, command = at, lines[at][2:]
        while not whole(command):
            at += 1
            if at == len(lines):
                raise Wrong("line %d: no whole command: %s" % (block.line + begin, command))
            command += "\n" + lines[at]
        found.append((block.line + begin, command, []))
        at += 1
    return found


# What is another one in each run, and how it looks: in its place anything that looks the same is right. All else is meant as it stands.
UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"
COUNTERS = ("index ", "term ", "all ", "kv ", "Index: ", "Index\":", "id: ", "token ", "Token\":", "Term\":", "Epoch\":", "Round\":", "Highest\":", "NotBefore\":", "NotAfter\":")
VARIES = [
    (r"\.\.\.", r".*"),                                       # as a line of its own: any lines
    (UUID, UUID),
    (TIME, TIME),
    (r"\b[0-9a-f]{16}\b", r"[0-9a-f]{16}"),                  # the id of a cluster
    (r"\b\d[\dhms]*[hms](?= ago\))|(?<=\(in )\d[\dhms]*[hms]", r"\d[\dhms]*[hms]"),              # until now, from now
    (r"\b\d+(?:\.\d+)?(?:us|ms)\b|\b\d+\.\d+s\b", r"\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m)"),    # measured; 5m and 10s are settings, and stay
    ("|".join(r"(?<=%s)[1-9]\d*" % before for before in COUNTERS), r"[1-9]\d*"),
    (r"[ \t]+", r"[ \t]+"),                                   # columns are as wide as what is in them
]
ANY = re.compile("|".join("(%s)" % looks for looks, _ in VARIES))


def pattern_of(shown):
    """A regular expression of a line."""
    out, at = "", 0
    for found in ANY.finditer(shown):
        out += re.escape(shown[at:found.start()]) + VARIES[found.lastindex - 1][1]
        at = found.end()
    return out + re.escape(shown[at:])


def matches(shown, printed):
    """Whether the lines that a page shows are what was printed. Blanks at ends of lines, and empty lines at the end, do not count."""
    expected = ""
    for line in "\n".join(l.rstrip() for l in shown).rstrip("\n").split("\n"):
        expected += r"(?:.*\n)*" if line.strip() == "..." else pattern_of(line) + r"\n"
    text = "\n".join(l.rstrip() for l in printed.split("\n")).rstrip("\n") + "\n"
    return re.fullmatch(expected, text) is not None
