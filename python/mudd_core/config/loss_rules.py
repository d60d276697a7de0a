"""Rules of the section `loss`: pairs of answers, teachers, label smoothing and the z-loss."""

from __future__ import annotations

from mudd_core.config.schema import LossConfig, Sections


def loss_faults(config: Sections) -> list[str]:
    """Return the broken rules of a loss that is not the default one."""
    return _pair_faults(config) + _regularizer_faults(config.loss)


def _pair_faults(config: Sections) -> list[str]:
    """Return the broken rules of a loss on pairs, whose sequences 2i and 2i + 1 are in one logical shard."""
    loss, train, faults = config.loss, config.train, pair_field_faults(config)
    if not loss.of_pairs:
        return faults
    why = f"loss.kind={loss.kind}"
    if config.data.pipeline != "chat":
        faults.append(f"data.pipeline: expected chat for {why}, got {config.data.pipeline}")
    if loss.kind == "dpo" and not config.start.load_parameters_path:
        faults.append("start.load_parameters_path: expected the reference of loss.kind=dpo, got none")
    shards = train.shard_count()
    if train.batch_size % (2 * shards):
        remedy = "set train.logical_shards to a power of two of at most train.batch_size / 2"
        faults.append(
            f"train.batch_size: expected whole pairs in each of {shards} logical shards for {why}, got "
            f"{train.batch_size} sequences; {'set an even number' if train.batch_size % 2 else remedy}"
        )
    if config.eval.batch_size % 2:
        faults.append(f"eval.batch_size: expected whole pairs for {why}, got {config.eval.batch_size}")
    return faults


def pair_field_faults(config: Sections) -> list[str]:
    """Return the broken rules of a loss on pairs that concern neither the pipeline nor the batch."""
    loss, faults = config.loss, list[str]()
    why = f"loss.kind={loss.kind}"
    if loss.kind != "orpo" and loss.nll != "all":
        faults.append(f"loss.nll: expected all for {why}, got {loss.nll}; only loss.kind=orpo has it")
    if not loss.of_pairs:
        if loss.packed_pairs > 1:
            faults.append(
                f"loss.packed_pairs: expected 1 for {why}, got {loss.packed_pairs}; conversations are always packed"
            )
        return faults
    if config.data.loss_on == "all":
        faults.append(f"data.loss_on: expected assistant or last for {why}, got all")
    if loss.normalize != "valid":
        faults.append(f"loss.normalize: expected valid, the mean over pairs, for {why}, got {loss.normalize}")
    if loss.teacher:
        faults.append(
            f"loss.teacher: expected no teacher for {why}, got {loss.teacher}; leave one of the two out"
        )
    most = 0.5 if loss.kind == "dpo" else 0
    if loss.label_smoothing > most:
        allowed = "at most 0.5" if most else "0"
        faults.append(f"loss.label_smoothing: expected {allowed} for {why}, got {loss.label_smoothing:g}")
    if loss.z:
        faults.append(f"loss.z: expected 0 for {why}, got {loss.z:g}; only loss.kind=tokens has a z-loss")
    if loss.kind == "dpo" and not loss.beta:
        faults.append(f"loss.beta: expected more than 0 for {why}, got 0, with which every gradient is 0")
    if config.mesh.any_world:
        faults.append(f"mesh.any_world: expected false for {why}, so that each rank has whole pairs")
    return faults


def _regularizer_faults(loss: LossConfig) -> list[str]:
    """Return the faults of label smoothing and the z-loss with a teacher, whose probabilities are soft targets."""
    if not (loss.teacher and loss.is_regularized):
        return []
    return [
        f"loss.{name}: expected 0 with loss.teacher, got {value:g}; leave one of the two out"
        for name, value in (("label_smoothing", loss.label_smoothing), ("z", loss.z))
        if value
    ]
