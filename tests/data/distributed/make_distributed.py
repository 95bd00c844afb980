"""Writes what torch.distributed.checkpoint of two processes saves, and what it holds:

    python3 make_distributed.py DIRECTORY

Needs Debian's python3-torch, whose own module is older: the classes of the metadata are declared here under the names that
they have in PyTorch 2, with the members that its source documents; the parts are written by torch.save.
"""

import enum
import json
import pathlib
import pickle
import sys
import types
from dataclasses import dataclass, field
from typing import Any, Optional

import torch

metadata = types.ModuleType("torch.distributed.checkpoint.metadata")
filesystem = types.ModuleType("torch.distributed.checkpoint.filesystem")
for module in (metadata, filesystem):
    sys.modules[module.__name__] = module


def declared(module):
    def into(cls):
        cls.__module__ = module.__name__
        setattr(module, cls.__name__, cls)
        return cls

    return into


@declared(metadata)
class _MEM_FORMAT_ENCODING(enum.Enum):
    TORCH_CONTIGUOUS_FORMAT = 0


@declared(metadata)
class TensorProperties:
    def __init__(self, dtype):
        self.dtype = dtype

    def __getstate__(self):
        return (self.dtype, torch.strided, False, _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT, False)


@declared(metadata)
@dataclass
class ChunkStorageMetadata:
    offsets: torch.Size
    sizes: torch.Size


@declared(metadata)
@dataclass
class TensorStorageMetadata:
    properties: TensorProperties
    size: torch.Size
    chunks: list


@declared(metadata)
@dataclass
class BytesStorageMetadata:
    pass


@declared(metadata)
@dataclass
class StorageMeta:
    checkpoint_id: Optional[str] = None
    save_id: Optional[str] = None
    load_id: Optional[str] = None


@declared(metadata)
@dataclass
class Metadata:
    state_dict_metadata: dict
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: Optional[StorageMeta] = None


@declared(metadata)
@dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: Optional[torch.Size] = None
    index: Optional[int] = field(hash=False, compare=False, default=None)


@declared(filesystem)
@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(4)
    tensors = {
        "model.rows.weight": torch.randn(7, 4),
        "model.columns.weight": torch.randn(3, 6).half(),
        "model.whole.weight": torch.randn(2, 5).bfloat16(),
        "model.cube": torch.randn(4, 2, 3),
        "optimizer.state.0.exp_avg": torch.randn(3),
    }
    cuts = {
        "model.rows.weight": [(0, (0, 0), (4, 4)), (1, (4, 0), (3, 4))],
        "model.columns.weight": [(1, (0, 4), (3, 2)), (0, (0, 0), (3, 4))],
        "model.cube": [(0, (0, 0, 0), (2, 2, 3)), (1, (2, 0, 0), (2, 2, 3))],
    }
    streams = [open(folder / f"__{rank}_0.distcp", "wb") for rank in range(2)]
    known, places = {}, {}

    def put(rank, index, write):
        begin = streams[rank].tell()
        write(streams[rank])
        places[index] = _StorageInfo(f"__{rank}_0.distcp", begin, streams[rank].tell() - begin)

    put(0, MetadataIndex("step"), lambda stream: torch.save(3, stream))
    known["step"] = BytesStorageMetadata()
    for name, tensor in tensors.items():
        chunks = []
        for number, (rank, corner, extent) in enumerate(cuts.get(name, [(0, (0,) * tensor.dim(), tuple(tensor.shape))])):
            part = tensor[tuple(slice(o, o + e) for o, e in zip(corner, extent))].clone()
            put(rank, MetadataIndex(name, torch.Size(corner), number), lambda stream: torch.save(part, stream))
            chunks.append(ChunkStorageMetadata(torch.Size(corner), torch.Size(extent)))
        known[name] = TensorStorageMetadata(TensorProperties(tensor.dtype), tensor.size(), chunks)
    for stream in streams:
        stream.close()
    paths = {name: tuple(name.split(".", 1)) for name in known}
    with open(folder / ".metadata", "wb") as stream:
        pickle.dump(Metadata(known, paths, places, StorageMeta()), stream)
    expected = {name: [list(t.shape), t.float().flatten().tolist()] for name, t in tensors.items()}
    (folder / "expected.json").write_text(json.dumps(expected))


main(pathlib.Path(sys.argv[1]))
