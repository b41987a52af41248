"""What can go wrong with the Hub, in our own words: no message of a server or client is passed on whole.

Headers, signed addresses and tokens never reach a message: each is made of the repository's name,
the address without its credentials, and a status or the kind of failure.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from vllm_tt.errors import ConfigError, TTError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "AddressInvalid",
    "AddressMissing",
    "AmbiguousCommit",
    "Conflict",
    "Damaged",
    "Gated",
    "HubError",
    "HubMissing",
    "NotAllowed",
    "NotFound",
    "NotFoundOrPrivate",
    "Offline",
    "Place",
    "Refused",
    "RevisionMissing",
    "ServerFault",
    "TokenRefused",
    "Unreachable",
    "bare",
    "translated",
]


class HubError(TTError):
    """{message}"""

    exit_code = 3


class HubMissing(ConfigError):
    """huggingface_hub is not installed, and the Hub is reached through it. Run: pip install huggingface_hub"""


class AddressMissing(HubError):
    """{host} answers, but not as a Hub. Check HF_ENDPOINT."""


class AddressInvalid(ConfigError):
    """HF_ENDPOINT={found!r} is not an address: expected http://host or https://host."""


class NotFound(HubError):
    """{repo} does not exist on {host}, or the token given may not see it. Check the name, and whose token it is."""


class NotFoundOrPrivate(HubError):
    """{repo} does not exist on {host} or is private, and no token was given: set HF_TOKEN or run 'hf auth login'."""


class TokenRefused(HubError):
    """{host} refused the token. Check HF_TOKEN, or log in again with 'hf auth login'."""


class Gated(HubError):
    """{repo} is gated: ask for access at {host}/{repo}, then use a token of the account that got it (HF_TOKEN)."""


class NotAllowed(HubError):
    """{host} does not allow this token to {action} {repo}. Use a token with that right, or another repository."""


class RevisionMissing(HubError):
    """{repo} has no branch, tag or commit {revision!r}."""


class AmbiguousCommit(HubError):
    """{repo} has several commits that start with {revision}: {found}. Give more of the sha."""


class Offline(HubError):
    """HF_HUB_OFFLINE is set, so {host} was not asked for {repo}. Unset it to use the Hub."""


class Unreachable(HubError):
    """Cannot reach {host}: {cause}. Nothing was changed; the same command tries again and keeps what is complete."""


class ServerFault(HubError):
    """{host} failed with status {status}. Nothing was changed; the same command tries again."""


class Refused(HubError):
    """{host} refused to {action} {repo} (status {status}{cause})."""


class Conflict(HubError):
    """{repo}: the repository changed; pull first"""


class Damaged(HubError):
    """{path!r} of {repo} arrived damaged: {cause}. Nothing was installed; the same command fetches it again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What is being asked of whom, for messages."""

    repo: str
    endpoint: str
    """Address of the Hub."""
    has_token: bool
    action: str = "read"
    revision: str | None = None

    @property
    def host(self) -> str:
        return bare(self.endpoint)


def bare(address: str) -> str:
    """An address without user name, password, query and fragment."""
    parts = urlsplit(address)
    netloc = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, netloc, parts.path, "", ""))


@contextlib.contextmanager
def translated(place: Place) -> Iterator[None]:
    """Turns errors of the client inside into ours."""
    try:
        yield
    except HubError:
        raise
    except Exception as error:
        ours = _translate(error, place)
        if ours is None:
            raise
        # The client's own error shows addresses: kept from the traceback, too.
        raise ours from None


def _translate(error: BaseException, place: Place) -> TTError | None:
    from huggingface_hub import errors

    facts = {"repo": place.repo, "host": place.host}
    if isinstance(error, errors.OfflineModeIsEnabled):
        return Offline(**facts)
    if isinstance(error, errors.GatedRepoError):
        return Gated(**facts)
    if isinstance(error, errors.RevisionNotFoundError):
        return RevisionMissing(**facts, revision=place.revision or "main")
    if isinstance(error, errors.HfHubHTTPError):
        return _by_status(error, place)
    if isinstance(error, errors.FileMetadataError):
        return AddressMissing(**facts)
    if isinstance(error, errors.LocalEntryNotFoundError):
        inner = error.__cause__
        return _translate(inner, place) if inner is not None else Unreachable(**facts, cause="the request failed")
    if isinstance(error, _transport_errors()):
        return Unreachable(**facts, cause=_cause(error))
    if isinstance(error, RuntimeError) and error.__cause__ is not None:  # of an upload in a thread
        return _translate(error.__cause__, place)
    return None


def _by_status(error: BaseException, place: Place) -> TTError:
    from huggingface_hub import errors

    facts = {"repo": place.repo, "host": place.host}
    response = getattr(error, "response", None)
    status = int(getattr(response, "status_code", 0) or 0)
    said = response.headers.get("X-Error-Message", "") if response is not None else ""
    if status == 401 and place.has_token:
        return TokenRefused(**facts)
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 404):
        return NotFound(**facts) if place.has_token else NotFoundOrPrivate(**facts)
    if status == 403:
        return NotAllowed(**facts, action=place.action)
    if status in (409, 412):
        return Conflict(**facts)
    if status >= 500 or status == 429:
        return ServerFault(**facts, status=status)
    return Refused(**facts, action=place.action, status=status, cause=f": {said[:200]}" if said else "")


def _transport_errors() -> tuple[type[BaseException], ...]:
    """The root of the client's HTTP library, whichever it is, and the system's own connection errors."""
    from huggingface_hub.errors import HfHubHTTPError

    roots = [base for base in HfHubHTTPError.__mro__ if base.__module__.partition(".")[0] in _HTTP_LIBRARIES]
    return (*roots, ConnectionError, TimeoutError)


_HTTP_LIBRARIES = ("httpx", "httpx2", "requests")


def _cause(error: BaseException) -> str:
    kind = type(error).__name__
    if "Timeout" in kind:
        return "it did not answer in time"
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror[:1].lower() + inner.strerror[1:]
        inner = inner.__cause__ or inner.__context__
    return _KINDS.get(kind, kind)


_KINDS = {
    "ConnectError": "the connection failed",
    "ConnectionError": "the connection broke",
    "ReadError": "the connection broke",
    "RemoteProtocolError": "the connection broke",
}
