#!/usr/bin/env python3
"""http-service.py FILE PORT: PUT and GET of values; a PUT has its token in the header Fence."""
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE IF NOT EXISTS items (path TEXT PRIMARY KEY, value BLOB, token INTEGER)")


class Service(BaseHTTPRequestHandler):
    def do_PUT(self):
        value = self.rfile.read(int(self.headers["Content-Length"]))
        with db:  # the token is kept with the value, in one transaction
            written = db.execute("INSERT INTO items VALUES (?, ?, ?) ON CONFLICT (path) DO UPDATE SET value = excluded.value, "
                                 "token = excluded.token WHERE token <= excluded.token",
                                 (self.path, value, int(self.headers["Fence"]))).rowcount
        self.answer(204 if written else 409, b"")

    def do_GET(self):
        found = db.execute("SELECT value FROM items WHERE path = ?", (self.path,)).fetchone()
        self.answer(200 if found else 404, found[0] if found else b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


HTTPServer(("127.0.0.1", int(sys.argv[2])), Service).serve_forever()
