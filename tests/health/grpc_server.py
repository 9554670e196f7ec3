#!/usr/bin/python3
"""A real gRPC server (python3-grpcio) with the standard health service, for checks to look at.

    grpc_server.py [CERTIFICATE KEY]     prints its port; ends with its standard input

Services: "" and "yes" serve, "not" does not, "unknown" says so, "slow" takes a minute, "denied" ends with a status and a message;
any other one is unknown (NOT_FOUND)."""
import sys
import threading
from concurrent import futures

import grpc

STATUS = {"": b"\x08\x01", "yes": b"\x08\x01", "not": b"\x08\x02", "unknown": b""}
ended = threading.Event()


def service_of(request):
    """HealthCheckRequest: field 1, a short string."""
    return request[2:].decode() if request[:1] == b"\x0a" else ""


def check(request, context):
    service = service_of(request)
    if service == "slow":
        ended.wait(60)
    if service == "denied":
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "no \u00e9 way\nhere")
    if service not in STATUS:
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    return STATUS[service]


def main():
    server = grpc.server(futures.ThreadPoolExecutor(8))
    handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers),))
    if len(sys.argv) == 3:
        certificate, key = (open(path, "rb").read() for path in sys.argv[1:])
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    ended.set()
    server.stop(0)


main()
