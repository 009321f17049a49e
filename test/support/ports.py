#!/usr/bin/env python3
"""Ports for servers that tests and benchmarks start. As a program it prints one."""
import random
import socket

_reserved = []  # sockets whose names tell other processes which ports are taken, for the life of this one


def free_port():
    """Below the range from which the kernel takes ports, and no other test that runs now gets it: it stays free until its
    server starts, while that restarts, and if nothing is to listen there."""
    while True:
        port = random.randrange(20000, 32000)
        name = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                name.bind(f"\0belay-test-port-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                name.close()
                continue
        _reserved.append(name)
        return port


if __name__ == "__main__":
    print(free_port())
