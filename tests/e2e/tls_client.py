"""A client of TLS that offers just one version, also those that are long out of use, and shows what it offered."""
import socket, ssl, warnings
from coordtest import SLOW, STANDSTILL, check

OLD = ("TLSv1", "TLSv1.1")
CODES = {"TLSv1": b"\x03\x01", "TLSv1.1": b"\x03\x02", "TLSv1.2": b"\x03\x03", "TLSv1.3": b"\x03\x04"}
VERSIONS = {"TLSv1": ssl.TLSVersion.TLSv1, "TLSv1.1": ssl.TLSVersion.TLSv1_1, "TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context_of(version, pair=None, alpn=None):
    """It trusts everybody, and would take any cipher."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")               # OpenSSL offers no TLS 1.0 and 1.1 otherwise
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.minimum_version = context.maximum_version = VERSIONS[version]
    if pair:
        context.load_cert_chain(*pair)
    if alpn:
        context.set_alpn_protocols([alpn])
    return context


def offered(hello):
    """The one version of a client's hello: that of the extension supported_versions (43), if there is one, else its own."""
    at = 11 + 32
    at += 1 + hello[at]                                  # the session
    at += 2 + int.from_bytes(hello[at:at + 2], "big")    # the ciphers
    at += 1 + hello[at] + 2                              # the compressions, the size of the extensions
    while at < len(hello):
        kind, size = int.from_bytes(hello[at:at + 2], "big"), int.from_bytes(hello[at + 2:at + 4], "big")
        if kind == 43:
            check(size == 3, "it offers one version: %r" % hello[at:at + 4 + size])
            return hello[at + 5:at + 7]
        at += 4 + size
    return hello[9:11]


def shaken(ip, port, version, **more):
    """The version of a handshake that succeeds, up to the server's first byte of data or its silence; None: it is refused. `version` is what is really
    offered."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls, first = context_of(version, **more).wrap_bio(incoming, outgoing), True
    with socket.create_connection((ip, port), timeout=20 * SLOW + STANDSTILL) as s:
        while True:
            try:
                tls.do_handshake()
                s.sendall(outgoing.read())
                return tls.version()
            except ssl.SSLWantReadError:
                data = outgoing.read()
            except ssl.SSLError as e:
                check("alert" in str(e).lower() or "EOF" in str(e) or "version" in str(e).lower(), "%s: %r" % (version, e))
                return None
            check(not first or offered(data) == CODES[version], "%s is offered: %r" % (version, data))
            first = False
            try:
                s.sendall(data)
                data = s.recv(65536)
            except ConnectionError:
                return None
            incoming.write(data) if data else incoming.write_eof()


def only_new_versions(ip, port, taken=("TLSv1.2", "TLSv1.3"), **more):
    """The same client succeeds with each version that is taken, and with no other one."""
    for version in VERSIONS:
        got = shaken(ip, port, version, **more)
        check(got == (version if version in taken else None), "%s at port %d: %s" % (version, port, got))
