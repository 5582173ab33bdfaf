"""Enough of the Hub for huggingface_hub's real client, in this process: `with LocalHub() as hub: hub.url`.

Users with tokens and rights, repositories with commits, files by LFS or in the commit, and connections that drop where
a test wants them to. What it does not do: branches other than main, Xet (HF_HUB_DISABLE_XET=1), pull requests.
"""

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LFS_SUFFIXES = (".safetensors", ".bin", ".parquet", ".png")
LFS_SIZE = 1_000_000
KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}


@dataclass
class User:
    name: str
    role: str = "write"
    organisations: tuple[str, ...] = ()


@dataclass
class Repo:
    private: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    lfs: set[str] = field(default_factory=set)
    commits: list[tuple[str, list[str]]] = field(default_factory=list)  # message, paths
    locked: bool = False  # nobody may write

    @property
    def sha(self) -> str:
        return hashlib.sha1(json.dumps([len(self.commits), sorted(self.files)]).encode()).hexdigest()


@dataclass
class Fault:
    """The next `times` requests that match are dropped in the middle of the body."""

    method: str
    pattern: str
    times: int = 1


class LocalHub:
    """The server; its state is there to be looked at and prepared."""

    def __init__(self, **users: User):
        self.users = users  # by token
        self.repos: dict[tuple[str, str], Repo] = {}
        self.blobs: dict[str, bytes] = {}  # of LFS, by their SHA-256
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, int]] = []  # method, path, status; 0 if dropped
        self.bodies: list[bytes] = []
        self.lock = threading.RLock()

    def __enter__(self):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def model(self, repo: str) -> Repo:
        return self.repos["model", repo]

    def sent(self, method: str, pattern: str) -> list[int]:
        """Statuses of the requests that match."""
        return [status for m, path, status in self.requests if m == method and re.search(pattern, path)]

    def fault(self, method: str, path: str) -> bool:
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and re.search(fault.pattern, path):
                    fault.times -= 1
                    return True
        return False


class _Refused(Exception):
    def __init__(self, status: int, error: str, code: str = ""):
        self.status, self.error, self.code = status, error, code


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"
    ROUTES = (
        ("POST", r"/api/validate-yaml", "validate_yaml"),
        ("GET", r"/api/whoami-v2", "whoami"),
        ("POST", r"/api/repos/create", "create"),
        ("GET", r"/api/(models|datasets|spaces)/([^/]+/[^/]+)/auth-check(?:/(write))?", "auth_check"),
        ("POST", r"/api/(models|datasets|spaces)/([^/]+/[^/]+)/preupload/main", "preupload"),
        ("POST", r"/api/(models|datasets|spaces)/([^/]+/[^/]+)/commit/main", "commit"),
        ("GET", r"/api/(models|datasets|spaces)/([^/]+/[^/]+)/tree/[^/]+(?:/(.+))?", "tree"),
        ("GET", r"/api/(models|datasets|spaces)/([^/]+/[^/]+)(?:/revision/[^/]+)?", "info"),
        ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", "lfs_batch"),
        ("PUT", r"/lfs/([0-9a-f]{64})", "lfs_put"),
        ("GET", r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", "resolve"),
    )

    def log_message(self, *_):
        pass

    def serve(self):
        path = unquote(urlsplit(self.path).path)
        if self.hub.fault(self.command, path):
            self.rfile.read(int(self.headers.get("Content-Length") or 0) // 2)
            return self.drop(path)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.bodies.append(self.body)
        try:
            with self.hub.lock:
                status, content, headers = self.route(path)
        except _Refused as refused:
            status, content, headers = refused.status, {"error": refused.error}, {"X-Error-Message": refused.error}
            headers |= {"X-Error-Code": refused.code} if refused.code else {}
        self.answer(path, status, content, headers)

    do_GET = do_HEAD = do_POST = do_PUT = serve

    def drop(self, path: str) -> None:
        self.hub.requests.append((self.command, path, 0))
        self.close_connection = True

    def answer(self, path: str, status: int, content, headers: dict | None = None) -> None:
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.hub.requests.append((self.command, path, status))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def route(self, path: str):
        method = "GET" if self.command == "HEAD" else self.command
        for verb, pattern, name in self.ROUTES:
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                result = getattr(self, name)(*found.groups())
                return result if isinstance(result, tuple) else (200, result, {})
        raise _Refused(404, f"the test's Hub has no {self.command} {path}", "EntryNotFound")

    # Who asks, and for what

    @property
    def user(self) -> User | None:
        return self.hub.users.get((self.headers.get("Authorization") or "").removeprefix("Bearer "))

    def logged_in(self) -> User:
        if self.user is None:
            raise _Refused(401, "Invalid username or password.")
        return self.user

    def owns(self, repo: str) -> bool:
        user, owner = self.logged_in(), repo.split("/")[0]
        return owner == user.name or owner in user.organisations

    def find(self, kind: str, repo: str, write: bool = False) -> Repo:
        found = self.hub.repos.get((KINDS.get(kind, kind), repo))
        if found is None or (found.private and not (self.user and self.owns(repo))):
            raise _Refused(404 if self.user else 401, "Repository not found", "RepoNotFound")
        if write and (not self.owns(repo) or self.logged_in().role != "write" or found.locked):
            raise _Refused(403, "Forbidden: you need the right to write.")
        return found

    # Routes

    def validate_yaml(self):
        if re.search(r"^datasets:\n- /", json.loads(self.body)["content"], re.MULTILINE):
            raise _Refused(400, "a folder is no name of a dataset")
        return {"errors": [], "warnings": []}

    def whoami(self):
        user = self.logged_in()
        organisations = [{"name": name} for name in user.organisations]
        return {"name": user.name, "type": "user", "orgs": organisations, "auth": {"accessToken": {"role": user.role}}}

    def create(self):
        wanted = json.loads(self.body)
        repo = f"{wanted.get('organization') or self.logged_in().name}/{wanted['name']}"
        key = (wanted.get("type") or "model", repo)
        if not self.owns(repo) or self.logged_in().role != "write":
            raise _Refused(403, "You don't have the rights to create a model under this namespace")
        status = 409 if key in self.hub.repos else 200
        self.hub.repos.setdefault(key, Repo(private=wanted.get("visibility") == "private"))
        return status, {"url": f"{self.hub.url}/{repo}", "name": repo}, {}

    def auth_check(self, kind, repo, write):
        self.find(kind, repo, write=bool(write))
        return {}

    def info(self, kind, repo):
        found = self.find(kind, repo)
        siblings = [{"rfilename": path} for path in sorted(found.files)]
        return {"id": repo, "sha": found.sha, "private": found.private, "siblings": siblings, "tags": []}

    def preupload(self, kind, repo):
        found = self.find(kind, repo, write=True)
        return {"files": [_announced(found, **file) for file in json.loads(self.body)["files"]]}

    def commit(self, kind, repo):
        found = self.find(kind, repo, write=True)
        header, *changes = [json.loads(line) for line in self.body.splitlines()]
        for change in changes:
            key, value = change["key"], change["value"]
            if key == "lfsFile" and value["oid"] not in self.hub.blobs:
                raise _Refused(400, f"{value['path']} was not uploaded")
            path = value["path"]
            if key == "file":
                found.files[path] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                found.files[path] = self.hub.blobs[value["oid"]]
            else:
                raise _Refused(400, f"unexpected {key}")
            (found.lfs.add if key == "lfsFile" else found.lfs.discard)(path)
        found.commits.append((header["value"]["summary"], [change["value"]["path"] for change in changes]))
        return {"commitOid": found.sha, "commitUrl": f"{self.hub.url}/{repo}/commit/{found.sha}", "success": True}

    def lfs_batch(self, repo):
        self.find("model", repo.removeprefix("datasets/"), write=True)
        objects = json.loads(self.body)["objects"]
        for wanted in objects:
            if wanted["oid"] not in self.hub.blobs:
                wanted["actions"] = {"upload": {"href": f"{self.hub.url}/lfs/{wanted['oid']}"}}
        return {"transfer": "basic", "objects": objects}

    def lfs_put(self, oid):
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise _Refused(400, "not the announced content")
        self.hub.blobs[oid] = self.body
        return {}

    def tree(self, kind, repo, folder):
        found = self.find(kind, repo)
        paths = [path for path in sorted(found.files) if path.startswith(f"{folder}/" if folder else "")]
        if folder and not paths:
            raise _Refused(404, f"{folder} not found", "EntryNotFound")
        return [_entry(found, path) for path in paths]

    def resolve(self, repo, path):
        found = self.find("model", repo)
        if path not in found.files:
            raise _Refused(404, f"{path} not found", "EntryNotFound")
        return 200, found.files[path], {"X-Repo-Commit": found.sha, "ETag": f'"{_oid(found, path)}"'}


def _announced(repo: Repo, path: str, size: int, **_) -> dict:
    mode = "lfs" if path.endswith(LFS_SUFFIXES) or size > LFS_SIZE else "regular"
    return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": _oid(repo, path)}


def _oid(repo: Repo, path: str) -> str | None:
    content = repo.files.get(path)
    if content is None:
        return None
    if path in repo.lfs:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(repo: Repo, path: str) -> dict:
    size, oid = len(repo.files[path]), _oid(repo, path)
    lfs = {"lfs": {"oid": oid, "size": size, "pointerSize": 130}} if path in repo.lfs else {}
    return {"type": "file", "path": path, "size": size, "oid": oid, **lfs}
