#!/usr/bin/env python3
"""kubernetes-write.py OBJECT VALUE: OBJECT is a path such as /api/v1/namespaces/prod/configmaps/settings.

The token is an annotation. Kubernetes cannot compare tokens: the writer does, and with resourceVersion in the
patch the API server rejects it (409) if the object has changed since.
"""
import json
import os
import sys
import urllib.request

FENCE = "belay/fence"


def call(method, body=None):
    request = urllib.request.Request(os.environ["KUBE_URL"] + sys.argv[1], body and json.dumps(body).encode(), {
        "Authorization": "Bearer " + os.environ["KUBE_TOKEN"], "Content-Type": "application/merge-patch+json"}, method=method)
    return json.load(urllib.request.urlopen(request))


now, token = call("GET")["metadata"], os.environ["BELAY_TOKEN"]
if int(now.get("annotations", {}).get(FENCE, 0)) > int(token):
    sys.exit(f"token {token} is too old")
call("PATCH", {"metadata": {"resourceVersion": now["resourceVersion"], "annotations": {FENCE: token}},
               "data": {"release": sys.argv[2]}})
