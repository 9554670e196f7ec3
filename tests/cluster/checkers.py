"""What a history has to obey. `python3 checkers.py` checks that the checkers bite."""

NEVER = float("inf")


class Op:
    """One operation on a register. kind: 'write' (value), 'cas' (expected -> value), 'read' (value).
    outcome: 'ok', 'no' (a cas that answered false) or 'unknown'. Values are unique over the whole run; None: no key."""
    __slots__ = ("kind", "value", "expected", "begun", "ended", "outcome", "who")

    def __init__(self, kind, value, begun, ended, outcome="ok", expected=None, who=""):
        self.kind, self.value, self.expected, self.outcome, self.who = kind, value, expected, outcome, who
        self.begun, self.ended = begun, NEVER if outcome == "unknown" else ended

    def __repr__(self):
        what = {"write": "write %s" % self.value, "read": "read %s" % self.value, "cas": "cas %s to %s" % (self.expected, self.value)}[self.kind]
        return "%.4f..%.4f %s %s: %s" % (self.begun, self.ended, self.who, what, self.outcome)


def _apply(op, state):
    """(possible, new state)."""
    if op.kind == "read":
        return state == op.value, state
    if op.kind == "write":
        return True, op.value
    if op.outcome == "ok":
        return state == op.expected, op.value
    if op.outcome == "no":
        return state != op.expected, state
    return True, op.value if state == op.expected else state


class TooHard(Exception):
    pass


def linearizable(ops, limit=400000):
    """None, or the operation at which no order is possible any more. Just-in-time linearization with memoisation (after
    Wing & Gong, and Lowe): walks calls and returns; a configuration is (open operations already done, state)."""
    # An unknown write that nobody saw and that stays open can only matter where a cas said no; all others are dropped.
    seen = {op.value for op in ops if op.kind == "read"} | {op.expected for op in ops if op.kind == "cas"}
    has_no = any(op.outcome == "no" for op in ops)
    ops = [op for op in ops if has_no or op.outcome != "unknown" or op.value in seen]
    events = []
    for i, op in enumerate(ops):
        events.append((op.begun, 0, i))
        if op.ended != NEVER:
            events.append((op.ended, 1, i))
    events.sort()                       # a call before a return at the same moment: they overlap
    configs, pending, steps = {(frozenset(), None)}, set(), 0
    for _, is_return, i in events:
        if not is_return:
            pending.add(i)
            continue
        result, visited, stack = set(), set(configs), list(configs)
        while stack:
            done, state = stack.pop()
            steps += 1
            if steps > limit:
                raise TooHard()
            if i in done:
                result.add((done - {i}, state))
                continue
            for k in pending:
                if k in done:
                    continue
                possible, then = _apply(ops[k], state)
                if not possible:
                    continue
                config = (done | {k}, then)
                if config not in visited:
                    visited.add(config)
                    stack.append(config)
        if not result:
            return ops[i]
        configs = result
        pending.discard(i)
    return None


def check_registers(histories, problems):
    """histories: key -> [Op]. Returns how many were checked, how many were too hard."""
    hard = 0
    for key, ops in histories.items():
        try:
            bad = linearizable(ops)
        except TooHard:
            hard += 1
            continue
        if bad:
            near = sorted((op for op in ops if op.begun <= bad.ended and op.ended >= bad.begun - 1), key=lambda op: op.begun)
            problems.append("not linearizable: key %s at [%r]; around it:\n    %s" % (key, bad, "\n    ".join(map(repr, near[-40:]))))
    return len(histories), hard


def check_tokens(observations, problems):
    """observations: (key, session, LockIndex, ModifyIndex) as read by anybody. One token has one holder, and tokens grow."""
    owner, by_key = {}, {}
    for key, session, lock_index, modify in observations:
        if session:
            first = owner.setdefault((key, lock_index), session)
            if first != session:
                problems.append("two holders of %s at token %d: %s and %s" % (key, lock_index, first, session))
        by_key.setdefault(key, set()).add((modify, lock_index))
    for key, pairs in by_key.items():
        last = 0
        for modify, lock_index in sorted(pairs):
            if lock_index < last:
                problems.append("token of %s went back from %d to %d at index %d" % (key, last, lock_index, modify))
            last = max(last, lock_index)


def check_exclusive(holds, problems):
    """holds: key -> [(session, surely from, surely until, token)]: acquired for certain, not yet released, session alive all the time."""
    for key, spans in holds.items():
        spans = sorted(spans, key=lambda s: s[1])
        for a, b in zip(spans, spans[1:]):
            if b[1] < a[2] and a[0] != b[0]:
                problems.append("%s was held twice at the same time: %r and %r" % (key, a, b))
            if b[1] >= a[2] and b[3] <= a[3]:
                problems.append("%s: a later holder has no greater token: %r then %r" % (key, a, b))


def check_rising(samples, what, problems):
    """samples: (invoked, answered, index). What was invoked after another was answered shows at least its index."""
    by_end = sorted(samples, key=lambda s: s[1])
    best, k = 0, 0
    for begun, ended, index in sorted(samples):
        while k < len(by_end) and by_end[k][1] < begun:
            best = max(best, by_end[k][2])
            k += 1
        if index < best:
            problems.append("%s went back to %d at %.3f; %d had been seen before" % (what, index, begun, best))
            return


def check_kept(acknowledged, refused, present, problems):
    """Keys written once each: acknowledged ones are there, refused ones are not."""
    lost = [key for key in acknowledged if key not in present]
    if lost:
        problems.append("%d acknowledged writes are lost, e.g. %s" % (len(lost), ", ".join(sorted(lost)[:5])))
    ghosts = [key for key in refused if key in present]
    if ghosts:
        problems.append("%d refused writes are there, e.g. %s" % (len(ghosts), ", ".join(sorted(ghosts)[:5])))


# -- do they bite? -------------------------------------------------------------------------------------------------------
def self_test():
    w = lambda v, a, b, o="ok": Op("write", v, a, b, o)
    r = lambda v, a, b: Op("read", v, a, b)
    c = lambda e, v, a, b, o="ok": Op("cas", v, a, b, o, expected=e)
    good = [
        [w(1, 0, 1), r(1, 2, 3)],
        [w(1, 0, 5), r(None, 1, 2), r(1, 3, 4)],
        [w(1, 0, 1), w(2, 2, 3, "unknown"), r(1, 4, 5), r(2, 6, 7)],
        [w(1, 0, 1), c(1, 2, 2, 3), c(1, 3, 4, 5, "no"), r(2, 6, 7)],
        [w(1, 0, 1), w(2, 1.5, 2, "unknown"), c(1, 3, 4, 5, "no")],
        [c(None, 1, 0, 9), c(None, 2, 0, 9, "no"), r(1, 3, 4)],
    ]
    bad = [
        [w(1, 0, 1), r(None, 2, 3)],
        [w(1, 0, 1), w(2, 2, 3), r(1, 4, 5)],
        [w(1, 0, 9), r(1, 1, 2), r(None, 3, 4)],
        [w(1, 0, 1), w(2, 2, 3, "unknown"), r(2, 4, 5), r(1, 6, 7)],
        [w(1, 0, 1), c(1, 2, 2, 3), c(1, 3, 4, 5)],
        [w(1, 0, 1), c(1, 2, 2, 3, "no")],
        [c(None, 1, 0, 9), c(None, 2, 0, 9)],
    ]
    for h in good:
        assert linearizable(h) is None, h
    for h in bad:
        assert linearizable(h) is not None, h

    def problems(check, *args):
        found = []
        check(*args, found)
        return len(found)
    assert problems(check_tokens, [("k", "a", 1, 5), ("k", "", 1, 6), ("k", "b", 2, 7)]) == 0
    assert problems(check_tokens, [("k", "a", 1, 5), ("k", "b", 1, 7)]) == 1
    assert problems(check_tokens, [("k", "a", 2, 5), ("k", "b", 1, 7)]) == 1
    assert problems(check_exclusive, {"k": [("a", 0, 2, 1), ("b", 3, 4, 2)]}) == 0
    assert problems(check_exclusive, {"k": [("a", 0, 2, 1), ("b", 1, 4, 2)]}) == 1
    assert problems(check_exclusive, {"k": [("a", 0, 2, 2), ("b", 3, 4, 2)]}) == 1
    assert problems(check_rising, [(0, 1, 5), (0.5, 2, 4), (1.5, 3, 6)], "x") == 0
    assert problems(check_rising, [(0, 1, 5), (2, 3, 4)], "x") == 1
    assert problems(check_kept, {"a"}, {"b"}, {"a", "c"}) == 0
    assert problems(check_kept, {"a"}, {"b"}, {"b"}) == 2


if __name__ == "__main__":
    self_test()
    print("ok")
