"""Ports for servers that tests and benchmarks start."""
import contextlib
import random
import socket


def free_port():
    """Below the range that the kernel hands out: nobody else gets it before its server, or a test that wants it closed."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
