"""Texts that stand encoded in another text: base64, hex, escapes, codes of letters, Morse."""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

_SIGNS = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- "
    "-..- -.-- --.. ----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----."
)
_MORSE = dict(zip(_SIGNS.split(), "abcdefghijklmnopqrstuvwxyz0123456789", strict=True))
_MOST = 40
"""Encoded pieces that are looked at in one text."""
_PIECES = {
    "base64": re.compile(r"[A-Za-z0-9+/_-]{6,}={0,2}(?:\s+[A-Za-z0-9+/_-]{20,}={0,2})*"),
    "base32": re.compile(r"\b[A-Z2-7]{8,}={0,6}"),
    "hex": re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[\s,:;-]?){4,}"),
    "binary": re.compile(r"(?:[01]{7,8}[\s,]*){3,}"),
    "codes": re.compile(r"(?:\b\d{2,3}\b[\s,;-]*){4,}"),
    "places": re.compile(r"(?:\b(?:[1-9]|1\d|2[0-6])\b[\s,;./-]*){4,}"),
    "escapes": re.compile(r"(?:\\u\{?[0-9a-fA-F]{4,6}\}?\s*){3,}"),
    "morse": re.compile(r"(?:[.·•*-]{1,5}[\s/|]+){4,}[.·•*-]{1,5}"),
}


_WHOLE: dict[str, Callable[[str], str]] = {"%": unquote, "&": html.unescape}
"""Escapes that may stand anywhere in a text, by their sign."""


def decoded(text: str) -> Iterator[str]:
    """Yield what stands encoded in a text, each piece of it and all pieces of a kind together."""
    for kind, pattern in _PIECES.items():
        found = []
        for piece in list(dict.fromkeys(pattern.findall(text)))[:_MOST]:
            said = _DECODERS[kind](piece)
            if said and _is_text(said):
                found.append(said)
                yield said
        if len(found) > 1:
            yield "".join(found)
    for sign, undone in _WHOLE.items():
        said = undone(text) if sign in text else text
        if said != text:
            yield said


def _is_text(said: str) -> bool:
    """Whether it may be words: what is decoded from words that were never encoded is noise."""
    return sum(
        c.isalnum() or c.isspace() or c in ".,;:!?'\"()=+/%&#\\-_*" for c in said
    ) >= 0.9 * len(said)


def _bytes(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def _base64(piece: str) -> str:
    if not re.search(r"\S[A-Z0-9]", piece):  # a word
        return ""
    piece = re.sub(r"[\s=]", "", piece).translate(str.maketrans("-_", "+/"))
    if len(piece) % 4 == 1:
        piece = piece[:-1]
    try:
        return _bytes(base64.b64decode(piece + "=" * (-len(piece) % 4)))
    except binascii.Error:
        return ""


def _base32(piece: str) -> str:
    piece = piece.rstrip("=")
    try:
        return _bytes(base64.b32decode(piece + "=" * (-len(piece) % 8)))
    except binascii.Error:
        return ""


def _hex(piece: str) -> str:
    digits = re.sub(r"0x|\\x|[^0-9a-fA-F]", "", piece)
    return _bytes(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _binary(piece: str) -> str:
    bits = re.findall(r"[01]{7,8}", piece)
    return _bytes(bytes(int(bit, 2) for bit in bits))


def _codes(piece: str) -> str:
    codes = [int(number) for number in re.findall(r"\d+", piece)]
    return "".join(map(chr, codes)) if all(32 <= code < 127 for code in codes) else ""


def _places(piece: str) -> str:
    return "".join(chr(96 + int(number)) for number in re.findall(r"\d+", piece))


def _escapes(piece: str) -> str:
    codes = [int(code, 16) for code in re.findall(r"[0-9a-fA-F]{4,6}", piece)]
    return "".join(chr(code) for code in codes if code < 0xD800)


def _morse(piece: str) -> str:
    signs = piece.translate(str.maketrans("·•*", "..."))
    words = re.split(r"\s*[/|]\s*|\s{2,}", signs.strip())
    letters = [[_MORSE.get(sign, "") for sign in word.split()] for word in words]
    return " ".join("".join(word) for word in letters)


_DECODERS: dict[str, Callable[[str], str]] = {
    "base64": _base64,
    "base32": _base32,
    "hex": _hex,
    "binary": _binary,
    "codes": _codes,
    "places": _places,
    "escapes": _escapes,
    "morse": _morse,
}
