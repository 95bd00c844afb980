"""Makes the pictures of this folder, and what Pillow and numpy make of them (expected.npz, cases.json).

    make_pictures.py        with Pillow 9.4, numpy and PyTorch, those of Debian 12

Pillow is the reference for colours, orientations and sizes, whose bytes must be equal. PyTorch is a second reference for
sizes: its antialiased interpolation in float64 must agree to the roundings of Pillow's two passes. What a preprocessor
does is computed here by numpy in float64, from its published description; Pillow makes the sizes.
"""

import json
import math
import pathlib
import struct
import zlib

import numpy
import torch
from PIL import Image, ImageOps

folder = pathlib.Path(__file__).parent
FILTERS = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"]  # by Pillow's numbers
expected = {}


def scene(height, width, seed):
    """Waves, an edge and noise: RGB bytes."""
    rng = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[:height, :width]
    waves = numpy.stack([120 + 100 * numpy.sin(0.5 * x + 0.3 * y), 128 + 110 * numpy.cos(0.7 * y),
                         90 + 80 * numpy.sin(0.2 * x * y)], -1)
    waves[x + y > (height + width) / 2] *= 0.4
    return numpy.clip(waves + rng.normal(0, 25, waves.shape), 0, 255).astype(numpy.uint8)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(height, width, depth, colours, rows, extra=b"", interlaced=0):
    """A PNG file that Pillow cannot write; `rows`: the bytes behind each row's filter, which is 0."""
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    header = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def passes(pixels):
    """The rows of the seven passes of Adam7."""
    for y, x, dy, dx in [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]:
        for row in pixels[y::dy, x::dx]:
            if row.size:
                yield row.tobytes()


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def write_pictures():
    rgb = Image.fromarray(scene(13, 9, 0))
    alpha = Image.fromarray(scene(13, 9, 1)[:, :, 0])
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    rgb.save(folder / "rgb.png")
    rgba.save(folder / "rgba.png")
    rgb.convert("L").save(folder / "grey.png")
    rgba.convert("LA").save(folder / "grey_alpha.png")
    rgb.convert("1").save(folder / "bits1.png")
    palette = rgb.quantize(13)
    palette.save(folder / "palette.png")
    palette.save(folder / "palette_transparent.png", transparency=3)
    rgb.quantize(4).save(folder / "palette2.png", bits=2)
    four = numpy.array(rgb.convert("L")) >> 4
    packed = [bytes((int(a) << 4) | int(b) for a, b in zip(row[::2], list(row[1::2]) + [0])) for row in four]
    (folder / "grey4.png").write_bytes(png(13, 9, 4, 0, packed))
    deep = (scene(13, 9, 2).astype(">u2") << 8) + scene(13, 9, 3)
    (folder / "rgb16.png").write_bytes(png(13, 9, 16, 2, [row.astype(">u2").tobytes() for row in deep]))
    (folder / "grey16.png").write_bytes(png(13, 9, 16, 0, [row.astype(">u2").tobytes() for row in deep[:, :, 0]]))
    pixels = scene(13, 9, 4)
    gamma = chunk(b"gAMA", struct.pack(">I", 100000))
    (folder / "linear.png").write_bytes(png(13, 9, 8, 2, [row.tobytes() for row in pixels], gamma))
    (folder / "interlaced.png").write_bytes(png(13, 9, 8, 2, passes(pixels), interlaced=1))
    (folder / "turned.png").write_bytes(
        png(13, 9, 8, 2, [row.tobytes() for row in pixels], chunk(b"eXIf", exif(6)[6:])))
    photo = Image.fromarray(scene(24, 36, 5))
    photo.save(folder / "rgb.jpg", quality=90)
    photo.save(folder / "progressive.jpg", quality=75, progressive=True)
    photo.convert("L").save(folder / "grey.jpg")
    photo.convert("CMYK").save(folder / "cmyk.jpg", quality=90)
    small = Image.fromarray(scene(9, 14, 6))
    for orientation in range(2, 9):
        small.save(folder / f"turned{orientation}.jpg", quality=80, exif=exif(orientation))
    photo.save(folder / "lossy.webp", quality=80)
    rgb.save(folder / "lossless.webp", lossless=True)
    rgba.save(folder / "alpha.webp", lossless=True, exact=True)
    small.save(folder / "turned.webp", quality=80, exif=exif(8))
    rgb.save(folder / "animated.webp", save_all=True, append_images=[rgb.rotate(180)], lossless=True)
    Image.fromarray(scene(23, 31, 7)).save(folder / "scene.png")


def read_pictures():
    for file in sorted(folder.iterdir()):
        if file.suffix not in (".png", ".jpg", ".webp") or file.name in ("grey16.png", "animated.webp"):
            continue
        picture = Image.open(file)
        expected["rgb/" + file.name] = numpy.array(picture.convert("RGB"))
        expected["grey/" + file.name] = numpy.array(picture.convert("RGB").convert("L"))
        expected["upright/" + file.name] = numpy.array(ImageOps.exif_transpose(picture).convert("RGB"))


def resize():
    picture = Image.open(folder / "scene.png")
    # Of half the contrast, no pass is cut off at 0 or 255, which float64 is not.
    mild = Image.fromarray(numpy.array(picture) // 2 + 64)
    tensor = torch.tensor(numpy.array(mild), dtype=torch.float64).permute(2, 0, 1)[None]
    for height, width in [(12, 12), (23, 14), (10, 31), (29, 35), (1, 1), (23, 31), (22, 32)]:
        for number, name in enumerate(FILTERS):
            expected[f"resized/{height}/{width}/{name}"] = numpy.array(picture.resize((width, height), number))
            if name in ("bilinear", "bicubic"):
                made = numpy.array(mild.resize((width, height), number))
                other = torch.nn.functional.interpolate(tensor, (height, width), mode=name, antialias=True)
                exact = other[0].permute(1, 2, 0).numpy()
                # Each pass rounds to a byte, at most 1/2; the second has weights whose sizes sum to at most 1.5 (bicubic).
                assert numpy.abs(exact - made).max() <= 0.5 + 0.5 * 1.5 + 1e-3, (height, width, name)


def shortest(picture, side, most=None):
    width, height = picture.size
    low, high = min(width, height), max(width, height)
    raw = side
    if most is not None and high / low * side > most:
        raw = most * low / high
        side = int(round(raw))
    long = int(raw * high / low)
    return (side, long) if width <= height else (long, side)


def crop(pixels, height, width, rounds):
    tops = []
    for has, wanted in ((pixels.shape[0], height), (pixels.shape[1], width)):
        tops.append(int(round((has - wanted) / 2)) if rounds and has > wanted else math.floor((has - wanted) / 2))
    out = numpy.zeros((height, width, 3))
    for y in range(height):
        for x in range(width):
            row, column = y + tops[0], x + tops[1]
            if 0 <= row < pixels.shape[0] and 0 <= column < pixels.shape[1]:
                out[y, x] = pixels[row, column]
    return out


HALF = [0.5, 0.5, 0.5]
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
CASES = [
    # name, what its file says, family, picture, (size, filter), crop, factor, mean and deviation
    ("vit", {"image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": 12, "width": 12},
             "resample": 2, "do_rescale": True, "rescale_factor": 0.00392156862745098, "do_normalize": True,
             "image_mean": HALF, "image_std": HALF}, "vit", "rgb.jpg",
     lambda p: (12, 12), "bilinear", None, 1 / 255, (HALF, HALF)),
    ("vit_of_2021", {"do_normalize": True, "do_resize": True, "image_mean": HALF, "image_std": HALF, "size": 12}, "vit",
     "rgb.jpg", lambda p: (12, 12), "bilinear", None, 1 / 255, (HALF, HALF)),
    ("clip", {"feature_extractor_type": "CLIPFeatureExtractor", "do_resize": True, "size": 15, "resample": 3,
              "do_center_crop": True, "crop_size": 12, "do_normalize": True, "image_mean": CLIP_MEAN,
              "image_std": CLIP_STD, "do_convert_rgb": True}, "vit", "cmyk.jpg",
     lambda p: shortest(p, 15), "bicubic", (12, 12, False), 1 / 255, (CLIP_MEAN, CLIP_STD)),
    ("clip_by_default", {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 14},
                         "crop_size": {"height": 12, "width": 12}}, "vit", "scene.png",
     lambda p: shortest(p, 14), "bicubic", (12, 12, False), 1 / 255, (CLIP_MEAN, CLIP_STD)),
    ("deit", {"image_processor_type": "DeiTImageProcessorFast", "size": 17, "crop_size": 12, "resample": 1}, "deit",
     "lossy.webp", lambda p: (17, 17), "lanczos", (12, 12, False), 1 / 255, (HALF, HALF)),
    ("convnext", {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 12}, "crop_pct": 0.875,
                  "resample": 3}, "", "scene.png",
     lambda p: shortest(p, int(12 / 0.875)), "bicubic", (12, 12, False), 1 / 255, (HALF, HALF)),
    ("timm", {"architecture": "vit", "pretrained_cfg": {
        "tag": "augreg", "input_size": [3, 12, 12], "fixed_input_size": True, "interpolation": "bicubic", "crop_pct": 0.8,
        "crop_mode": "center", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "num_classes": 10}}, "",
     "scene.png", lambda p: shortest(p, 15), "bicubic", (12, 12, True), 1 / 255,
     ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])),
    ("timm_squash", {"pretrained_cfg": {"input_size": [3, 12, 12], "interpolation": "bilinear", "crop_pct": 1.0,
                                        "crop_mode": "squash", "mean": HALF, "std": HALF}}, "",
     "grey.jpg", lambda p: (12, 12), "bilinear", (12, 12, True), 1 / 255, (HALF, HALF)),
    ("bytes", {"do_resize": False, "do_center_crop": True, "crop_size": {"height": 20, "width": 5}, "do_rescale": False,
               "do_normalize": False}, "", "rgb.png", None, None, (20, 5, False), 1, None),
    ("unscaled", {"do_resize": True, "size": {"height": 11, "width": 7}, "resample": 0, "do_rescale": False,
                  "image_mean": [120, 110, 100], "image_std": [60, 61, 62]}, "", "rgb.jpg",
     lambda p: (7, 11), "nearest", None, 1, ([120, 110, 100], [60, 61, 62])),
    ("both_edges", {"size": {"shortest_edge": 30, "longest_edge": 33}, "resample": 2, "do_normalize": False}, "",
     "rgb.jpg", lambda p: shortest(p, 30, 33), "bilinear", None, 1 / 255, None),
    ("longest", {"size": {"longest_edge": 21}, "resample": 2, "rescale_factor": 0.5, "do_normalize": False}, "",
     "rgb.jpg", lambda p: (21, 14), "bilinear", None, 0.5, None),
]


def process():
    cases = []
    for name, config, family, file, size, resample, cut, factor, norm in CASES:
        picture = Image.open(folder / file).convert("RGB")
        if size:
            picture = picture.resize(size(picture), FILTERS.index(resample))
        pixels = numpy.array(picture).astype(numpy.float64)
        if cut:
            pixels = crop(pixels, *cut)
        pixels = pixels * factor
        if norm:
            pixels = (pixels - numpy.array(norm[0])) / numpy.array(norm[1])
        expected["made/" + name] = pixels.transpose(2, 0, 1).copy()
        cases.append(json.dumps({"name": name, "family": family, "picture": file, "config": config}))
    (folder / "cases.json").write_text("[\n" + ",\n".join(cases) + "\n]\n")


if __name__ == "__main__":
    write_pictures()
    read_pictures()
    resize()
    process()
    numpy.savez_compressed(folder / "expected.npz", **expected)
