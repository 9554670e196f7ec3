"""What the demos share: an agent of a demo's own, `coord agent -dev` on a loopback address where nobody else is, and an end that leaves
nothing behind."""
import ctypes, http.client, json, multiprocessing, os, random, select, shutil, signal, socket, subprocess, sys, tempfile, threading, time

PROGRAM = os.environ.get("COORD_BIN") or shutil.which("coord") or "build/coord"  # what --coord is unless it is said
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
at_end = []                                                  # called before the demo ends, however that comes


# ---- the end ------------------------------------------------------------------------------------------------------
def play(main):
    """Runs a demo and exits with what `main` returns. Ctrl-C, SIGTERM, SIGHUP, and the end of whoever reads its output, end it at once and in
    silence. Its processes and folders end with it."""
    owner = os.getpid()

    def ended(number, _):
        if os.getpid() == owner:                             # not a process that was forked
            for end in ENDS:
                signal.signal(end, signal.SIG_IGN)
            clean()
        os._exit(128 + number)
    for number in ENDS:
        if signal.getsignal(number) != signal.SIG_IGN:       # as with nohup
            signal.signal(number, ended)
    threading.Thread(target=listen, daemon=True).start()
    try:
        code = main()
    finally:
        clean()
    sys.exit(code)


def clean():
    for process in multiprocessing.active_children():        # before the agents, which they ask
        process.kill()
    while at_end:
        at_end.pop()()


def listen():
    """Waits until nobody reads what is printed any more."""
    reader = select.poll()
    reader.register(1, 0)
    if reader.poll():
        os.kill(os.getpid(), signal.SIGTERM)


def say(text):
    """Prints a line of what came of it."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        clean()
        os._exit(128 + signal.SIGPIPE)


def progress(text):
    """Prints a line of what goes on meanwhile, apart from what came of it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass


def apart():
    """For an agent: Ctrl-C is for the demo, which ends it."""
    os.setpgid(0, 0)
    dies_with_its_parent()


def dies_with_its_parent():
    """For a process that was just forked: should the demo be killed with SIGKILL, this ends too (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))


def kill(process):
    """Ends a process of subprocess, whatever it is at, and whoever waits for it."""
    try:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass                                                 # it has ended before


# ---- an agent -----------------------------------------------------------------------------------------------------
def free_address():
    while True:
        ip = "127.%d.%d.%d" % (random.randint(100, 199), random.randint(1, 254), random.randint(2, 254))
        try:
            for port in (8500, 8600, 8300):
                with socket.socket() as s:
                    s.bind((ip, port))
            return ip
        except OSError:
            continue


def request(ip, method, path, body=None):
    c = http.client.HTTPConnection(ip, 8500, timeout=60)
    try:
        c.request(method, path, body)
        answer = c.getresponse()
        return answer.status, answer.read().decode()
    finally:
        c.close()


class Agent:
    def __init__(self, program, **settings):
        self.ip, self.folder, self.process = free_address(), tempfile.mkdtemp(prefix="demo-"), None
        at_end.append(self.end)
        file = os.path.join(self.folder, "settings.json")
        with open(file, "w") as f:
            json.dump(settings, f)
        try:
            self.process = subprocess.Popen(
                [program, "agent", "-dev", "-bind=" + self.ip, "-client=" + self.ip, "-config-file=" + file], preexec_fn=apart,
                env=dict(os.environ, TMPDIR=self.folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError as e:
            sys.exit("%s cannot be started (%s): build it with ./dev build, or name it with --coord" % (program, e.strerror))
        while True:
            try:
                if json.loads(request(self.ip, "GET", "/v1/status/leader")[1]):
                    return
            except (OSError, ValueError):
                if self.process.poll() is not None:
                    sys.exit("the agent has ended")
            time.sleep(0.05)

    def end(self):
        if self.process:
            kill(self.process)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.end in at_end:
            at_end.remove(self.end)
