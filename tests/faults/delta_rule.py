"""Mistakes in the gated delta rule's kernel (facts of the gated delta rule, 6 and 7) as rows, each with a variant.

A fault is a class of `seeded.py`, a method of the public version alone, or a plan of the host; its variant are edits of
the kernel's text at the same place that break no promise. Every text to be replaced occurs once in the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.host import Inputs
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.kernel import ChunkGatedDeltaRule
from pytest_kernbench.kernels.ascend310p.chunk_gated_delta_rule.tiling import Shape, Tiling, tiling, tiling_of_step

from .elsewhere import module_of

seeded = module_of("kernels/chunk_gated_delta_rule/seeded.py")
inputs = module_of("kernels/chunk_gated_delta_rule/conftest.py").random_inputs
Kernel = type[ChunkGatedDeltaRule]


def alone(*methods: str) -> Kernel:
    """The right kernel with these methods of the public version."""
    return type("Public", (ChunkGatedDeltaRule,), {name: seeded.FAITHFUL.__dict__[name] for name in methods})


@dataclass(frozen=True, eq=False)
class Fault:
    """A mistake: `kernel` on `given`, by the plan that `plan` makes of the shape.

    `shape`: what an unchecked host launches, if it is not that of the inputs. `fits` are the variant's inputs where the
    fault's own are no input of a right kernel, `variant_plan` its plan. `base`: the class that variant and right kernel
    are of. `spec`: fields of the core that are others; `host`: the call goes through the host that checks it.
    """

    id: str
    text: str
    sees: tuple[str, ...]
    kernel: Kernel
    given: Inputs
    variant: Mapping[str, str]
    plan: Callable[[Shape], Tiling] = tiling
    variant_plan: Callable[[Shape], Tiling] | None = None
    shape: Shape | None = None
    fits: Inputs | None = None
    base: Kernel = ChunkGatedDeltaRule
    spec: Mapping[str, int] = field(default_factory=dict)
    scale: float = 2**-0.5
    host: bool = False


def shape_of(given: Inputs) -> Shape:
    """The shape that a host which checks nothing takes from the arrays."""
    _, hk, dk = given.query.shape
    _, hv, dv = given.value.shape
    return Shape(given.lengths, hk, hv, dk, dv)


def in_chunks(chunk: int) -> Callable[[Shape], Tiling]:
    return lambda shape: tiling(shape, chunk=chunk)


def in_tiles(width: int) -> Callable[[Shape], Tiling]:
    return lambda shape: tiling_of_step(shape, width, cores=1)


def of_lengths(*lengths: int) -> Inputs:
    """Three tokens, whatever the lengths say."""
    return replace(inputs((3, *[0] * (len(lengths) - 1)), dk=4, dv=4), lengths=lengths)


EXP = "asc.Exp(row, row, columns)"
NO_GROWTH = {EXP: f"asc.Mins(row, row, 0.0, columns)\n            asc.PipeBarrier(asc.PIPE_V)\n            {EXP}"}
LAST = "last = self.gCumsumFp32.GetValue(chunk.length - 1)"
SUM = "for i in range(chunk.length):\n            if self.gGm_ is not None:"
GATE = """            if self.gGm_ is not None:
                total = total + self.gGm_.GetValue(self.HeadOffset(chunk, i))"""
OUTER = "for i in range(chunk.length):\n            decay = self.ScalarExp(last"
READ = """for v in range(tile.width):
            offset = self.StateOffset(chunk.batch, chunk.head, tile.v + v)
            for k in range(self.realK_):
                self.stateInFp32"""
PROCESS = "for item in self.Items():\n            if item.length == 0:"
WRITTEN = (
    "for i in range(chunk.length):\n                offset = self.ValueOffset(chunk, tile, i)\n                for"
)
COPIED = "for at in range(first, first + tile.width * self.realK_):"
INFINITE = "if np.isinf(x):\n            return Float(0) if x < 0 else x"
SUMS = "if repeats:\n            asc.PipeBarrier(asc.PIPE_V)"
OVER = "overlap = not apart and (v_step >= dv or (dv > v_step and blocks > hv))"
HALVED = "asc.Muls(source, source, 1.0, count)"
STEEP = seeded.base(-45.0)
SQUARE = seeded.one_token([1, 0], [0, 1], [10, 20], [[1, 2], [4, 8]])
TWO = replace(seeded.base(-1.0), lengths=(2, 2), initial_state=seeded.halves([1, 2, 1, 2], 2, 1, 1, 2))
BEYOND = replace(seeded.one_token([1, 1], [1, 0], [0], [[40_000, 40_000]]), beta=seeded.halves([0], 1, 1))
WITHIN = replace(BEYOND, initial_state=BEYOND.initial_state / 2)
NEGATED_CHECK = {
    "if view is not None and view.GetSize() != elements:": "if view is not None and not view.GetSize() == elements:"
}

FAULTS = [
    Fault("6.1", "fla #99, #104: e^(G_i - G_j) of the whole square, then a mask of 0 and 1", ("nan",),
          seeded.MaskAfterExp, STEEP, {**NO_GROWTH, "return i + 1": "return chunk.length"}),
    Fault("6.1b", "the same, where nobody uses what is above the diagonal", ("nan",),
          alone("DecayColumns"), STEEP, {**NO_GROWTH, "return i + 1": "return chunk.length"}),
    Fault("6.3", "fla #461, #389, #463: an exponential that drops differences of 0", ("numeric",),
          seeded.SafeExp, seeded.base(0.0), NO_GROWTH),
    Fault("6.5", "cuLA #38, tilelang-ascend #855: the last gate is that of the chunk's last row, an old one",
          ("numeric",), seeded.LastRowOfTheChunk, seeded.after_a_chunk_of_nothing(seeded.base(-1.0, tokens=3)),
          {SUM: "for i in range(self.chunkSize_):\n            if i < chunk.length and self.gGm_ is not None:",
           LAST: "last = self.gCumsumFp32.GetValue(self.chunkSize_ - 1)"}, plan=in_chunks(8)),
    Fault("6.5b", "the same in a first chunk, where nothing is there", ("lifetime",),
          seeded.LastRowOfTheChunk, seeded.base(-1.0, tokens=3),
          {SUM: "for i in range(self.chunkSize_):\n            if i < chunk.length and self.gGm_ is not None:",
           LAST: "last = self.gCumsumFp32.GetValue(self.chunkSize_ - 1)"}, plan=in_chunks(8)),
    Fault("6.5c", "the same: rows of K behind the last token, which are not 0, go into the state", ("numeric",),
          seeded.Unsized.of(seeded.AllRowsOfKeys), seeded.poisoned(seeded.base(-1.0, tokens=3)),
          {OUTER: OUTER.replace("chunk.length", "self.chunkSize_").replace(
              "decay =", "if i >= chunk.length:\n                continue\n            decay ="),
           "        self.CheckTiling()\n": ""},
          plan=in_chunks(8), base=seeded.Unsized),
    Fault("6.6", "vllm-ascend #7902, sparkinfer #610, #615: the state taken for [Dk, Dv]", ("numeric",),
          seeded.KeysFirst, SQUARE, {READ: READ.replace("range(tile.width)", "reversed(range(tile.width))")}),
    Fault("6.8", "fla ddee66d9, ff76ca0d: the sum of gates goes on into the next sequence", ("numeric",),
          seeded.SumAcrossSequences, TWO,
          {GATE: GATE.replace("total = total + self.gGm_.GetValue(self.HeadOffset(chunk, i))",
                              "given = (self.gGm_.GetValue(self.HeadOffset(chunk, j)) for j in range(i + 1))\n"
                              "                total = sum(given, Float(0))")}),
    Fault("6.8b", "the same: boundaries are not looked at", ("numeric",),
          seeded.OneSequence, TWO, {"token += length": "token = sum(lengths[: batch + 1])"}),
    Fault("6.10", "vllm-ascend #11807, #11438: sequences without tokens are left out of the list", ("numeric",),
          seeded.CompactChunks, inputs((2, 0, 2), dk=16, dv=1),
          {PROCESS: PROCESS.replace("self.Items()", "sorted(self.Items(), key=lambda item: item.length == 0)")}),
    Fault("6.10b", "the same: the length less 1 is below 0 and unsigned", ("refusal",),
          seeded.LastRowUnsigned, inputs((2, 0, 2), dk=16, dv=1),
          {"chunks = -(-item.length // self.chunkSize_)": "chunks = (item.length - 1) // self.chunkSize_ + 1"}),
    Fault("6.14", "mindspore-lite v1: the state goes through float16 from chunk to chunk", ("numeric",),
          seeded.HalvesBetweenChunks, inputs((25,), dk=4, dv=4, decay=0.01),
          {OUTER: OUTER.replace("chunk.length", "0, chunk.length, 1")}, plan=in_chunks(8)),
    Fault("6.16", "fla f636f5a1: no update of the state without g", ("numeric",),
          seeded.NoGateNoUpdate, seeded.base(None),
          {GATE: "            gate = None if self.gGm_ is None else self.gGm_.GetValue(self.HeadOffset(chunk, i))\n"
                 "            total = total + (Float(0) if gate is None else gate)"}),
    Fault("6.23", "mindspore-lite v1: scores and state at one address, of a block with several tiles",
          ("lifetime", "numeric"), seeded.StateOverScores, inputs((2,), dk=16, dv=32),
          {OVER: "overlap = not apart and (v_step >= dv or blocks > hv)"}, plan=in_tiles(16)),
    Fault("6.24", "mindspore-lite v1: the host counts Dk rows of the state, the device ceil8(Dk)", ("refusal",),
          ChunkGatedDeltaRule, inputs((1,), dk=68, dv=8), {"return self.tiling.buffer_num": "return 1"},
          plan=lambda shape: seeded.rows_as_they_are(tiling(shape)), variant_plan=tiling),
    Fault("6.29", "fla 80e69a56: the last row of an output is not written", ("nan",),
          seeded.LastRowNotWritten, inputs((3, 2), dk=4, dv=4),
          {WRITTEN: WRITTEN.replace("range(chunk.length)", "reversed(range(chunk.length))")}),
    Fault("6.30", "a result beyond float16 wraps around", ("numeric",),
          seeded.Wrapping, BEYOND, {HALVED: "asc.Adds(source, source, 0.0, count)"}, fits=WITHIN, scale=1.0),
    Fault("7.1", "no barrier between products and sums, which fall on them", ("race", "refusal"),
          alone("DotFp32"), inputs((2,), dk=64, dv=8),
          {SUMS: "asc.PipeBarrier(asc.PIPE_V)\n        if repeats:"}),
    Fault("7.3", "nobody writes the state of a sequence without tokens", ("nan",),
          alone("CopyState"), inputs((3, 0, 2), dk=4, dv=4), {COPIED: COPIED.replace("range(", "reversed(range(")
                                                              .replace("):", ")):")}),
    Fault("7.5", "the exponential of minus infinity halves it for ever", ("deadlock",),
          alone("ScalarExp"), seeded.infinite(inputs((3,), dk=4, dv=4)),
          {INFINITE: "if x < -1e4:\n            return Float(0)\n        if np.isinf(x):\n            return x"},
          fits=STEEP),
    Fault("7.7", "5 value heads of 2 key heads", ("refusal",),
          alone("QkHead", "CheckTiling"), inputs((2,), hk=2, hv=5, dk=16, dv=4),
          {"return head // (self.NV_ // self.NK_)": "return head * self.NK_ // self.NV_"},
          fits=inputs((2,), hk=2, hv=4, dk=4, dv=4)),
    Fault("7.7b", "2 value heads of 4 key heads, which the kernel alone would take one by one: the host's check",
          ("refusal",), alone("QkHead", "CheckTiling"), inputs((3,), hk=4, hv=2, dk=4, dv=4),
          {"return head // (self.NV_ // self.NK_)": "return head * self.NK_ // self.NV_"},
          fits=inputs((2,), hk=2, hv=4, dk=4, dv=4), host=True),
    Fault("7.9", "lengths of 6 tokens for 3", ("refusal",), alone("CheckTiling"), of_lengths(3, 3), NEGATED_CHECK,
          fits=of_lengths(3, 0)),
    Fault("7.9b", "the same: a negative length behind", ("refusal",), alone("CheckTiling"), of_lengths(4, -1),
          NEGATED_CHECK, fits=of_lengths(3, 0)),
    Fault("7.9c", "the same: a negative length in front, and no block has anything to do", ("nan",),
          alone("CheckTiling"), of_lengths(-2, 5), NEGATED_CHECK, fits=of_lengths(0, 3)),
    Fault("7.11", "all the rest of UB, of which the runtime has kept 8 KB", ("refusal",),
          ChunkGatedDeltaRule, inputs((1,), dk=4, dv=4), {"return self.tiling.buffer_num": "return 1"},
          plan=lambda shape: tiling(shape, ub=262_144), spec={"ub_usable": 253_952},
          variant_plan=lambda shape: tiling(shape, ub=253_952 - 1024)),
    Fault("7.12", "two buffers that the kernel has alone", ("refusal",),
          seeded.TwoBuffers, inputs((2,), dk=4, dv=4),
          {"return self.tiling.buffer_num": "return 2"}, variant_plan=lambda shape: tiling(shape, buffer_num=2)),
    Fault("7.13", "the cursor stays at the last slice, on which one more comes to lie", ("refusal",),
          seeded.FaithfulOneSliceMore, inputs((2,), dk=4, dv=4),
          {"MORE_SLICES: tuple[tuple[str, int], ...] = ()": 'MORE_SLICES = (("betaFp32", 64),)'},
          plan=lambda shape: seeded.counting_beta(tiling(shape)), base=seeded.OneSliceMore),
]  # fmt: skip
