"""A client of the server that knows nothing but its /openapi.json: paths, parameters, bodies, answers."""

import json
import re

METHODS = {"x-lock": "LOCK", "x-unlock": "UNLOCK"}  # OpenAPI does not know them


class Operation:
    """One method of one path in the document."""

    def __init__(self, document, path, method, said):
        self.document = document
        self.path = path
        self.method = METHODS.get(method, method.upper())
        self.said = said

    def __repr__(self):
        return f"{self.method} {self.path}"

    @property
    def role(self):
        return self.said["x-belay-role"] if self.said["security"] else None

    def has(self, status):
        return str(status) in self.said["responses"]

    def statuses(self):
        return {int(status) for status in self.said["responses"]}

    def is_stream(self):
        return "text/event-stream" in self.said["responses"]["200"]["content"]

    def takes(self, name):
        """Whether it has such a parameter in its query."""
        return any(p["name"] == name and p["in"] == "query" for p in self.said["parameters"])

    def schema(self):
        """Of the body, or None."""
        body = self.said.get("requestBody")
        schema = body and body["content"]["application/json"]["schema"]
        if schema and "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].removeprefix("#/components/schemas/")]
        return schema

    def fields(self):
        return (self.schema() or {}).get("properties", {})

    def url(self, names, query):
        """The path with its names filled in, and what of `query` it takes."""
        path = re.sub(r"\{(\w+)\}", lambda m: str(names[m.group(1)]), self.path)
        text = "&".join(f"{name}={value}" for name, value in query.items())
        return path + (f"?{text}" if text else "")

    def body(self, known):
        """The required fields, by type where the value is open, and all known accepted ones."""
        schema = self.schema()
        if schema is None:
            return None
        body = {name: self.example(schema["properties"][name]) for name in schema.get("required", [])}
        return {**body, **{name: value for name, value in known.items() if name in schema.get("properties", {})}}

    @staticmethod
    def example(schema):
        if "enum" in schema:
            return schema["enum"][0]
        kind = schema.get("type", "string")
        kind = kind if isinstance(kind, str) else kind[0]
        return {"string": "x", "integer": schema.get("minimum", 1), "number": 1, "boolean": False, "array": [],
                "object": {}, "null": None}[kind]


class Client:
    """Sends what the document says, and keeps which status came of which operation."""

    def __init__(self, server):
        self.server = server
        self.document = server.call("GET", "/openapi.json", check=False).json()
        self.operations = [Operation(self.document, path, method, said)
                           for path, methods in self.document["paths"].items() for method, said in methods.items()]
        self.seen = set()

    def documented(self):
        return {(o.method, o.path, status) for o in self.operations for status in o.statuses()}

    def has_seen(self, operation, status):
        return (operation.method, operation.path, status) in self.seen

    def send(self, operation, names=None, query=None, body=None, headers=None, token="secret-admin"):
        """One request; its answer is compared with the document by Server.call()."""
        url = operation.url(names or {}, query or {})
        token = token if operation.role else None
        if operation.is_stream():
            status = self.open_stream(url, token, headers)
        else:
            status = self.server.call(operation.method, url, body, token=token, headers=headers).status
        self.seen.add((operation.method, operation.path, status))
        return status

    def open_stream(self, url, token, headers):
        connection = self.server.connect()
        connection.request("GET", url, headers={**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})})
        status = connection.getresponse().status
        connection.close()
        return status

    def announce(self, operation, names, size, token="secret-admin"):
        """The head of a request with a large body, of which nothing is sent: it is refused before."""
        with self.server.raw() as connection:
            head = [f"{operation.method} {operation.url(names, {})} HTTP/1.1", "Host: localhost", f"Content-Length: {size}",
                    f"Authorization: Bearer {token}", "Connection: close", "", ""]
            connection.sendall("\r\n".join(head).encode())
            data = b""
            while chunk := connection.recv(65536):
                data += chunk
        answer, _, body = data.partition(b"\r\n\r\n")
        status = int(answer.split()[1])
        assert json.loads(body)["error"]["code"], body
        self.seen.add((operation.method, operation.path, status))
        return status
