"""Decides who a request comes from, and what that principal may do.

A token in the `Authorization` header, or the header of a proxy that signs people in, names a
principal; everybody else is anonymous and may at most read.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from schemas.base import echo
from schemas.requests import Principal as PrincipalName
from streaming.api.errors import ApiError, ErrorCode
from streaming.errors import SettingsInvalid

# With fewer characters a token can be guessed: 16 of base64 are 96 bits.
TOKEN_CHARS_MIN = 16
_SCHEME = "bearer "

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Role(IntEnum):
    """Rights of a principal; each has those before it."""

    NONE = 0
    READ = 1
    OPERATE = 2


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. `rate_key`: whose rate is counted, a principal's or an address's."""

    name: str | None
    role: Role
    rate_key: str


class _Entry(BaseModel):
    """A principal of the token file. Without a token it comes through the proxy only."""

    model_config = ConfigDict(extra="forbid")

    name: PrincipalName
    role: Annotated[str, Field(pattern=r"^(read|operate)$")] = "read"
    token: Annotated[str, Field(min_length=TOKEN_CHARS_MIN, max_length=4096)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _check_one_form(self) -> "_Entry":
        if self.token is not None and self.sha256 is not None:
            raise ValueError("token or sha256, not both")
        return self

    def digest(self) -> bytes | None:
        """SHA-256 of the token; None where there is none."""
        if self.sha256 is not None:
            return bytes.fromhex(self.sha256)
        return None if self.token is None else _digest(self.token)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may ask for what.

    - `tokens`: principals by the SHA-256 of their tokens; `roles`: by name.
    - `anonymous`: whether a request without a principal may read.
    - `proxies`: addresses whose `proxy_header` names the principal.
    """

    tokens: Sequence[tuple[bytes, str]] = ()
    roles: Mapping[str, Role] = field(default_factory=dict)
    anonymous: bool = True
    proxies: Sequence[Network] = ()
    proxy_header: str = "x-forwarded-user"

    def identify(self, headers: Mapping[str, str], address: str) -> Principal:
        """Name the principal of a request. `headers`: by name in small letters; `address`: of the
        peer. Raises ApiError 401."""
        given = headers.get("authorization")
        if given is not None:
            return self._of_token(given)
        name = headers.get(self.proxy_header, "") if self._is_proxy(address) else ""
        if name:
            return self._of_proxy(name)
        if self.anonymous:
            return Principal(None, Role.READ, address)
        raise _refuse(
            ErrorCode.TOKEN_MISSING,
            "this service answers nobody without a token: send Authorization: Bearer TOKEN",
        )

    def _of_token(self, given: str) -> Principal:
        token = given[len(_SCHEME) :].strip() if given.lower().startswith(_SCHEME) else ""
        found = self.find_principal(token)
        if found is None:
            raise _refuse(
                ErrorCode.TOKEN_UNKNOWN,
                "the Authorization header has no token of this service: expected Bearer and a "
                "token of the file that --tokens names",
            )
        return found

    def find_principal(self, token: str) -> Principal | None:
        """Find whose token it is; None where it is nobody's."""
        digest = _digest(token)
        # All are compared, so that the time tells nothing of the one that is right.
        found = [name for known, name in self.tokens if hmac.compare_digest(known, digest)]
        if not found:
            return None
        return Principal(found[0], self.roles[found[0]], f"principal {found[0]}")

    def _of_proxy(self, name: str) -> Principal:
        try:
            TypeAdapter(PrincipalName).validate_python(name)
        except ValidationError:
            raise _refuse(
                ErrorCode.TOKEN_UNKNOWN,
                f"the proxy names the principal {echo(name)}: expected 1 to 128 printable ASCII "
                "characters",
            ) from None
        return Principal(name, self.roles.get(name, Role.READ), f"principal {name}")

    def _is_proxy(self, address: str) -> bool:
        if not self.proxies:
            return False
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(peer in network for network in self.proxies)


def read_tokens(path: Path) -> tuple[list[tuple[bytes, str]], dict[str, Role]]:
    """Read the principals of a token file: digests with names, and roles by name.

    YAML, a list of `{name: alice, role: operate, token: ...}`; `sha256` in place of `token` keeps
    the token out of the file. Raises SettingsInvalid, which quotes no token.
    """
    try:
        listed = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or "expected YAML in UTF-8"
        raise SettingsInvalid([f"--tokens: {path} cannot be read: {reason}"]) from None
    try:
        entries = TypeAdapter(list[_Entry]).validate_python(listed)
    except ValidationError as error:
        raise SettingsInvalid([f"--tokens: {path}: {_fault(error)}"]) from None
    names = [each.name for each in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingsInvalid([f"--tokens: {path}: the name {echo(twice[0])} is there twice"])
    digests = ((each.digest(), each.name) for each in entries)
    tokens = [(digest, name) for digest, name in digests if digest is not None]
    return tokens, {each.name: Role[each.role.upper()] for each in entries}


def parse_network(text: str) -> Network:
    """Parse an address or a network of a trusted proxy. Raises ValueError."""
    return ipaddress.ip_network(text, strict=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _fault(error: ValidationError) -> str:
    """Name the place and what was expected there. What was given may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"


def _refuse(code: ErrorCode, message: str) -> ApiError:
    return ApiError(401, code, message, {"WWW-Authenticate": "Bearer"})
