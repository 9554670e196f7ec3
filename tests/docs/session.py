"""A shell, as a reader has one: the blocks of a page are run in it one after the other, and what they print is kept."""
import os, re, subprocess, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
from pace import SLOW, STANDSTILL
from blocks import Wrong, commands_of, matches

LONGEST = 60 * SLOW + STANDSTILL        # a step
SOON = 10 * SLOW + STANDSTILL           # until what was asked for is so
# `wait` fails when what was waited for failed, unless a signal ended it: nobody sees the exit code of what runs in the background otherwise.
BEGIN = r"""
in_background=("") of_sh=() waited=" "
trap '[ "${!:-}" = "${in_background[-1]}" ] || in_background+=("$!")' DEBUG; set -T
wait() {
    if [ $# -gt 0 ]; then
        waited+="$* $(jobs -p "$@" 2> /dev/null | tr '\n' ' ') "
        builtin wait "$@"
        return
    fi
    local job code all=0
    waited+="${in_background[*]} "
    for job in ${in_background[@]}; do
        code=0
        builtin wait "$job" 2> /dev/null || code=$?
        [ "$code" -eq 0 ] || [ "$code" -ge 127 ] || all=$code
    done
    return "$all"
}
"""
# What a block of sh began in the background, and what has failed by the end of the page although nobody waited for it: its exit code.
# A block of console may end such a command as it likes.
UNSEEN = r"""
unseen=0
for job in ${of_sh[@]}; do
    case $waited in *" $job "*) continue ;; esac
    code=0
    kill -0 "$job" 2> /dev/null || builtin wait "$job" 2> /dev/null || code=$?
    [ "$code" -eq 0 ] || [ "$code" -ge 127 ] || unseen=$code
done
(exit "$unseen")
"""
SH = "set -Eeuo pipefail; trap 'echo \"$LINENO $? $BASH_COMMAND\" >> \"%s\"' ERR; begun_by_others=${#in_background[@]}; . \"%s\"; of_sh+=(\"${in_background[@]:begun_by_others}\")"
CONSOLE = "set +eE; set -uo pipefail; trap - ERR; (exit %d); . \"%s\""      # $? is what it was
# Commands that only ask may be asked again until the answer is what is shown: something takes a moment, which the page says.
ASKS = re.compile(r"(dig|curl|coord (-\S+ )*(members|regions|info|locks|explain|\w+ (list|get|status|keys list))\b)(?!.* (-X|-d|--data|-T)\b)(?!.*&$)", re.S)


class Session:
    def __init__(self, folder, environment):
        """`folder`: where it works. The shell's own files lie beside it."""
        self.folder, self.own, self.steps = folder, folder + ".session", 0
        os.makedirs(self.own)
        self.printed_path, self.failed_path = os.path.join(self.own, "printed"), os.path.join(self.own, "failed")
        done, tell = os.pipe()
        self.done = os.fdopen(done, "rb", buffering=0)
        os.set_blocking(done, False)
        with open(self.printed_path, "ab") as printed:
            self.bash = subprocess.Popen(["bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, stdout=printed, stderr=printed, cwd=folder,
                                         env=environment, pass_fds=[tell], text=True)
        os.close(tell)
        self.tell = tell
        self.last = 0                   # exit code
        self.send(BEGIN)

    def send(self, text):
        try:
            self.bash.stdin.write(text + "\n")
            self.bash.stdin.flush()
        except BrokenPipeError:
            raise Wrong("the shell has ended")

    def printed(self, since=0):
        with open(self.printed_path, "rb") as f:
            f.seek(since)
            return f.read().decode("utf-8", "replace")

    def seen(self, since):
        """What a reader sees, whose curl says nothing of a refusal but its text."""
        return re.sub(r"curl: \(22\) The requested URL returned error: \d+\n", "", self.printed(since))

    def size(self):
        return os.path.getsize(self.printed_path)

    def step(self, text, how):
        """Runs it; returns the exit code, or None when the shell ended by it."""
        self.steps += 1
        path = os.path.join(self.own, "step-%d" % self.steps)
        with open(path, "w") as f:
            f.write(text + "\n")
        self.send("%s < /dev/null %d>&-; echo $? >&%d" % (how(path), self.tell, self.tell))
        end = time.monotonic() + LONGEST
        while True:
            said = self.done.read()
            if said:
                return int(said)
            if self.bash.poll() is not None:
                return None
            if time.monotonic() > end:
                raise Wrong("it has not ended after %d s; printed so far:\n%s" % (LONGEST, self.printed()[-2000:]))
            time.sleep(0.005)

    def run(self, block):
        if block.language == "console":
            for line, command, shown in commands_of(block):
                self.command(line, command, shown)
        elif block.program():
            with open(os.path.join(self.folder, block.program()), "w") as f:
                f.write(block.text + "\n")
            os.chmod(f.name, 0o755)
        else:
            self.script(block)

    def script(self, block):
        before = self.size()
        code = self.step(block.text, lambda path: SH % (self.failed_path, path))
        if code != 0:
            why = "exit code %s" % code
            if os.path.exists(self.failed_path):
                with open(self.failed_path) as f:
                    line, code, command = f.read().split("\n")[0].split(" ", 2)
                why = "line %d: exit code %s of: %s" % (block.line + int(line) - 1, code, command)
            raise Wrong("%s\nit printed:\n%s" % (why, self.printed(before)))

    def command(self, line, text, shown):
        end = time.monotonic() + SOON
        while True:
            before = self.size()
            code = self.step(text, lambda path: CONSOLE % (self.last, path))
            if code is None:
                raise Wrong("line %d: the shell ended by: %s\nit printed:\n%s" % (line, text, self.printed(before)))
            # What runs in the background may still have to print, now that the command has told it something.
            while code == 0 or shown:
                if matches(shown, self.seen(before)):
                    self.last = code
                    return
                if ASKS.match(text) or time.monotonic() > end:
                    break
                time.sleep(0.02)
            if not ASKS.match(text) or time.monotonic() > end:
                break
            time.sleep(0.1)
        raise Wrong("line %d: %s\nexit code %d; the page shows:\n%s\nit printed:\n%s" %
                    (line, text, code, "\n".join(shown), self.seen(before)))

    def finish(self):
        """After the last block."""
        code = self.step(UNSEEN, lambda path: CONSOLE % (self.last, path))
        if code:
            raise Wrong("a command in the background ended with exit code %d, and nothing waits for it" % code)

    def end(self):
        if self.bash.poll() is None:
            self.bash.kill()
        self.bash.wait()
