"""Runs on a hub: the files of `mtm.runs.bundle` in a repository of models on huggingface.co.

    hub:OWNER/NAME             the newest
    hub:OWNER/NAME@REVISION    a branch, a tag, or a commit, which stays what it is

What was fetched once is kept where the hub's own tools keep it, and is read from there without a
network. Each file is compared with the manifest every time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mtm.core.errors import ConfigError, MTMError, RunError, require
from mtm.runs.bundle import LARGEST_TEXT, MANIFEST, Files, check, largest, sizes_in

PREFIX = "hub:"
_FORM = re.compile(r"hub:(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True)
class Place:
    """A repository, and which state of it.

    Attributes:
        name: `OWNER/NAME`.
        revision: A branch, a tag or a commit; None: the newest.
    """

    name: str
    revision: str | None = None

    @classmethod
    def of(cls, text: str | Path) -> Place:
        """What `hub:OWNER/NAME[@REVISION]` names.

        Raises:
            ConfigError: It is not of this form.
        """
        found = _FORM.fullmatch(Path(text).as_posix())
        if found is None:
            raise ConfigError(
                f"{str(text)!r} names no run on a hub; the form is hub:OWNER/NAME, or "
                "hub:OWNER/NAME@REVISION for a branch, a tag or a commit."
            )
        return cls(found["name"], found["revision"])

    def __str__(self) -> str:
        return f"{PREFIX}{self.name}" + (f"@{self.revision}" if self.revision else "")


def is_place(path: str | Path) -> bool:
    """Whether a path is said to be on a hub."""
    return str(path).startswith(PREFIX)


def pin(place: Place) -> Place:
    """The commit that a place stands for now; without a network, for which it stood last.

    Raises:
        RunError: It cannot be found.
    """
    api = _library().HfApi()
    with _telling(place):
        found = api.resolve_revision(place.name, revision=place.revision)
    return replace(place, revision=found.resolved)


def read(place: Place) -> Files:
    """Fetch the files of a run, unless they are there; all are checked.

    Raises:
        RunError: They cannot be fetched, or are not what was pushed.
    """
    pinned = pin(place)
    try:
        return _checked(pinned, again=False)
    except _NotAsPushedError:
        return _checked(pinned, again=True)  # what was kept may have been damaged since


def push(place: Place, files: Mapping[str, bytes], *, public: bool = False) -> Place:
    """Make files the newest state of a repository, in one commit; it is made if need be.

    Files of an earlier run that are not among them are removed; others are left alone.

    Args:
        place: Where to, without a revision.
        files: Of `mtm.runs.bundle.seal`.
        public: Let everybody see it; else only those whom its owner allows.

    Returns:
        The place, with the commit.

    Raises:
        ConfigError: A revision is named, or the repository is not as public as is asked for.
        RunError: It could not be pushed.
    """
    refuse_revision(place)
    library = _library()
    api = library.HfApi()
    with _telling(place):
        there = _existing(api, place)
        if there is None:
            api.create_repo(place.name, private=not public)
        elif there.private == public:
            now, wanted = ("private", "public") if public else ("public", "private")
            raise ConfigError(
                f"{place} is {now} already, and this push was to be {wanted}. Nothing was pushed: "
                f"{'leave --public out' if public else 'say --public'}, choose another name, or "
                "change it on the hub's page of the repository."
            )
        old = [] if there is None else [file.rfilename for file in there.siblings or ()]
        removed = [name for name in old if largest(name) is not None and name not in files]
        operations = [library.CommitOperationDelete(name) for name in removed]
        operations += [library.CommitOperationAdd(n, content) for n, content in files.items()]
        commit = api.create_commit(
            place.name,
            operations,
            commit_message="Share a run",
            parent_commit=None if there is None else there.sha,
        )
    return replace(place, revision=commit.oid)


def refuse_revision(place: Place) -> None:
    """Raise a `ConfigError` if a place that is to be pushed to names a revision."""
    if place.revision is not None:
        raise ConfigError(f"a push makes a new revision; name none, got {place.revision!r}.")


class _NotAsPushedError(RunError):
    """Files are not those of the manifest."""


def _checked(place: Place, *, again: bool) -> Files:
    files = {MANIFEST: _fetch(place, MANIFEST, None, again)}
    for name, size in sizes_in(files[MANIFEST], str(place)).items():
        files[name] = _fetch(place, name, size, again)
    try:
        check(files, str(place))
    except RunError as error:
        raise _NotAsPushedError(*error.args) from error
    return files


def _fetch(place: Place, name: str, size: int | None, again: bool) -> bytes:
    """One file, of the size that the manifest says; of the manifest any that is not too large."""
    download = _library().HfApi().hf_hub_download
    with _telling(place):
        told = download(place.name, name, revision=place.revision, dry_run=True)
        found = told.file_size or 0  # of what is kept, or of what would be fetched
        fits = found <= LARGEST_TEXT if size is None else found == size
        if not fits and not (again and told.is_cached):
            raise _NotAsPushedError(
                f"{place} is damaged: {name} has {found:,} bytes, where "
                f"{f'up to {LARGEST_TEXT:,}' if size is None else f'{size:,}'} are expected."
            )
        file = download(place.name, name, revision=place.revision, force_download=again)
    return Path(file).read_bytes()


def _existing(api: Any, place: Place) -> Any:
    """What the hub says of a repository; None if there is none."""
    try:
        return api.model_info(place.name)
    except _errors().RepositoryNotFoundError:
        return None


@contextmanager
def _telling(place: Place) -> Iterator[None]:
    """Say what went wrong with a hub, and what helps."""
    errors = _errors()
    try:
        yield
    except MTMError:
        raise
    except errors.HFValidationError as error:
        raise ConfigError(f"{place} cannot be the name of a repository: {error}.") from error
    except errors.RevisionNotFoundError as error:
        raise RunError(
            f"{place.name} has no revision {place.revision!r}: no such branch, tag or commit."
        ) from error
    except errors.HfHubHTTPError as error:
        raise RunError(_refusal(place, error)) from error
    except errors.EntryNotFoundError as error:  # before OSError, which some of them are
        raise RunError(
            f"{place}: {_first_line(error)} It was not pushed by mtm push, or was never fetched "
            "here and cannot be reached now. Check the name and the network."
        ) from error
    except (errors.HTTPError, errors.RevisionResolutionError, errors.FileMetadataError) as error:
        raise RunError(
            f"{place} cannot be reached: {_first_line(error)} Check the network; a revision that "
            "was fetched before loads without it."
        ) from error
    except (OSError, ValueError) as error:  # a full disk; an answer that is not a hub's
        raise RunError(f"{place} cannot be fetched, kept or pushed: {error}.") from error


def _refusal(place: Place, error: Any) -> str:
    """What the answer of a hub means."""
    status = error.response.status_code
    login = "Run `hf auth login`, or set HF_TOKEN to a token of huggingface.co/settings/tokens"
    if status == 401 and not isinstance(error, _errors().RepositoryNotFoundError):
        return f"{place}: the hub does not know who is asking. {login}."
    if status == 403:
        return (
            f"{place}: the token does not allow this. {login} that may write to "
            f"{place.name.partition('/')[0]!r}."
        )
    if isinstance(error, _errors().RepositoryNotFoundError):
        return (
            f"there is no {place} that you may see. Check the name; if it is private, you need a "
            f"token of somebody who may see it. {login}."
        )
    if isinstance(error, _errors().EntryNotFoundError):
        return f"{place} holds no {MANIFEST}, or lacks a file that it names: mtm push writes all."
    if status in (409, 412):
        return f"{place} was changed by somebody else meanwhile; nothing was pushed. Try again."
    return f"{place}: the hub answered {status}: {_first_line(error)} Try again later."


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    return f"{text}."


def _library() -> Any:
    return require("huggingface_hub", extra="hub")


def _errors() -> Any:
    return require("huggingface_hub.errors", extra="hub")
