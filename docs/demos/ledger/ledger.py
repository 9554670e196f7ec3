#!/usr/bin/env python3
"""Many writers on one account, and pauses: what a lock without fences loses, and what fences keep.

    ledger.py [--writers N] [--pauses N] [--ttl SECONDS] [--coord PROGRAM]

Each writer is a process. It takes the lock "ledger", reads the account, thinks for a moment, and writes the account with its
deposit added. Now and then one that holds the lock is stopped (SIGSTOP) for longer than its lock lives, as a machine that is
suspended, a long garbage collection or a full disk would stop it, and then goes on where it was: it has read an account
that others have changed since, and it writes.

The run is made twice: with plain writes, and with `?fence=ledger&token=N`, which count only while N is the token of the
lock's holder. An account that has less than all acknowledged deposits has lost some: two writers wrote the same balance.
Exit code 0 when fences lost nothing.
"""
import argparse, json, multiprocessing, os, random, signal, sys, time, urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from demo_agent import PROGRAM, Agent, dies_with_its_parent, play, progress, request, say

LOCK, ACCOUNT = "ledger", "ledger/account"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--writers", type=int, default=6)
    p.add_argument("--pauses", type=int, default=5, help="in each run")
    p.add_argument("--ttl", type=float, default=1.0, help="seconds that a lock lives without being renewed")
    p.add_argument("--coord", default=PROGRAM)
    return p.parse_args()


# ---- a writer -----------------------------------------------------------------------------------------------------
def write(ip, name, fenced, ttl, holding, deposits, refused, stop):
    """`holding`: who is between its read and its write, 0: nobody."""
    dies_with_its_parent()
    random.seed(name)
    while not stop.value:
        status, text = request(ip, "PUT", "/v1/lock/%s/acquire?ttl=%gs&wait=10s" % (LOCK, ttl), "writer %d" % name)
        lock = json.loads(text) if status == 200 else {"Held": False}
        if not lock["Held"]:
            if lock.get("Session"):
                request(ip, "PUT", "/v1/lock/%s/release?session=%s" % (LOCK, lock["Session"]))
            continue
        account = json.loads(request(ip, "GET", "/v1/kv/%s?raw" % ACCOUNT)[1])
        holding.value = os.getpid()
        time.sleep(0.02)
        holding.value = 0
        account["Balance"] += 1
        fence = "?" + urllib.parse.urlencode({"fence": LOCK, "token": lock["FencingToken"]}) if fenced else ""
        status, text = request(ip, "PUT", "/v1/kv/" + ACCOUNT + fence, json.dumps(account))
        if status == 200:
            with deposits.get_lock():
                deposits.value += 1                                  # the bank has told its customer that it is done
        else:
            with refused.get_lock():
                refused.value += 1
        request(ip, "PUT", "/v1/lock/%s/release?token=%d" % (LOCK, lock["FencingToken"]))


# ---- a run --------------------------------------------------------------------------------------------------------
def balance_of(ip):
    return json.loads(request(ip, "GET", "/v1/kv/%s?raw" % ACCOUNT)[1])["Balance"]


def pause(ip, holding):
    """Stops whoever is between its read and its write, until its lock has ended and others have made deposits."""
    while True:
        pid = holding.value
        if not pid:
            time.sleep(0.001)
            continue
        os.kill(pid, signal.SIGSTOP)
        if holding.value == pid:
            break
        os.kill(pid, signal.SIGCONT)                                 # it was gone on already
    before = balance_of(ip)
    while balance_of(ip) < before + 5:
        time.sleep(0.05)
    holding.value = 0
    os.kill(pid, signal.SIGCONT)


def run(args, fenced):
    name = "with fences:" if fenced else "without fences:"
    agent = Agent(args.coord, session_ttl_min="1s")
    assert request(agent.ip, "PUT", "/v1/kv/" + ACCOUNT, json.dumps({"Balance": 0}))[0] == 200
    deposits, refused = multiprocessing.Value("q", 0), multiprocessing.Value("q", 0)
    holding, stop = multiprocessing.Value("q", 0), multiprocessing.Value("b", 0)
    writers = [multiprocessing.Process(target=write, args=(agent.ip, i, fenced, args.ttl, holding, deposits, refused, stop))
               for i in range(args.writers)]
    for writer in writers:
        writer.start()
    for i in range(args.pauses):
        progress("%s pause %d of %d" % (name, i + 1, args.pauses))
        pause(agent.ip, holding)
    stop.value = 1
    for writer in writers:
        writer.join()
    balance = balance_of(agent.ip)
    agent.end()
    lost = deposits.value - balance
    say("%-15s %4d deposits acknowledged, balance %4d, lost %4d; %d writes refused; %d pauses" %
        (name, deposits.value, balance, lost, refused.value, args.pauses))
    return lost


def main():
    args = arguments()
    without, with_fences = run(args, False), run(args, True)
    if with_fences:
        say("fences have lost %d deposits" % with_fences)
    if not without:
        say("no pause has provoked a lost deposit: try more --pauses")
    return 0 if not with_fences and without else 1


if __name__ == "__main__":
    play(main)
