"""Writes a screenshot as a PNG with a palette, a quarter of its size, for pages that show it.

The browser decodes its own picture; the colours that most of it has become the palette, and every
other colour the nearest of them. A console has few.
"""

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import BrowserContext

# What the format allows.
COLOURS_MAX = 256
# Bits of a channel by which colours are counted as one: steps that nobody sees.
_BITS = 5
# Colours are compared with the palette so many at once.
_CHUNK = 4_096
_DECODE = """async data => {
  const bitmap = await createImageBitmap(await (await fetch(data)).blob());
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const pixels = context.getImageData(0, 0, bitmap.width, bitmap.height).data;
  let text = "";
  for (let at = 0; at < pixels.length; at += 32768)
    text += String.fromCharCode(...pixels.subarray(at, at + 32768));
  return [bitmap.width, bitmap.height, btoa(text)];
}"""


def write_palette_png(path: Path, context: BrowserContext, picture: bytes) -> None:
    """Write a picture, a PNG of the browser's, with a palette."""
    path.write_bytes(_encode(*_reduce(_decode(context, picture))))


def _decode(context: BrowserContext, picture: bytes) -> NDArray[np.uint8]:
    """The picture's pixels: rows, columns, red green blue."""
    # A page of its own: that of the console forbids such scripts.
    page = context.new_page()
    try:
        data = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        width, height, text = page.evaluate(_DECODE, data)
    finally:
        page.close()
    pixels = np.frombuffer(base64.b64decode(text), np.uint8)
    return pixels.reshape(height, width, 4)[:, :, :3]


def _reduce(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The index of each pixel's colour, and the palette."""
    height, width, _ = pixels.shape
    wide = pixels.reshape(-1, 3).astype(np.int32)
    colours, which = np.unique(wide @ (65_536, 256, 1), return_inverse=True)
    counts = np.bincount(which)
    channels = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1)
    coarse = (channels >> (8 - _BITS)) @ (1 << 2 * _BITS, 1 << _BITS, 1)
    order = np.argsort(-counts, kind="stable")
    # Of colours that look alike the most frequent one is kept.
    _, first = np.unique(coarse[order], return_index=True)
    kept = order[np.sort(first)[:COLOURS_MAX]]
    palette = channels[kept]
    nearest = np.empty(len(colours), np.uint8)
    for at in range(0, len(colours), _CHUNK):
        off = channels[at : at + _CHUNK, None, :] - palette[None, :, :]
        nearest[at : at + _CHUNK] = (off * off).sum(axis=2).argmin(axis=1)
    return nearest[which].reshape(height, width), palette.astype(np.uint8)


def _encode(indexes: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    height, width = indexes.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each begins with its filter, none
    rows[:, 1:] = indexes
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", palette.tobytes()))
    parts += ((b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
