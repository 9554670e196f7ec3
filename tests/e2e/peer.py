"""A made-up process that speaks to the port of servers (8300), by TLS with a pair of certificate and key: it says what it likes."""
import os, random, socket, ssl, struct
from coordtest import SLOW, STANDSTILL

HELLO, RAFT, WRITES, RESULTS, FOUND, PING, AUDIT, COPY_ASK, REFUSED, ECHO, ECHO_ANSWER = 1, 2, 3, 4, 9, 11, 16, 17, 32, 33, 34
RENEW_LEASE, RENEW_ANSWER, CLUSTER, CLUSTER_ANSWER, CHANGE, CHANGE_ANSWER, BACKUP, BACKUP_PIECE = 7, 8, 12, 13, 14, 15, 36, 37
ENROL_REQUEST, ENROL_ANSWER = 1, 2
MEMBER, JOIN, RENEW, SECURE = "coord/1", "coord-join/1", "coord-renew/1", "coord-secure/1"


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def message(**fields):
    """In the encoding of protobuf: f4="text", f15=1, f2=b"bytes"."""
    out = b""
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def fields(data):
    """The other way round: {number: last value}."""
    out, at = {}, 0

    def read():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
    while at < len(data):
        tag = read()
        if tag & 7 == 0:
            out[tag >> 3] = read()
        else:
            size = read() if tag & 7 == 2 else {1: 8, 5: 4}[tag & 7]
            out[tag >> 3], at = data[at:at + size], at + size
    return out


class Peer:
    """The connection; OSError or None where the other side ends it."""

    def __init__(self, ip, pair=None, alpn=MEMBER, here=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([alpn])
        if pair:
            context.load_cert_chain(*pair)
        self.here = here or "127.%d.%d.%d" % (random.randint(200, 250), random.randint(1, 254), random.randint(2, 254))
        plain = socket.create_connection((ip, 8300), timeout=20 * SLOW + STANDSTILL, source_address=(self.here, 0))
        self.tls = context.wrap_socket(plain)

    def send(self, kind, payload=b""):
        self.tls.sendall(struct.pack("<IB", len(payload), kind) + payload)
        return self

    def hello(self, node, agent=True, **more):
        return self.send(HELLO, message(f1="coord-peer", f2=1, f3=1, f4="dc1", f5=random.getrandbits(62) + 1, f6="%s:8300" % self.here, f7=node,
                                        f12=1, f13=1, **({"f15": 1} if agent else {}), **more))

    def take(self, size):
        data = b""
        while len(data) < size:
            part = self.tls.recv(size - len(data))
            if not part:
                return None
            data += part
        return data

    def hear(self):
        """The next frame: (type, payload); None: the other side said goodbye."""
        head = self.take(5)
        if head is None:
            return None
        size, kind = struct.unpack("<IB", head)
        return kind, self.take(size)

    def until(self, *kinds):
        """The first frame of these kinds; the line of a refusal; None: it ended."""
        try:
            while True:
                frame = self.hear()
                if frame is None or frame[0] in kinds:
                    return frame
                if frame[0] == REFUSED:
                    return REFUSED, frame[1].decode()
        except ssl.SSLError as e:
            return None if "EOF" in str(e) else (REFUSED, str(e))
        except ConnectionError:
            return None

    def close(self):
        self.tls.close()


def pair_of(member):
    return tuple(os.path.join(member.data, "tls", name) for name in ("cert.pem", "key.pem"))
