"""
C++ core of mudd_core; the documented face is the Python package around it.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
__all__: list[str] = ['AtomicFolder', 'BatchSource', 'Batcher', 'Call', 'Comm', 'CommTimer', 'CutWeights', 'Executor', 'ExpertGroup', 'Fingerprint', 'Graph', 'LiveBytes', 'MixSchedule', 'MixedRows', 'NodeGradients', 'NodeMemory', 'NodeObserver', 'OpInput', 'OpOutput', 'OpSpec', 'OptimizerSetting', 'OptimizerSpec', 'Option', 'PackedRows', 'ParamStore', 'PeerError', 'PeerLeftError', 'PlannedRows', 'Role', 'RowRule', 'SafetensorsFile', 'ShardRecord', 'StepReport', 'TokenFileSpec', 'TrainStep', 'UpdateGroup', 'Values', 'add_own_optimizer', 'bf16_peak_gflops', 'check_levels', 'clear_requests', 'cpu_name', 'crc32c', 'crc32c_blocks', 'crc32c_combine', 'detected_isa', 'document_rows', 'fill_inputs', 'fit_line', 'fp32_order', 'free_space', 'install_stop_handlers', 'isa', 'isa_levels', 'join_ranks', 'learning_rate', 'list_folder', 'make_folders', 'memory_rows', 'num_threads', 'op_specs', 'optimizer_specs', 'peak_gflops', 'permute', 'phases', 'phases_of_schedules', 'philox', 'philox_key', 'principal_factors', 'quit_signals', 'random_normal', 'random_uniform', 'read_checked', 'read_file', 'read_gbps', 'remove_committed', 'remove_dead_temporaries', 'remove_stop_handlers', 'replace_file', 'request_stop', 'restore_set_aside', 'roles', 'sample', 'save_signal', 'schedules', 'set_num_threads', 'shuffled_index', 'stop_requested', 'stop_signal', 'stop_signals', 'table_rows', 'take_save_request', 'thread_ranks', 'tree_sum', 'verify_file', 'verify_tokens', 'warmups', 'write_shard']
class ShardRecord:
    """
    The sizes, places and checksums of a written file.
    """
    @property
    def bytes(self) -> int:
        ...
    @property
    def crc(self) -> int:
        ...
    @property
    def slices(self) -> list[tuple[int, int, list[int]]]:
        """
        (begin, end, block checksums) of each tensor, in order given.
        """
class LiveBytes:
    """
    Memory that a save reads while a run continues; see io/live_bytes.h.
    """
    def __init__(self, room: int) -> None:
        ...
    def end(self) -> None:
        """
        Read nothing more.
        """
    def lend(self, arrays: collections.abc.Sequence[typing.Any]) -> None:
        """
        Start with these arrays, in the order in which write_shard reads them; keep them until end().
        """
    def release(self) -> None:
        """
        Return when the arrays may change: copy up to `room` bytes, and wait for the rest to be written.
        """
    @property
    def seconds(self) -> float:
        """
        The seconds that `release` has taken since `lend`.
        """
class AtomicFolder:
    """
    A folder that appears whole or not at all; see io/atomic_folder.h.
    """
    def __init__(self, parent: str, name: str, id: str) -> None:
        ...
    def add_shard(self, file: str, tensors: collections.abc.Sequence[tuple[str, str, collections.abc.Sequence[int], typing.Any]], metadata: collections.abc.Sequence[tuple[str, str]]) -> ShardRecord:
        """
        Writes (name, dtype, shape, buffer) tensors to one safetensors file and syncs it; no copies. In place of a buffer a function may give it when its bytes are written.
        """
    def close(self) -> None:
        """
        Removes the folder unless it is committed.
        """
    def commit(self, manifest_file: str, manifest: str | bytes) -> None:
        """
        Writes the manifest, syncs, renames to the final name, syncs the parent.
        """
    def replace(self) -> None:
        """
        Puts the sealed folder in the place of a committed one, without an instant where neither is there.
        """
    def seal(self, manifest_file: str, manifest: str | bytes) -> None:
        """
        Writes the manifest and syncs; the folder keeps its temporary name.
        """
    @property
    def temporary(self) -> str:
        """
        Path of the folder until it is committed.
        """
class SafetensorsFile:
    """
    Header of a safetensors file, checked; tensors on demand.
    """
    def __init__(self, path: str) -> None:
        ...
    def read_tensor(self, index: int, out: typing.Any) -> None:
        """
        Fills a writable buffer of its size.
        """
    def tensors(self) -> list[tuple[str, str, tuple[int, ...], int, int]]:
        """
        (name, dtype, shape, begin, end) of each tensor, in the order of their bytes.
        """
    @property
    def metadata(self) -> dict[str, typing.Any]:
        ...
class PeerError(RuntimeError):
    pass
class PeerLeftError(PeerError):
    pass
class Comm:
    """
    The communication between the ranks of a run.
    """
    def all_gather(self, mine: bytes, site: tuple[str, int] = ('', 0)) -> list[bytes]:
        """
        Return the bytes of every rank, equal counts, in rank order.
        """
    def barrier(self, site: tuple[str, int] = ('', 0)) -> None:
        ...
    def broadcast(self, data: bytes, root: int, site: tuple[str, int] = ('', 0)) -> bytes:
        """
        Return the bytes of rank `root`; the others pass buffers of the same size.
        """
    def close(self, patience: float) -> bool:
        """
        Leave the job; false if the others did not arrive within `patience` seconds (0: no limit).
        """
    def counters(self) -> dict[str, tuple[int, int]]:
        """
        Return (messages, bytes) that this rank has sent between hosts, by purpose.
        """
    def fail(self, code: int, message: str) -> None:
        """
        End the job: waiting ranks get PeerError. Does not return if ranks are processes.
        """
    def set_phase(self, phase: str, step: int) -> None:
        """
        Set the activity of this rank; a sign of life for the watchdog.
        """
    def split_nodes(self) -> None:
        """
        Treat every rank as a separate host.
        """
    def watch(self, seconds: float) -> None:
        """
        End the job if a rank of the host shows no sign of life for this many seconds; 0: never.
        """
    @property
    def node(self) -> int:
        ...
    @property
    def node_rank(self) -> int:
        ...
    @property
    def node_size(self) -> int:
        ...
    @property
    def nodes(self) -> int:
        ...
    @property
    def rank(self) -> int:
        ...
    @property
    def shared_bytes_free(self) -> int:
        """
        Bytes of shared memory that this host may still allocate.
        """
    @property
    def world(self) -> int:
        ...
class NodeMemory:
    """
    Memory that the ranks of a host share.
    """
    def __init__(self, comm: Comm) -> None:
        ...
class ExpertGroup:
    """
    The ranks that share the experts of every mixture.
    """
    @typing.overload
    def __init__(self, comm: Comm, ranks: int, room: float = 0.0) -> None:
        """
        room: token rows that a training graph has memory for in a layer, as a multiple of an even load; 0: address space for all that ranks can send, of which a plan expects twice an even load.
        """
    @typing.overload
    def __init__(self, ranks: int, rank: int, world: int, room: float = 0.0) -> None:
        """
        For a plan: exchanges are not possible.
        """
    def set_spare(self, spare: float) -> None:
        """
        Set how much more than planned a run may use of the address space: 0 nothing, 1 (the default) all.
        """
    @property
    def ranks(self) -> int:
        ...
class NodeGradients:
    """
    An executor's gradient memory that its host can read.
    """
    def __init__(self, comm: Comm) -> None:
        ...
class CommTimer:
    """
    Times the messages of a training run on these ranks.
    """
    def __init__(self, comm: Comm, largest: int) -> None:
        ...
    def seconds(self, what: str, bytes: int, repeats: int) -> float:
        """
        Return the median of this rank; all ranks make the same call.
        """
class ParamStore:
    """
    Parameters of a model and their optimizer state, each in a flat buffer (plane); plane 0 has the weights.
    """
    def __init__(self, compute: str = 'float32') -> None:
        ...
    def allocate(self, booked_only: bool = False, memory: NodeMemory | None = None) -> None:
        """
        memory: shared by the ranks of a host, with one copy of the weights.
        """
    def cut(self, owners: int, owner: int, whole: collections.abc.Sequence[str], holds_slices: bool) -> None:
        """
        Before allocate: shard gradients and state across `owners` owners; holds_slices: the weights too, with only the slices of `owner` on this rank. whole: names whose matrices have one owner each.
        """
    def deal_experts(self, group: ExpertGroup) -> None:
        """
        Before allocate: keep only this rank's experts of every stack of matrices.
        """
    def declare(self, name: str, shape: collections.abc.Sequence[int], *, role: str, fan_in: int, fan_out: int, init: str, init_scale: float = 0.0, trainable: bool = True, stored: str = 'float32') -> int:
        ...
    def describe(self, name: str) -> dict[str, typing.Any]:
        ...
    def drop_packs(self, requests: int) -> None:
        """
        Free this process's copies after the first `requests`; no executor created since then may run again.
        """
    def expert_bytes(self, moments: collections.abc.Sequence[int]) -> dict[str, int]:
        """
        Return the bytes of sharded experts: weights, packed copies and these planes of moments; part of the sums over all parameters.
        """
    def held(self, plane: int, name: str) -> tuple[int, int]:
        """
        Return (begin, end): the elements that a plane has of a parameter.
        """
    def hold(self, name: str, begin: int, end: int) -> None:
        """
        Before allocate: keep only elements [begin, end) of this parameter, whole rows, on this rank.
        """
    def holds(self, plane: int, name: str) -> bool:
        """
        Return True if the plane has memory for some of this parameter.
        """
    def initialize(self, seed: int) -> None:
        """
        Fill every parameter from its declared init (Philox, by global element index).
        """
    def lend(self, name: str, array: typing.Any) -> None:
        """
        Before allocate: use the array, which must outlive the store, for this parameter, stored in 16 bits.
        """
    def names(self) -> list[str]:
        ...
    def owner_sizes(self, owners: int, whole: collections.abc.Sequence[str]) -> list[int]:
        """
        Return the number of elements of each owner after `cut`, without sharded experts.
        """
    def pack_at_use(self) -> None:
        """
        Let graphs recorded from now on pack 16-bit weights at use, and keep no copy.
        """
    def repack(self) -> None:
        ...
    def scale(self, name: str, *, lr: float = 1.0, eps: float = 1.0, decay: float = 1.0, independent: bool = False) -> None:
        """
        Factors of the optimizer for one parameter; independent: its decay is not multiplied by its rate.
        """
    def set(self, plane: int, name: str, array: typing.Any) -> None:
        ...
    def set_reader(self, reader: LiveBytes) -> None:
        """
        Release this reader of the planes before the next write to weights or moments.
        """
    def set_values(self, name: str, array: typing.Any) -> int:
        """
        Write fp32 values into a weight stored in any type; return the count of rounded values.
        """
    def shape(self, plane: int, name: str) -> tuple[typing.Any, ...]:
        """
        Return the shape of a whole parameter in a plane.
        """
    def share_packs(self, on: bool) -> None:
        """
        Place packed copies requested from now on in shared memory of the host; its ranks must make the same requests.
        """
    def shared(self, name: str) -> bool:
        """
        Return True if the ranks of a host have one copy of a weight.
        """
    def train_only(self, names: collections.abc.Sequence[str]) -> None:
        """
        Train these parameters in graphs and steps created from now on; all others are frozen.
        """
    def values(self, name: str) -> typing.Any:
        """
        Return the weights in fp32, a copy.
        """
    def view(self, plane: int, name: str, writable: bool = False) -> typing.Any:
        ...
    @property
    def allocated(self) -> bool:
        ...
    @property
    def compute(self) -> str:
        ...
    @property
    def elements(self) -> int:
        ...
    @property
    def expert_ranks(self) -> int:
        """
        The count of ranks that share the experts.
        """
    @property
    def expert_room(self) -> float:
        """
        The token rows that they have memory for in training, as a multiple of an even load; 0: see ExpertGroup.
        """
    @property
    def holds_all(self) -> bool:
        """
        True if all weights are on this rank; otherwise graphs gather them, and all ranks run the same graphs together.
        """
    @property
    def mapped_bytes(self) -> int:
        """
        Bytes of the lent weights that are read in place, not from packed copies.
        """
    @property
    def pack_requests(self) -> int:
        """
        Packed copies requested so far.
        """
    @property
    def packed_bytes(self) -> int:
        ...
    @property
    def plane_bytes(self) -> int:
        ...
    @property
    def planes(self) -> int:
        ...
    @property
    def state_bytes(self) -> int:
        ...
    @property
    def trained_elements(self) -> int:
        ...
class CutWeights:
    """
    Gathers weights of which each rank has a slice for the graphs that read them.
    """
    def __init__(self, store: ParamStore, comm: Comm) -> None:
        ...
class Graph:
    """
    The record of a model function.
    """
    def __init__(self, *, training: bool, samples: int, shards: int, compute: str = 'float32', expert_ranks: int = 1, expert_room: float = 0.0) -> None:
        ...
    def apply(self, arg0: str, arg1: dict[str, typing.Any], arg2: collections.abc.Sequence[int], arg3: str) -> list[int]:
        ...
    def custom(self, forward: typing.Any, backward: typing.Any, inputs: collections.abc.Sequence[int], label: str, whole: collections.abc.Sequence[bool] = []) -> list[int]:
        ...
    def dtype(self, arg0: int) -> str:
        ...
    def input(self, arg0: str, arg1: collections.abc.Sequence[int], arg2: str, arg3: bool) -> int:
        ...
    def parameter(self, arg0: ParamStore, arg1: str) -> int:
        ...
    def shape(self, arg0: int) -> tuple[int, ...]:
        ...
    def text(self) -> str:
        ...
class NodeObserver:
    """
    Sees each value of a step.
    """
class Fingerprint(NodeObserver):
    """
    Keeps a digest of each value of a step.
    """
    def __init__(self) -> None:
        ...
    def lines(self) -> list[tuple[str, int, str, str, str, list[int], str, int, int, str, list[float], list[str]]]:
        """
        (stage, run, place, op, value, shape, dtype, first element, first row, digest, samples, digests of rows) of each value, in the order of the step.
        """
class Values(NodeObserver):
    """
    Copies chosen values of a step.
    """
    def __init__(self, wanted: collections.abc.Sequence[tuple[str, int, str, str]], inner: NodeObserver | None = None) -> None:
        """
        wanted: (stage, run, place, value) of each. inner: another observer, which sees all values.
        """
    def kept(self) -> list[tuple[str, int, str, str, list[int], str, bytes]]:
        """
        (stage, run, place, value, shape, dtype, bytes) of each, in the order of the step.
        """
class Executor:
    """
    A planned graph with its arena.
    """
    def __init__(self, graph: Graph, store: ParamStore, *, losses: collections.abc.Sequence[int], keep: collections.abc.Sequence[int], runs_per_step: int = 1, reuse: bool = True, recompute: bool = False, shift: int = 0, poison: bool = False, check_finite: bool = False, gradient_rows: bool = True, cut_gradients: bool = False, gradients: NodeGradients | None = None) -> None:
        ...
    def attach(self, name: str, array: typing.Any) -> None:
        """
        Gives an external input its memory: this array, written in place.
        """
    def first_non_finite(self) -> str:
        ...
    def get(self, arg0: int) -> typing.Any:
        """
        A read-only view of a kept value; the next run overwrites it. Of a bf16 value: an fp32 copy.
        """
    def gradient(self, name: str) -> typing.Any:
        ...
    def memory_table(self) -> list[tuple[str, str, int, int, int, int]]:
        """
        (what, kind, bytes, first, last, offset) per buffer.
        """
    def observe(self, observer: NodeObserver | None) -> None:
        """
        Shows each value of the runs that follow to an observer.
        """
    def profile(self, on: bool, keep_calls: bool = False) -> None:
        """
        Times every node of the runs that follow.
        """
    def profile_table(self) -> list[tuple[str, str, int, float, float, float, float, float, int]]:
        """
        (label, phase, calls, seconds, seconds of the shortest call, last begin, last end, FLOPs a call, bytes a call) in running order.
        """
    def release(self) -> None:
        """
        Releases the memory of results and gradients until the next run.
        """
    def run(self, run: int = 0, cache_length: int = 0, *, seed: int = 0, step: int = 0, first_sample: int = 0) -> None:
        """
        seed, step, first_sample: of the random numbers that ops draw.
        """
    def set(self, arg0: str, arg1: typing.Any) -> None:
        ...
    def show_weights(self, observer: NodeObserver) -> None:
        """
        Shows the weights to an observer.
        """
    def take_calls(self) -> list[tuple[str, str, float, float]]:
        """
        (label, phase, begin, end) of every call since the last time, with profile(True, keep_calls=True).
        """
    def text(self) -> str:
        ...
    @property
    def arena_bytes(self) -> int:
        ...
    @property
    def flops(self) -> tuple[float, float, float]:
        """
        (FLOPs of the matmuls of one run, the same with every gradient computed, FLOPs of the loss). Before the first run no target is taken as ignored, afterwards as in the last run.
        """
    @property
    def gradient_bytes(self) -> int:
        ...
    @property
    def likely_bytes(self) -> int:
        """
        Memory that runs are planned to use in the arena, with twice an even load for experts of other ranks.
        """
    @property
    def runs_per_step(self) -> int:
        ...
    @property
    def weight_bytes(self) -> int:
        """
        Bytes of the weights that a run gathers, in memory that a host shares.
        """
class Call:
    """
    One op applied to NumPy arrays: forward(), then backward(). Used by the tape.
    """
    @staticmethod
    def custom(forward: typing.Any, backward: typing.Any, inputs: list[typing.Any], wants: collections.abc.Sequence[bool], whole: collections.abc.Sequence[bool] = [], cuts: collections.abc.Sequence[int] = []) -> Call:
        ...
    def __init__(self, op: str, options: dict[str, typing.Any], inputs: list[typing.Any], wants: collections.abc.Sequence[bool], cuts: collections.abc.Sequence[int] = [], cache_length: int = 0, compute: str = 'float32') -> None:
        ...
    def backward(self, dout: list[typing.Any], into: list[typing.Any], accumulate: collections.abc.Sequence[bool], round: collections.abc.Sequence[bool] = []) -> None:
        """
        Writes (or adds, where accumulate) the gradient of each input whose place in `into` is an array; round: to what bf16 can hold.
        """
    def forward(self) -> tuple[typing.Any, ...]:
        """
        Runs the op; returns its outputs as new arrays.
        """
    def passes_gradient(self) -> int:
        ...
    def rounded(self) -> list[bool]:
        """
        Per output: whether a graph of this compute type stores it in bf16.
        """
    def weight_like(self, i: int) -> bool:
        ...
class OpInput:
    """
    An input of an op; index: int32; state: written by forward, not in backward.
    """
    @property
    def index(self) -> bool:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def optional(self) -> bool:
        ...
    @property
    def state(self) -> bool:
        ...
class OpOutput:
    """
    An output of an op; loss: its gradient is 1 unless it is set.
    """
    @property
    def dtype(self) -> str:
        ...
    @property
    def has_gradient(self) -> bool:
        ...
    @property
    def loss(self) -> bool:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def repeated(self) -> bool:
        ...
class Option:
    """
    An option of an op or optimizer; its values have the type of `default`.
    """
    @property
    def choices(self) -> list[str]:
        ...
    @property
    def default(self) -> bool | int | float | str:
        ...
    @property
    def expected(self) -> str:
        """
        The allowed values as a phrase.
        """
    @property
    def help(self) -> str:
        ...
    @property
    def high(self) -> float:
        """
        Largest number, or inf.
        """
    @property
    def low(self) -> float:
        """
        Smallest number, or -inf.
        """
    @property
    def name(self) -> str:
        ...
class OpSpec:
    """
    The declaration of an op.
    """
    @property
    def backward_help(self) -> str:
        """
        Notes on the gradients.
        """
    @property
    def help(self) -> str:
        """
        Formula and shapes of inputs; the first line is a summary.
        """
    @property
    def inputs(self) -> list[OpInput]:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def options(self) -> list[Option]:
        ...
    @property
    def outputs(self) -> list[OpOutput]:
        ...
    @property
    def repeated(self) -> list[OpInput]:
        """
        Inputs that follow as a group, any number of times.
        """
class BatchSource:
    """
    Sequences by global sample index; see data/batch_source.h.
    """
    def fill(self, first_sample: int, inputs: numpy.ndarray, targets: numpy.ndarray, parts: dict[str, typing.Any] = {}) -> int:
        """
        Fill int32 (samples, seq_len) arrays with samples first_sample, ...; return the count of targets that are not ignored.
        """
    def repeat(self, samples: int) -> None:
        """
        Repeat the first samples; 0 ends that.
        """
    @property
    def parts(self) -> list[str]:
        """
        Names of the inputs in addition to inputs and targets.
        """
    @property
    def rows(self) -> int:
        """
        Sequences of an epoch; for validation of all data.
        """
    @property
    def seq_len(self) -> int:
        ...
class Batcher(BatchSource):
    """
    Batches of token windows; see data/batcher.h.
    """
    def __init__(self, *, path: str, offset: int, count: int, width: int, vocab_size: int, block_crcs: collections.abc.Sequence[int], shuffled: bool, seq_len: int, seed: int, pad_id: int) -> None:
        ...
    def start_of(self, sample: int) -> int:
        """
        Position of the first token of a sample.
        """
    def verify(self) -> None:
        """
        Compares every block with its checksum; FormatError names a damaged one.
        """
    @property
    def tokens(self) -> int:
        ...
class TokenFileSpec:
    """
    The position of the ids in a file; see data/token_file.h.
    """
    def __init__(self, *, path: str, offset: int, count: int, width: int, vocab_size: int, block_crcs: collections.abc.Sequence[int]) -> None:
        ...
class RowRule:
    """
    The rule from the ids of a sequence to inputs and targets; see data/row_batcher.h.
    """
    def __init__(self, shift: str, *, pad_id: int = 0, bos_id: int = 0, stop_id: int = -1, ignored_id: int = -1, pad_counts: bool = False) -> None:
        ...
class PlannedRows(BatchSource):
    """
    Sequences whose ids are pieces of a token file; see data/row_plan.h.
    """
    def pieces(self, sample: int) -> list[tuple[int, int, bool]]:
        """
        (First id, number of ids, whether they continue the document before) of each piece of a sequence.
        """
class PackedRows(PlannedRows):
    """
    Sequences packed first-fit from documents; see data/packed_rows.h.
    """
    def __init__(self, file: TokenFileSpec, seq_len: int, *, starts: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64], longest: int, tail: int, batch_size: int, workers: int = 1, epochs: int = 0, seed: int = 0, shuffle: bool = True, index: str = '') -> None:
        ...
    def batches(self) -> int:
        """
        Batches before the data end, the last one of each worker included.
        """
    def cursor(self, batch: int) -> tuple[int, list[int]]:
        """
        Turn of a batch, and places of the workers of that turn and of the following ones.
        """
    def start_of(self, batch: int) -> int:
        """
        Place of the first document of a batch in its worker's stream.
        """
class MixSchedule:
    """
    The sources of a mixture by sample index; see data/mix_schedule.h.
    """
    def __init__(self, phases: collections.abc.Sequence[tuple[int, collections.abc.Sequence[int]]]) -> None:
        ...
    def counts(self, samples: int) -> list[int]:
        """
        Return the samples of each source among the first `samples`.
        """
    def places(self, first_sample: int, n_samples: int) -> tuple[typing.Any, ...]:
        """
        Return the source of each sample, int32 (samples,), and its index in the source, int64 (samples,).
        """
    @property
    def n_sources(self) -> int:
        ...
class MixedRows(BatchSource):
    """
    Sequences of several sources; see data/mixed_rows.h.
    """
    def __init__(self, sources: list[typing.Any], schedule: MixSchedule, *, rows: int) -> None:
        ...
class Role:
    """
    A role of parameters.
    """
    @property
    def kind(self) -> str:
        """
        matrix, table (a row for each token), rows (of n-grams) or vector.
        """
    @property
    def name(self) -> str:
        ...
class OptimizerSetting(Option):
    """
    An option of an optimizer, and how the config sets it.
    """
    @property
    def field(self) -> str:
        """
        Its field in the config's section optim.
        """
    @property
    def in_groups(self) -> bool:
        """
        True if a group of optim.groups may set it separately.
        """
    @property
    def unit(self) -> str:
        """
        The unit of an integer.
        """
class OptimizerSpec:
    """
    The declaration of an optimizer.
    """
    @property
    def aliases(self) -> list[str]:
        ...
    @property
    def by_default(self) -> list[str]:
        """
        The ones among them that optim.name updates with it.
        """
    @property
    def by_rows(self) -> bool:
        """
        It has a moment and the last update of each row.
        """
    @property
    def help(self) -> str:
        ...
    @property
    def moments(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def narrow_second(self) -> bool:
        """
        The second moment may be stored in bf16.
        """
    @property
    def rest(self) -> str:
        """
        The optimizer of all other parameters then.
        """
    @property
    def settings(self) -> list[OptimizerSetting]:
        ...
    @property
    def takes(self) -> list[str]:
        """
        The roles of the matrices that it can update; none: every parameter.
        """
    @property
    def whole_matrices(self) -> bool:
        ...
class StepReport:
    """
    The result of one update.
    """
    @property
    def aux_loss(self) -> float:
        ...
    @property
    def finite(self) -> bool:
        ...
    @property
    def flags(self) -> int:
        """
        The flags of all ranks together.
        """
    @property
    def grad_norm(self) -> float:
        ...
    @property
    def loss(self) -> float:
        ...
    @property
    def loss_sum(self) -> float:
        ...
    @property
    def objective(self) -> float:
        """
        The loss that has the gradients, like `loss` otherwise.
        """
    @property
    def spike(self) -> bool:
        ...
    @property
    def spoilt(self) -> bool:
        ...
    @property
    def stopped(self) -> bool:
        ...
    @property
    def weight_sum(self) -> float:
        ...
class UpdateGroup:
    """
    An optimizer and the names that it updates; none: all others.
    """
    def __init__(self, *, optimizer: str, settings: collections.abc.Mapping[str, bool | int | float | str] = {}, moment: str = 'float32', second: str = 'float32', weight_decay: float, parameters: collections.abc.Sequence[str] = []) -> None:
        """
        settings: by the names in optimizer_specs(); missing ones have defaults.
        """
class TrainStep:
    """
    All micro-batches, clip, update and repacking in one call.
    """
    def __init__(self, executor: Executor, loss: int, count: int, *, groups: collections.abc.Sequence[UpdateGroup], eps: float, clip: float, normalize: str, peak_lr: float = 0.0, moment_planes: collections.abc.Sequence[int] = [], seed: int = 0, aux: int = -1, objective: int = -1, metrics: collections.abc.Sequence[int] = [], gradients: NodeGradients | None = None, batch_sums: bool = False, first_sample: int = 0, batch_size: int = 0, run_stride: int = 0, average: bool = False, average_plane: int = -1, samples: int = -1, wire: str = 'float32') -> None:
        """
        gradients: of the executor, if ranks share the batch; this rank processes the samples of batch_size from first_sample, in each graph run run_stride samples further (0: the samples of a run). batch_sums: the graph adds over the batch. objective: the loss with the gradients, if it is not `loss`. average: keep a mean of the weights; average_plane: the plane of another step, -1: a new one. samples: a value float32 [B, W] whose rows `samples` returns. wire: bfloat16 for gradients between hosts as bf16, of ranks that do not shard them.
        """
    def add_to_average(self, weight: float) -> None:
        """
        average += weight (w - average); 1 copies the weights.
        """
    def observe(self, observer: NodeObserver | None) -> None:
        """
        Shows each value of the steps that follow to an observer; they run slower.
        """
    def part(self, name: str) -> tuple[int, int]:
        """
        (begin, end): the elements of a parameter that are updated here, row by row.
        """
    def run(self, batcher: BatchSource, *, step: int, updates: int, lr: float, limits: tuple[float, float] | None = None, flags: int = 0, average: float = 0.0) -> StepReport:
        ...
    def run_on(self, arrays: dict[str, typing.Any], *, step: int, updates: int, lr: float, batch_size: int, limits: tuple[float, float] | None = None, flags: int = 0, average: float = 0.0) -> StepReport:
        ...
    def settle(self) -> None:
        """
        Returns when the weights of the last update are here, from all nodes; all ranks call it together.
        """
    def swap_average(self) -> None:
        """
        Exchanges the average and the weights; all ranks call it together, while none reads the weights.
        """
    @property
    def average_plane(self) -> int:
        """
        Its plane in the store.
        """
    @property
    def metrics(self) -> typing.Any:
        """
        One value per metric: its sum over the samples of the last step. The next step overwrites the array.
        """
    @property
    def moment_planes(self) -> list[int]:
        """
        Planes in the store of the first and second moments, and of the row and column moments of a factored one.
        """
    @property
    def samples(self) -> typing.Any:
        """
        The rows of the value `samples` of the last step on this rank, in the order of its graph runs, flattened. The next step overwrites the array.
        """
    @property
    def scratch_bytes(self) -> int:
        """
        Of the optimizer.
        """
    @property
    def seconds(self) -> dict[str, float]:
        """
        The seconds of the last step by stage. messages: only exchanging with other ranks, or waiting for them. hidden: with messages in transit while this rank computed; all others add up to the step.
        """
def add_own_optimizer(name: str, update: typing.Any, moments: collections.abc.Sequence[str], settings: dict[str, typing.Any], whole: bool) -> OptimizerSpec:
    """
    Makes a function in Python known as an optimizer; a later one takes the place of an earlier one.
    """
def bf16_peak_gflops(threads: int, tries: int = 20) -> float:
    """
    The same for bf16 operands and fp32 sums, with the bf16 instructions of the active level.
    """
def check_levels() -> None:
    """
    ValueError for a MUDD_MAX_ISA or MUDD_EMULATE that is no level, and for variables of the testing build.
    """
def clear_requests() -> None:
    """
    Clear all requests.
    """
def cpu_name() -> str:
    """
    Name of the CPU as it reports itself.
    """
def crc32c(data: typing.Any, before: int = 0) -> int:
    """
    CRC-32C of a buffer's bytes; before: the checksum of the preceding bytes.
    """
def crc32c_blocks(data: typing.Any) -> list[int]:
    """
    CRC-32C of each block of 1 MiB, the last one shorter.
    """
def crc32c_combine(crc_a: int, crc_b: int, bytes_b: int) -> int:
    """
    CRC-32C of A followed by B from both checksums and the length of B.
    """
def detected_isa() -> str:
    """
    Instruction-set level of this CPU.
    """
def document_rows(file: TokenFileSpec, rule: RowRule, seq_len: int, *, starts: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64], longest: int, tail: int, first: int, count: int, wraps: bool) -> PlannedRows:
    """
    One document per sequence, `count` of them from document `first`.
    """
def fill_inputs(batcher: BatchSource, executor: Executor, first_sample: int) -> None:
    """
    Fills the inputs of a graph run from a batcher.
    """
def fit_line(x: collections.abc.Sequence[float], y: collections.abc.Sequence[float]) -> tuple[float, float, float]:
    """
    (slope, intercept, standard error of the slope) of the least-squares line.
    """
def fp32_order() -> int:
    """
    Lanes that sums of fp32 numbers are made in, at every instruction-set level; other lanes give other bits.
    """
def free_space(path: str) -> int:
    """
    Bytes this user may still write there.
    """
def install_stop_handlers(says: bool = True) -> None:
    """
    Handles the signals of stop_signals() and save_signal(); a second one of quit_signals() exits at once. says: print a line at the first request.
    """
@typing.overload
def isa() -> str:
    """
    Instruction-set level the kernels are chosen for (capped by MUDD_MAX_ISA).
    """
@typing.overload
def isa(*, detail: typing.Literal[False]) -> str:
    """
    As without detail.
    """
@typing.overload
def isa(*, detail: typing.Literal[True]) -> dict[str, dict[str, str]]:
    """
    Kernels of each op and optimizer, and the level of the row that runs on this CPU; conversions and sums, which all ops share, are left out.
    """
def isa_levels() -> list[str]:
    """
    All instruction-set levels, the lowest first.
    """
def join_ranks(transport: typing.Any, debug: bool, hang_timeout: float, chunk_bytes: int, facts: str, join_timeout: float) -> tuple[Comm, str]:
    """
    The Comm over a transport, which all ranks make together, and a warning or ''. facts: lines 'name=value' that all ranks must give alike within join_timeout seconds: RuntimeError on rank 0 if not, PeerError on the others.
    """
def learning_rate(schedule: str, t: int, *, peak: float, steps: int, warmup_steps: int = 0, final_ratio: float = 0.0, decay_steps: int = 0, warmup: str = 'next', phases: collections.abc.Sequence[tuple[str, int, float, float]] = []) -> float:
    """
    Learning rate of update t (from 0): schedule of schedules(), warmup of warmups(). phases: (kind, steps, from, to) each, with a kind of phases_of_schedules(), and factors of the peak.
    """
def list_folder(path: str) -> list[tuple[str, bool]]:
    """
    (name, is a folder) of each entry, by name.
    """
def make_folders(path: str) -> None:
    """
    Makes a folder and those above it that are missing, durably.
    """
def memory_rows(ids: typing.Annotated[numpy.typing.ArrayLike, numpy.int32], lengths: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], counts: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], rule: RowRule, seq_len: int, vocab_size: int) -> PlannedRows:
    """
    Sequence r is the next counts[r] documents of int32 ids in memory, with these lengths.
    """
def num_threads() -> int:
    """
    Threads that the next call will use.
    """
def op_specs() -> list[OpSpec]:
    """
    The declarations of all ops.
    """
def optimizer_specs() -> list[OptimizerSpec]:
    """
    All optimizers of the core.
    """
def peak_gflops(threads: int, tries: int = 20) -> float:
    """
    GFLOP/s of fp32 multiply-adds in registers at the active level, measured with `threads` threads (2 ms a try).
    """
def permute(index: int, n: int, seed: int, purpose: str, epoch: int = 0) -> int:
    """
    Image of an index under the keyed permutation of [0, n).
    """
def phases() -> list[str]:
    """
    Return the phases of a rank, in the order of a step.
    """
def phases_of_schedules() -> list[str]:
    """
    The kinds of a schedule's phases.
    """
def philox(counter: typing.Annotated[collections.abc.Sequence[int], "FixedSize(4)"], key: typing.Annotated[collections.abc.Sequence[int], "FixedSize(2)"]) -> typing.Annotated[list[int], "FixedSize(4)"]:
    """
    Return four 32-bit values of Philox4x32-10.
    """
def philox_key(seed: int, purpose: str) -> typing.Annotated[list[int], "FixedSize(2)"]:
    """
    The key of the random numbers of a purpose.
    """
def principal_factors(w: typing.Any, rank: int, scale: float) -> tuple[typing.Any, typing.Any]:
    """
    (a, b) with scale a b = the part of w along its `rank` largest singular values, each factor its root.
    """
def quit_signals() -> list[int]:
    """
    Return the stop signals that exit at once if a stop is already requested.
    """
def random_normal(begin: int, end: int, *, seed: int, purpose: str, stddev: float = 1.0) -> numpy.typing.NDArray[numpy.float32]:
    """
    Elements [begin, end) of the normal tensor of (seed, purpose), float32.
    """
def random_uniform(begin: int, end: int, *, seed: int, purpose: str, low: float = 0.0, high: float = 1.0) -> numpy.typing.NDArray[numpy.float32]:
    """
    Elements [begin, end) of the uniform tensor of (seed, purpose), float32.
    """
def read_checked(path: str, range: tuple[str, int, int, collections.abc.Sequence[int]], out: typing.Any, skip: int = 0) -> None:
    """
    Read len(out) bytes of a range, from its byte `skip` on, into a writable buffer; verify the blocks' checksums.
    """
def read_file(path: str, limit: int) -> bytes:
    """
    A whole file of at most `limit` bytes.
    """
def read_gbps(threads: int) -> float:
    """
    GB/s that `threads` threads read from memory, measured (512 MiB are touched for a moment).
    """
def remove_committed(parent: str, name: str, id: str) -> None:
    """
    Remove a folder so that no half of it ever appears under its name.
    """
def remove_dead_temporaries(parent: str, name: str = '') -> list[str]:
    """
    Remove temporary folders of dead writers, with a name only of that folder; return their names.
    """
def remove_stop_handlers() -> None:
    """
    Restore the previous handlers.
    """
def replace_file(path: str, data: bytes) -> None:
    """
    Writes a file so that a crash leaves the old one or the new one.
    """
def request_stop() -> None:
    """
    Request a stop without a signal.
    """
def restore_set_aside(parent: str) -> None:
    """
    Finish replacements of folders that a crash interrupted.
    """
def roles() -> list[Role]:
    """
    All roles of parameters.
    """
def sample(logits: typing.Any, *, temperature: float, top_k: int, top_p: float, seed: int, position: int) -> int:
    """
    Token drawn from logits float32 [V]; a pure function of its arguments.
    """
def save_signal() -> int:
    """
    Return the signal that requests a save.
    """
def schedules() -> list[str]:
    """
    The learning rates after warm-up.
    """
def set_num_threads(n: int) -> None:
    """
    Set the thread count; 0 means the default (OMP_NUM_THREADS or the CPU mask).
    """
def shuffled_index(index: int, n: int, seed: int) -> int:
    """
    Image of an index in the record order of the loader grain.
    """
def stop_requested() -> bool:
    """
    Return True if a stop is requested.
    """
def stop_signal() -> int:
    """
    Return the signal that requested the stop, or 0.
    """
def stop_signals() -> list[int]:
    """
    Return the signals that request a stop.
    """
def table_rows(file: TokenFileSpec, rule: RowRule, seq_len: int, *, begins: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], firsts: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], counts: typing.Annotated[numpy.typing.ArrayLike, numpy.int64], buffer: int = 0, seed: int = 0, wraps: bool = True) -> PlannedRows:
    """
    Sequence r is the pieces begins[r] to begins[r + 1] of a table of id ranges.
    """
def take_save_request() -> bool:
    """
    Return True once after a SIGUSR2.
    """
def thread_ranks(world: int, node_size: int, debug: bool = False, hang_timeout: float = 0.0, chunk_bytes: int = 1073741824) -> list[Comm]:
    ...
def tree_sum(values: typing.Any) -> float:
    """
    Sum of float64 [S] by the balanced binary tree over shards.
    """
def verify_file(path: str, bytes: int, crc: int, ranges: collections.abc.Sequence[tuple[str, int, int, collections.abc.Sequence[int]]]) -> None:
    """
    Read a whole file and compare size, block checksums and file checksum; FormatError names the difference.
    """
def verify_tokens(*, path: str, offset: int, count: int, width: int, vocab_size: int, block_crcs: collections.abc.Sequence[int]) -> None:
    """
    Compares the ids of a token file with their checksums; FormatError names a block.
    """
def warmups() -> list[str]:
    """
    The forms of the warm-up.
    """
def write_shard(folder: str, file: str, tensors: collections.abc.Sequence[tuple[str, str, collections.abc.Sequence[int], typing.Any]], metadata: collections.abc.Sequence[tuple[str, str]], live: LiveBytes | None = None) -> ShardRecord:
    """
    Writes and syncs a safetensors file in a folder that an AtomicFolder of another process holds. live: read the tensors' bytes through it, in the order of its arrays.
    """
