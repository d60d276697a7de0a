"""Write compose.json: configs that hydra-core composes from command lines, over configs/clm and the folder tree/ here.

Run once in a separate environment: pip install hydra-core==1.3.8, then python tests/goldens/hydra/write.py
"""

import json
from pathlib import Path, PurePosixPath

import hydra
import omegaconf
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

HERE = Path(__file__).resolve().parent
CLM = HERE.parents[2] / "configs" / "clm"
SEED = [
    "model.config_path=mixtral822.json",
    "per_device_train_batch_size=1",
    "optimizer=ADAMW_TORCH_XLA",
    "checkpoint_manager_path=gs://lizhiyu-multipods-eu-west/moe/checkpoints-20240803/mixtral822/",
    "model.name_or_path=mistralai/Mixtral-8x22B-v0.1",
    "dataset.dataset_name=c4_mlperf",
    "max_steps=250",
    "max_grad_norm=1.0",
    "seed=4321",
    "model.dtype=bfloat16",
    "output_dir=/app/output",
    "max_length=32768",
    "dataset.streaming=True",
    "tensor_parallelism=1",
    "exp_name=convergence_exp",
    "model.capacity_factor=1.25",
    "lr=4e-5",
    "sched=WarmupHoldPolicy",
]
LINES: list[tuple[str, list[str]]] = [
    ("clm", []),
    ("clm", ["+experiment=gbs256_tpu"]),
    ("clm", ["+experiment=convergence_template"]),
    ("clm", ["+experiment=gbs256_tpu", "sched=CosineAnnealing", "lr=1e-4", "~max_grad_norm"]),
    ("clm", SEED),
    (
        "clm",
        [
            "model.config_path=mixtral80.json",
            "eval_frequency=3",
            "n_eval_examples=100",
            "per_device_train_batch_size=4",
            "max_steps=30",
        ],
    ),
    (
        "clm",
        [
            "model.name_or_path=gpt2",
            "eval_frequency=3",
            "n_eval_examples=100",
            "per_device_train_batch_size=4",
            "gradient_accumulation_steps=2",
            "sched.warmup_ratio=0.",
            "max_steps=30",
        ],
    ),
    ("clm", ["sched=CosineAnnealing", "sched.min_lr=0", "+sched.warmup_steps=3", "~sched.warmup_ratio"]),
    ("clm", ["dataset=wikitext", "++new.key={a:1,b:[x,'y z',null,1_000,.5]}", "exp_name=a b"]),
    ("clm", ["++lr=1e-3", "+extra=${max_steps}", "model.fsdp_config.min_num_params=5"]),
    ("clm", ["~dataset", "exp_name=007", "seed=1_0", "shuffle=FALSE", "cache_local_dir=NULL"]),
    (
        "clm",
        [
            "~seed=0",
            "model.fsdp_config.fsdp_transformer_layer_cls_to_wrap=[A,B]",
            "exp_name=${seed_of}",
            "+seed_of=x",
        ],
    ),
    ("clm", ["exp_name='quoted, text'", 'output_dir="/a/b"', "+note=a\\,b", "+sign=-inf", "+empty="]),
    ("clm", ["model={dtype:float32}", "+sched={extra:1}"]),
    ("root", []),
    ("root", ["db=large"]),
    ("root", ["+experiment=both"]),
    ("root", ["+experiment=both", "db=small", "scale=9"]),
    ("root", ["db/engine=fast", "+server=two", "name=x"]),
    ("root", ["db.size=${scale}", "list=[]", "+db.more.deep=1"]),
    ("root", ["~db", "link=1", "text=none"]),
]
WRONG: list[tuple[str, list[str]]] = [
    ("clm", ["max_stepz=3"]),
    ("clm", ["+max_steps=3"]),
    ("clm", ["~max_stepz"]),
    ("clm", ["~seed=1"]),
    ("clm", ["sched=Cosine"]),
    ("clm", ["experiment=gbs256_tpu"]),
    ("clm", ["+sched=CosineAnnealing"]),
    ("clm", ["+experiment=gbs"]),
    ("clm", ["max_steps"]),
    ("clm", ["max_steps=1,2"]),
    ("clm", ["lr=a#b"]),
    ("clm", ["lr=[1"]),
    ("clm", ["lr={a}"]),
    ("clm", ["lr='a"]),
    ("clm", ["a=b=c"]),
    ("clm", ["lr.x=1"]),
    ("clm", ["exp_name=${nothing}"]),
    ("clm", ["exp_name=${exp_name}"]),
    ("clm", ["lr=${multiply:1}"]),
    ("clm", ["lr=${twice:1}"]),
    ("clm", ["++sched=CosineAnnealing"]),
    ("root", ["~db"]),
]


def resolvers() -> None:
    OmegaConf.register_new_resolver("get_global_batch_size", lambda size: size)
    OmegaConf.register_new_resolver("path_join", lambda *parts: str(PurePosixPath(*map(str, parts))))
    OmegaConf.register_new_resolver("multiply", lambda a, b: a * b)
    OmegaConf.register_new_resolver("int_div", lambda a, b: a // b)


def composed(name: str, words: list[str]) -> dict:
    folder = CLM if name == "clm" else HERE / "tree"
    with initialize_config_dir(str(folder), version_base="1.3"):
        config = compose("config" if name == "clm" else name, words)
        tree = OmegaConf.to_container(config, resolve=True)
        return {"config": name, "words": words, "tree": tree, "yaml": OmegaConf.to_yaml(config)}


def main() -> None:
    resolvers()
    lines = [composed(name, words) for name, words in LINES]
    for name, words in WRONG:
        try:
            composed(name, words)
        except Exception:
            continue
        raise SystemExit(f"hydra-core takes {words}")
    found = {
        "hydra-core": hydra.__version__,
        "omegaconf": omegaconf.__version__,
        "lines": lines,
        "wrong": [{"config": name, "words": words} for name, words in WRONG],
    }
    (HERE / "compose.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
