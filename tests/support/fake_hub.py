"""A Hub of one process: a real HTTP server with the endpoints that huggingface_hub 2.x (and tt-model) ask.

Repositories are in memory: branches and tags name commits, a commit is its files. ``faults`` make
chosen requests fail, ``hooks`` run before chosen requests, ``requests`` records what was asked.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

LFS_FROM = 1 << 20
"""Bytes from which a file is stored as a large one."""

_ID = r"(?P<repo>[^/]+/[^/]+)"
_ROUTES = [
    ("GET", r"/api/whoami-v2", "whoami"),
    ("POST", r"/api/repos/create", "create"),
    ("POST", r"/api/validate-yaml", "validate_yaml"),
    ("GET", r"/api/models", "search"),
    ("GET", rf"/api/models/{_ID}", "info"),
    ("GET", rf"/api/models/{_ID}/revision/(?P<revision>[^/]+)", "info"),
    ("GET", rf"/api/models/{_ID}/tree/(?P<revision>[^/]+)", "tree"),
    ("GET", rf"/api/models/{_ID}/commits/(?P<revision>[^/]+)", "commits"),
    ("GET", rf"/api/models/{_ID}/refs", "refs"),
    ("POST", rf"/api/models/{_ID}/branch/(?P<revision>[^/]+)", "branch"),
    ("POST", rf"/api/models/{_ID}/preupload/(?P<revision>[^/]+)", "preupload"),
    ("POST", rf"/api/models/{_ID}/commit/(?P<revision>[^/]+)", "commit"),
    ("PUT", rf"/api/models/{_ID}/settings", "settings"),
    ("POST", rf"/{_ID}\.git/info/lfs/objects/batch", "lfs_batch"),
    ("PUT", r"/lfs/(?P<oid>[0-9a-f]{64})", "lfs_put"),
    ("HEAD", rf"/{_ID}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
    ("GET", rf"/{_ID}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
]


@dataclass
class Repo:
    private: bool = False
    gated: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes | str], branch="main", message="", parent=None) -> str:
        files = {path: data.encode() if isinstance(data, str) else data for path, data in files.items()}
        parent = parent or self.branches.get(branch)
        text = json.dumps([parent, message, len(self.commits), sorted(files)]).encode()
        sha = hashlib.sha1(text).hexdigest()
        self.commits[sha], self.parents[sha], self.messages[sha] = files, parent, message
        self.branches[branch] = sha
        return sha

    def resolve(self, revision: str) -> str | None:
        """A full sha of a branch, tag or full sha: as the Hub, it knows no short ones."""
        found = self.branches.get(revision) or self.tags.get(revision)
        return found or (revision if revision in self.commits else None)

    def head(self, branch="main") -> dict[str, bytes]:
        return self.commits[self.branches[branch]]


class FakeHub:
    """``with FakeHub() as hub``; its address is ``hub.url``."""

    def __init__(self, tokens=("hf_test",)) -> None:
        self.repos: dict[str, Repo] = {}
        self.tokens = set(tokens)
        self.large: dict[str, bytes] = {}
        self.faults: dict[str, dict] = {}
        """By a pattern of "METHOD path": ``code`` to answer with, ``truncate`` to so many bytes, ``hang`` seconds,
        ``drop`` the connection, ``body`` to send instead; ``times`` (1)."""
        self.hooks: dict[str, object] = {}
        """By a pattern of "METHOD path": called once, before the request is answered."""
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.lock = threading.RLock()

    def __enter__(self) -> FakeHub:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def add(self, name: str, files: dict[str, bytes | str] | None = None, **options) -> Repo:
        repo = self.repos[name] = Repo(**options)
        if files is not None:
            repo.commit(files)
        return repo

    def tamper(self, name: str, path: str, data: bytes) -> None:
        """Serve other bytes for a file than those its commit lists."""
        self.faults[rf"GET /{name}/resolve/.*/{re.escape(path)}"] = {"body": data, "times": 99}

    def asked(self, pattern: str) -> list[str]:
        return [request for request in self.requests if re.search(pattern, request)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes
    wbufsize = -1
    hub: FakeHub

    def log_message(self, *_):
        pass

    def handle(self):
        with contextlib.suppress(ConnectionError, TimeoutError):
            super().handle()

    def do_GET(self):
        self._dispatch()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815

    # --- answering

    def _dispatch(self):
        parts = urlsplit(self.path)
        self.query = parse_qs(parts.query)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(parts.path)
        with self.hub.lock:
            self.hub.requests.append(f"{self.command} {path}")
            self.hub.headers.append(dict(self.headers))
            fault = self._fault(f"{self.command} {path}")
        self._run_hook(f"{self.command} {path}")  # may ask this Hub itself
        if fault and "hang" in fault:
            time.sleep(fault["hang"])
        if fault and fault.get("drop"):
            self.close_connection = True
            return None
        with self.hub.lock:
            if fault and "code" in fault:
                return self._send(fault["code"], fault.get("body", b"{}"), fault.get("headers"))
            for method, pattern, name in _ROUTES:
                # Slashes in a revision arrive escaped: matched before, unescaped after.
                match = re.fullmatch(pattern, parts.path)
                if method == self.command and match:
                    groups = {key: unquote(value) for key, value in match.groupdict().items()}
                    return self._answer(name, groups, fault or {})
        return self._error(404, "EntryNotFound")

    def _answer(self, name, groups, fault):
        repo = None
        if "repo" in groups:
            repo = self.hub.repos.get(groups["repo"])
            if not self._may_see(groups["repo"], repo):
                return None
        facts = {**groups, "name": groups.get("repo"), "repo": repo, "fault": fault}
        return getattr(self, "_do_" + name)(**facts)

    def _may_see(self, name, repo) -> bool:
        token = self._token()
        if token is not None and token not in self.hub.tokens:
            self._send(401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"})
        elif repo is None or (repo.private and token is None):
            self._error(404 if token else 401, "RepoNotFound")
        elif repo.gated and token != "hf_granted" and "/resolve/" in self.path:
            self._error(401 if token is None else 403, "GatedRepo")
        else:
            return True
        return False

    def _token(self):
        return self.headers.get("Authorization", "").removeprefix("Bearer ") or None

    def _fault(self, request):
        for pattern, fault in self.hub.faults.items():
            if fault.setdefault("times", 1) > 0 and re.fullmatch(pattern, request):
                fault["times"] -= 1
                return fault
        return None

    def _run_hook(self, request):
        for pattern in [pattern for pattern in self.hub.hooks if re.fullmatch(pattern, request)]:
            self.hub.hooks.pop(pattern)()

    def _send(self, code, body=b"", headers=None, truncate=None):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:truncate])
        if truncate is not None:
            self.wfile.flush()
            self.close_connection = True

    def _error(self, code, kind):
        self._send(code, {"error": kind}, {"X-Error-Code": kind, "X-Error-Message": kind})

    def _commit_of(self, repo, revision):
        sha = repo.resolve(revision)
        if sha is None:
            self._error(404, "RevisionNotFound")
        return sha

    # --- endpoints

    def _do_whoami(self, **_):
        if self._token() in self.hub.tokens:
            self._send(200, {"name": "tester", "type": "user", "orgs": [], "auth": {"accessToken": {"role": "write"}}})
        else:
            self._send(401, {"error": "Invalid token"})

    def _do_create(self, **_):
        if self._token() not in self.hub.tokens:
            self._send(401, {"error": "Unauthorized"})
            return
        asked = json.loads(self.body)
        name = f"{asked.get('organization') or 'tester'}/{asked['name']}"
        if name in self.hub.repos:
            self._send(409, {"error": "exists", "url": f"{self.hub.url}/{name}"})
            return
        private = bool(asked.get("private")) or asked.get("visibility") == "private"
        repo = self.hub.add(name, {".gitattributes": "*.bin filter=lfs\n"}, private=private)
        self._send(200, {"url": f"{self.hub.url}/{name}", "name": name, "id": name, "private": repo.private})

    def _do_validate_yaml(self, **_):
        self._send(200, {"errors": [], "warnings": []})

    def _do_search(self, **_):
        self._send(
            200, [self._described(name, repo, None) for name, repo in self.hub.repos.items() if not repo.private]
        )

    def _do_info(self, repo, name, revision="main", **_):
        if sha := self._commit_of(repo, revision):
            self._send(200, self._described(name, repo, sha))

    def _described(self, name, repo, sha):
        sha = sha or repo.branches.get("main")
        files = repo.commits.get(sha, {})
        return {
            "_id": "0" * 24, "id": name, "modelId": name, "author": name.split("/")[0], "sha": sha, "tags": [],
            "private": repo.private, "gated": "manual" if repo.gated else False, "disabled": False, "downloads": 0,
            "likes": 0, "lastModified": "2024-01-01T00:00:00.000Z", "createdAt": "2024-01-01T00:00:00.000Z",
            "siblings": [{"rfilename": path} for path in sorted(files)],
        }  # fmt: skip

    def _do_tree(self, repo, revision, **_):
        if sha := self._commit_of(repo, revision):
            self._send(200, [_entry(path, data) for path, data in sorted(repo.commits[sha].items())])

    def _do_commits(self, repo, revision, **_):
        sha, found = self._commit_of(repo, revision), []
        if sha is None:
            return
        while sha:
            found.append({
                "id": sha, "title": repo.messages[sha], "message": "", "authors": [{"user": "tester"}],
                "date": "2024-01-01T00:00:00.000Z",
            })  # fmt: skip
            sha = repo.parents[sha]
        self._send(200, found)

    def _do_refs(self, repo, **_):
        def listed(kind, names):
            return [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": sha} for name, sha in names.items()]

        self._send(200, {
            "branches": listed("heads", repo.branches), "tags": listed("tags", repo.tags), "converts": [],
        })  # fmt: skip

    def _do_branch(self, repo, revision, **_):
        start = json.loads(self.body or b"{}").get("startingPoint") or "main"
        if revision in repo.branches:
            self._send(409, {"error": "exists"})
        elif sha := self._commit_of(repo, start):
            repo.branches[revision] = sha
            self._send(200, {})

    def _do_preupload(self, repo, revision, **_):
        if not self._may_write() or not (sha := self._commit_of(repo, revision)):
            return
        present = repo.commits[sha]
        answer = []
        for one in json.loads(self.body)["files"]:
            mode = "lfs" if one["size"] >= LFS_FROM else "regular"
            known = _entry(one["path"], present[one["path"]])["oid"] if one["path"] in present else None
            answer.append({"path": one["path"], "uploadMode": mode, "shouldIgnore": False, "oid": known})
        self._send(200, {"files": answer})

    def _do_lfs_batch(self, **_):
        objects = [
            {**{key: one[key] for key in ("oid", "size")}, "authenticated": True}
            | {"actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}}
            for one in json.loads(self.body)["objects"]
        ]
        self._send(200, {"transfer": "basic", "objects": objects})

    def _do_lfs_put(self, oid, **_):
        self.hub.large[oid] = self.body
        self._send(200)

    def _do_settings(self, repo, **_):
        asked = json.loads(self.body)
        repo.private = asked.get("visibility") == "private" if "visibility" in asked else bool(asked.get("private"))
        self._send(200, {})

    def _may_write(self):
        if self._token() in self.hub.tokens and self._token() != "hf_reader":
            return True
        self._send(403, {"error": "Forbidden"}, {"X-Error-Message": "this token has no right to write"})
        return False

    def _do_commit(self, repo, name, revision, **_):
        if not self._may_write() or not (head := self._commit_of(repo, revision)):
            return
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        pull_request = self.query.get("create_pr") == ["1"]
        parent = header.get("parentCommit")
        if parent is not None and parent != head and not pull_request:
            self._send(412, {"error": "parent commit is not the head"})
            return
        files = dict(repo.commits[parent or head])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
            elif line["key"] == "deletedFile":
                files.pop(value["path"])
        branch = f"refs/pr/{1 + sum(one.startswith('refs/pr/') for one in repo.branches)}" if pull_request else revision
        sha = repo.commit(files, branch=branch, message=header["summary"], parent=parent or head)
        answer = {"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{name}/commit/{sha}"}
        if pull_request:
            answer["pullRequestUrl"] = f"{self.hub.url}/{name}/discussions/{branch.rpartition('/')[2]}"
        self._send(200, answer)

    def _do_resolve(self, repo, revision, path, fault, **_):
        sha = self._commit_of(repo, revision)
        if sha is None:
            return
        data = repo.commits[sha].get(path)
        if data is None:
            self._error(404, "EntryNotFound")
            return
        entry = _entry(path, data)
        etag = entry["lfs"]["oid"] if "lfs" in entry else entry["oid"]
        data = fault.get("body", data)
        headers = {"X-Repo-Commit": sha, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if start:
            headers["Content-Range"] = f"bytes {start[1]}-{len(data) - 1}/{len(data)}"
            data = data[int(start[1]) :]
        self._send(206 if start else 200, data, {**headers, "Content-Length": str(len(data))}, fault.get("truncate"))


def _entry(path: str, data: bytes) -> dict:
    """A file as the tree lists it, with the digests of git and of large files."""
    if len(data) < LFS_FROM:
        return {"type": "file", "path": path, "size": len(data), "oid": _blob(data)}
    oid = hashlib.sha256(data).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(data)}\n".encode()
    lfs = {"oid": oid, "size": len(data), "pointerSize": len(pointer)}
    return {"type": "file", "path": path, "size": len(data), "oid": _blob(pointer), "lfs": lfs}


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
