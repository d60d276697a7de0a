"""The whole configuration of a run: frozen, nested, typed; every field has a meaning and a unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass

from mudd_core.base.errors import UserError
from mudd_core.config.data import DataConfig, HubConfig, StorageConfig, with_strings
from mudd_core.config.families import FAMILIES, ModelConfig, TransformerPPConfig
from mudd_core.config.fields import FieldInfo, opt, walk
from mudd_core.config.log import LogConfig
from mudd_core.config.mesh import DistConfig, MeshConfig
from mudd_core.config.optim import OptimConfig
from mudd_core.config.pipelines import PROTOCOLS, spec_of
from mudd_core.config.sections import explain_assignment, section_of
from mudd_core.config.train import MICRO_BATCH_SIZE, TrainConfig
from mudd_core.config.tune import LoraConfig, TuneConfig

_SEEDS = 2**64 - 1
LOSSES = ("tokens", "dpo", "orpo")  # of loss.kind


@dataclass(frozen=True)
class LossConfig:
    """Loss."""

    normalize: str = opt(
        "valid",
        "mean that is the loss: valid = over targets that are not ignored; all_slots = over all "
        "positions; micro_mean = over the micro-batches' means",
        choices=("valid", "all_slots", "micro_mean"),
    )
    kind: str = opt(
        "tokens",
        "loss: tokens = cross-entropy of the targets; dpo and orpo = of pairs of answers, prompt, chosen "
        "and rejected (docs/maths/preferences.md)",
        choices=LOSSES,
        later=True,
    )
    beta: float = opt(0.1, "dpo: scale of the margin; orpo: weight of the odds ratio", low=0.0, later=True)
    nll: str = opt(
        "all",
        "orpo: tokens of the negative log-likelihood: all = the prompt and the chosen answer, averaged over the batch, "
        "as in trl; answer = the chosen answer, averaged in each pair, as in the paper",
        choices=("all", "answer"),
        later=True,
    )
    packed_pairs: int = opt(
        1,
        "dpo, orpo: most pairs whose answers share two sequences; more pairs need fewer padded tokens",
        "pairs",
        low=1,
        high=64,
        later=True,
    )
    label_smoothing: float = opt(
        0.0,
        "tokens: probability that is taken from each target and spread over all tokens; dpo: probability that a "
        "pair is swapped, at most 0.5",
        "fraction",
        low=0.0,
        high=1.0,
        later=True,
    )
    z: float = opt(
        0.0,
        "tokens: z-loss, the factor of the squared logarithm of the softmax's denominator (docs/maths/losses.md)",
        low=0.0,
        later=True,
    )
    teacher: str = opt(
        "",
        "file of the command teach, whose probabilities are learned too (docs/maths/distillation.md); empty = none",
        free=True,
        later=True,
    )
    teacher_weight: float = opt(
        0.5,
        "weight of the divergence from the teacher; the cross-entropy has the rest",
        "fraction",
        low=0.0,
        high=1.0,
        later=True,
    )

    @property
    def of_pairs(self) -> bool:
        """True if the loss compares the answers of pairs."""
        return self.kind != "tokens"

    @property
    def is_regularized(self) -> bool:
        """True if training adds label smoothing or the z-loss to the cross-entropy."""
        return not self.of_pairs and (self.label_smoothing > 0 or self.z > 0)


@dataclass(frozen=True)
class EvalConfig:
    """Validation."""

    max_batches: int = opt(
        0, "most batches per validation, also for the command validate; 0 = all", "batches", low=0, free=True
    )
    batch_size: int = opt(
        0, "sequences per validation batch; 0 = train.batch_size", "sequences", low=0, free=True
    )
    protocol: str = opt(
        "auto",
        "rule that selects the validation sequences and averages their losses; auto = the rule of "
        "data.pipeline",
        choices=("auto", *PROTOCOLS),
        later=True,
    )
    documents: int = opt(
        0, "number of documents to validate, starting with the first; 0 = all", "documents", low=0, later=True
    )
    at_start: bool = opt(False, "also validate before the first update", free=True)
    off: bool = opt(
        False,
        "do not validate after any update, not even the last one; the command validate still works",
        free=True,
        later=True,
    )
    every_tokens: int = opt(
        0,
        "validation interval in tokens; 0 = use train.eval_every",
        "tokens",
        low=0,
        high=2**62,
        later=True,
    )
    target_loss: float = opt(
        0.0,
        "save and end the run if the validation loss is at most this value; 0 = never",
        low=0.0,
        free=True,
    )


@dataclass(frozen=True)
class SampleConfig:
    """Text generation."""

    every: int = opt(
        0,
        "print a sample at the first validation after every N steps, and at the last validation; 0 = never",
        "steps",
        low=0,
        free=True,
    )
    prompt: str = opt(
        "",
        "prompt of these samples, and of the command sample without --prompt; empty = start a new document",
        free=True,
    )
    temperature: float = opt(
        0.8, "divisor of the logits; 0 = greedy: always the likeliest token", low=0.0, free=True
    )
    top_k: int = opt(0, "keep only the k likeliest tokens; 0 = all", "tokens", low=0, free=True)
    top_p: float = opt(
        0.95,
        "nucleus sampling (top-p): keep the likeliest tokens with this total probability; 1 = all",
        "fraction",
        low=0.0,
        high=1.0,
        free=True,
    )  # must be above 0; check.py has the rule
    max_tokens: int = opt(200, "largest number of new tokens", "tokens", low=1, free=True)
    seed: int = opt(0, "random seed of sampling", low=0, high=_SEEDS, free=True)
    window: str = opt(
        "stop",
        "at model.max_seq_len tokens: stop = end the sample; ring = continue, with each new token "
        "replacing the oldest one in the KV cache",
        choices=("stop", "ring"),
        free=True,
    )
    bos: bool = opt(
        True,
        "start a prompt with the BOS token if the tokenizer that came with the weights adds one",
        free=True,
        later=True,
    )
    special_tokens: bool = opt(
        True,
        "encode names of special tokens in a prompt as special tokens; false = as plain text, for "
        "untrusted prompts",
        free=True,
        later=True,
    )
    prompt_tokens: int = opt(
        128,
        "mu-Transformer's --mode=sample: length of the prompts, which are starts of validation sequences",
        "tokens",
        low=1,
        free=True,
        later=True,
    )


@dataclass(frozen=True)
class StartConfig:
    """The weights from which a new run starts, instead of random ones.

    With tune.method=lora, the base of every start.
    """

    load_parameters_path: str = opt(
        "",
        "weights to start from: a work directory, a checkpoint's step folder or a safetensors file; "
        "empty = random weights",
    )
    load_parameters_path_slot_number: int = opt(
        -1, "TokenFormer: number of slots to load for q, k and v; -1 = all of them", "slots", low=-1
    )
    grow_init: str = opt(
        "random",
        "TokenFormer: slots that are not loaded have random values, zero keys, or zero keys and values",
        choices=("random", "zero_keys", "zero_both"),
    )
    keep_optimizer: bool = opt(
        False,
        "also load the moments and their step count; moments of new parameters are zero; false = a "
        "new optimizer state",
    )
    keep_step: bool = opt(
        False,
        "continue at the step of the loaded weights, as a resumed run; needs keep_optimizer",
        later=True,
    )
    force: bool = opt(
        False,
        "allow start.grow_init=zero_both, whose new slots can never learn, and a tokenizer that "
        "differs from the source's",
    )


@dataclass(frozen=True)
class Sections:
    """The sections of a Config, and values derived from several of them."""

    name: str = opt("run", "name of the run; the default work directory is runs/<name>", free=True)
    model: ModelConfig = field(default_factory=TransformerPPConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)
    start: StartConfig = field(default_factory=StartConfig)
    tune: TuneConfig = field(default_factory=TuneConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    dist: DistConfig = field(default_factory=DistConfig)
    log: LogConfig = field(default_factory=LogConfig)
    hub: HubConfig = field(default_factory=HubConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)

    def __post_init__(self) -> None:
        for item in fields(self):
            value, cls = getattr(self, item.name), item.default_factory
            if not isinstance(cls, type) or is_dataclass(value):
                continue
            if not isinstance(value, Mapping):
                wanted = f"{cls.__name__} or a dict of its fields"
                raise UserError(f"[config] {item.name}: expected {wanted}, got {type(value).__name__}")
            object.__setattr__(self, item.name, section_of(cls, value, item.name))
        if self.data.mix or self.of_mixture:
            object.__setattr__(self, "data", with_strings(self.data))

    @property
    def of_mixture(self) -> tuple[str, ...]:
        """The fields of a mixture that are set, except data.mix."""
        data = self.data
        named = {
            "sources": data.sources,
            "mix_phases": data.mix_phases,
            "mix_until": data.mix_until != "steps",
        }
        return tuple(f"data.{name}" for name, value in named.items() if value)

    @property
    def order_seed(self) -> int:
        """The seed of the data order: data.seed, or train.seed if that is -1."""
        return self.train.seed if self.data.seed < 0 else self.data.seed

    @property
    def bound_fields(self) -> tuple[str, ...]:
        """Fields that usually may change on resume, but not with the other values of this config."""
        return (MICRO_BATCH_SIZE,) if self.loss.normalize == "micro_mean" else ()

    def target_counts_at(self, step: int) -> bool:
        """Return True if a validation at `step` is in the MLPerf log and compared with eval.target_loss."""
        # The benchmark's program logs and compares at multiples of log_frequency; runs without log.mllog at every
        # validation.
        return not self.log.mllog or step % self.train.log_every == 0

    @property
    def schedule_steps(self) -> int:
        """Number of updates of warm-up and decay together."""
        return self.optim.schedule_steps or self.train.steps


for _item in fields(Sections):
    if isinstance(_item.default_factory, type):
        explain_assignment(_item.default_factory, _item.name)
for _family in FAMILIES.values():
    explain_assignment(_family.config, "model")


def fields_of_all() -> list[FieldInfo]:
    """Return the fields of the configs of all families, each path once."""
    found: dict[str, FieldInfo] = {}
    for family in FAMILIES.values():
        found |= {info.path: info for info in walk(Sections(model=family.config()))}
    return list(found.values())


def shard_count(config: Sections) -> int:
    """Return the logical shards in use: train.logical_shards, capped at the largest power of two up to the batch
    size.
    """
    return config.train.shard_count()


def protocol_of(config: Sections) -> str:
    """Return the effective protocol: eval.protocol, else the protocol of data.pipeline."""
    asked = config.eval.protocol
    return spec_of(config.data.pipeline).protocol if asked == "auto" else asked


def validation_batch(config: Sections) -> int:
    """Return the number of sequences in a validation batch."""
    return config.eval.batch_size or config.train.batch_size


def lora_of(config: Sections) -> LoraConfig | None:
    """Return the adapters of a run, or None if it trains none."""
    return config.lora if config.tune.method == "lora" else None
