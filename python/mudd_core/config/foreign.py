"""Names from other programs that users type: configs, settings that no grammar here has, and commands."""

# Settings of nanoGPT, the Trainer of HF Transformers, Lightning, MaxText and torchrun, with underscores.
# "" is a setting without a counterpart: no field is suggested for it, but NOTES may say what to do.
_SETTINGS = {
    "train.steps": "max_iters num_steps total_steps train_steps",
    "train.batch_size": "per_device_train_batch_size per_device_batch_size train_batch_size micro_batch_per_gpu "
    "per_gpu_train_batch_size batch bs batchsize b",
    "train.micro_batch_size": "gradient_accumulation_steps grad_accum_steps accumulate_grad_batches grad_accumulation",
    "train.seq_len": "block_size context_length ctx_len max_target_length max_seq_length sequence_length max_length "
    "sequence_len cutoff_len "
    "seq seqlen seq_length ctx n_ctx n_positions bptt",
    "train.epochs": "num_epochs num_train_epochs max_epochs epoch e",
    "lora.rank": "lora_rank lora_r lora_dim",
    "lora.alpha": "lora_alpha",
    "lora.dropout": "lora_dropout",
    "lora.targets": "lora_targets lora_target_modules lora_target target_modules",
    "tune.method": "finetuning_type peft_type use_peft use_lora",
    "train.precision": "fp16 bf16 mixed_precision amp torch_dtype",
    "train.recompute": "gradient_checkpointing activation_checkpointing remat_policy remat",
    "train.save_every": "save_steps save_interval save.every checkpoint_every checkpoint_period checkpoint_interval",
    "train.save_at": "extra_save_iters",
    "train.keep_last": "save_total_limit keep_last_n_checkpoints",
    "train.eval_every": "eval_interval eval.every validate_every validation_every val_every val_interval "
    "val_check_interval",
    "train.log_every": "log_interval log.every log_period print_every",
    "train.patience": "early_stopping early_stop early_stopping_patience",
    "train.seed": "init_weights_seed random_state",
    "train.threads": "num_threads omp_num_threads",
    "eval.batch_size": "per_device_eval_batch_size eval_per_device_batch_size val_batch_size",
    "eval.max_batches": "eval_iters",
    "loss.label_smoothing": "label_smoothing_factor label_smoothing",
    "loss.z": "z_loss_multiplier z_loss z_loss_weight z_loss_coef logit_z_loss logsumexp_weight",
    "optim.name": "optimizer optim opt opt_type",
    "optim.lr": "peak_lr max_lr base_lr lr0 max_learning_rate",
    "optim.weight_decay": "wd",
    "optim.beta1": "adam_beta1 adam_b1 b1",
    "optim.beta2": "adam_beta2 adam_b2 b2",
    "optim.eps": "adam_epsilon adam_eps epsilon",
    "optim.clip": "grad_clip clip_grad gradient_clip_val gradient_clipping_threshold",
    "optim.schedule": "lr_scheduler_type lr_scheduler decay_lr lr_schedule lr_schedule_type",
    "optim.warmup_steps": "warmup_iters warmup_ratio warmup_steps_fraction lr_warmup_steps",
    "optim.schedule_steps": "lr_decay_iters learning_rate_schedule_steps",
    "optim.decay_steps": "wsd_decay_steps_fraction num_decay_steps timescale",
    "optim.final_lr_ratio": "min_lr min_lr_rate learning_rate_final_fraction cosine_learning_rate_final_fraction",
    "model.d_model": "n_embd hidden_size base_emb_dim emb_dim embed_dim d_embed dim hidden_dim embedding_dim emsize",
    "model.n_layer": "num_layers num_hidden_layers base_num_decoder_layers n_layers nlayers num_blocks depth",
    "model.n_head": "num_heads num_attention_heads base_num_query_heads n_heads heads nhead nheads n_attention_heads",
    "model.n_kv_head": "num_key_value_heads base_num_kv_heads n_kv_heads",
    "model.d_ff": "intermediate_size base_mlp_dim mlp_dim ffn_dim ff_dim dim_feedforward nhid n_inner",
    "data.path": "data data_dir data_path dataset_path train_file train_data grain_train_files "
    "text text_file file files corpus data_files",
    "data.eval_path": "validation_file val_file eval_file grain_eval_files",
    "data.mix": "data_mix mix mixture mix_weights train_data_weights data_weights dataset_weights train_data_paths "
    "probabilities sampling_probabilities interleave_probs dataset_mixer data_blend blend train_data_path "
    "grain_train_mixture_config_path",
    "data.mix_until": "stopping_strategy mix_strategy",
    "data.vocab_size": "vocab vocabulary n_vocab",
    "data.dataset": "dataset_name dataset dataset_id",
    "data.dataset_config": "dataset_config_name",
    "data.tokenizer": "tokenizer_path tokenizer_name tokenizer_file",
    "data.workers": "num_workers dataloader_num_workers grain_worker_count",
    "data.column": "text_column text_field",
    "start.load_parameters_path": "init_from load_from pretrained finetune_from",
    "log.wandb": "wandb_log report_to use_wandb",
    "log.wandb_run": "wandb_run_name",
    "--config": "config model model_name model_name_or_path model_type config_name preset c base_model model_id "
    "pretrained_model_name_or_path",
    "--workdir": "workdir out_dir output_dir outdir out output save_dir run_name logdir o "
    "base_output_directory resume_from_checkpoint resume_from resume default_root_dir checkpoint ckpt ckpt_path "
    "checkpoint_path",
    "--ranks": "nproc_per_node world_size num_processes gpus dp data_parallel_size",
    "mesh.zero": "zero_stage",
    "mesh.expert": "expert_parallel_size expert_model_parallel_size expert_parallelism "
    "moe_expert_parallel_size ep ep_size",
    "--prompt": "start prompt_text input_text",
    "--num-samples": "num_return_sequences n_samples n",
    "--plan": "dry_run dryrun plan_only",
    "--verbose": "print_config",
    "--stop": "stop_strings stop_token stop_sequence",
    "sample.max_tokens": "max_new_tokens n_predict max_gen_len num_tokens n_tokens",
    "sample.temperature": "temp",
    "sample.top_k": "topk",
    "sample.top_p": "topp nucleus",
    "": "no_cuda use_cpu cpu cuda pin_memory streaming use_fast_tokenizer save_strategy logging_strategy eval_only "
    "log_dir logging_dir do_sample tied trust_remote_code "
    "device accelerator backend compile torch_compile dropout bias attention tensorboard do_train do_eval "
    "overwrite overwrite_output_dir fresh from_scratch quiet silent q disable_tqdm no_progress json to_json "
    "packing sample_packing load_in_4bit load_in_8bit "
    "evaluation_strategy eval_strategy always_save_checkpoint enable_checkpointing "
    "nnodes node_rank local_rank master_addr master_port rdzv_backend rdzv_endpoint standalone deepspeed fsdp_config "
    "ici_fsdp_parallelism hardware hostfile num_nodes tp tensor_parallel_size tensor_model_parallel_size pp "
    "pipeline_model_parallel_size context_parallel_size",
}
SETTINGS = {theirs: ours for ours, names in _SETTINGS.items() for theirs in names.split()}

ANEW = "the same command resumes a run, another --workdir starts a new one"
# Notes in messages about settings without a counterpart, and about settings whose values have another meaning here.
_NOTES = {
    "mudd_core computes on the CPU": "device accelerator backend hardware no_cuda use_cpu cpu cuda pin_memory",
    "a model is planned when it first runs": "compile torch_compile",
    "the model family of the config decides this": "bias attention tied",
    "only the gpt2 family has dropout": "dropout",
    "this command trains": "do_train",
    "held-out text is read every train.eval_every steps": "do_eval evaluation_strategy eval_strategy",
    "the command validate does that": "eval_only",
    "train.save_every says when the run is saved": "always_save_checkpoint enable_checkpointing save_strategy",
    "train.log_every says when a step is logged": "logging_strategy",
    "metrics and log.txt are in the work directory": "log_dir logging_dir",
    "type > /dev/null after the command; log.txt in the work directory has every line": "quiet silent q disable_tqdm "
    "no_progress",
    "summary.json and metrics.jsonl in the work directory are JSON": "json to_json",
    "it is the number of validations without a lower loss after which a run ends": "early_stopping early_stop "
    "early_stopping_patience",
    "TensorBoard's files are always written, below the work directory": "tensorboard",
    ANEW: "overwrite overwrite_output_dir fresh "
    "from_scratch resume_from_checkpoint resume_from resume init_from",
    "sample.temperature=0 selects the likeliest token": "do_sample",
    "data.path is read as it is": "streaming",
    "the command tune packs examples into sequences": "packing sample_packing",
    "frozen weights keep the type of their files": "load_in_4bit load_in_8bit",
    "type data.mix=web:0.7,code:0.3 data.sources.web.path=FILES data.sources.code.path=FILES": "data_mix mix mixture "
    "mix_weights train_data_weights data_weights dataset_weights train_data_paths probabilities "
    "sampling_probabilities interleave_probs dataset_mixer data_blend blend train_data_path "
    "grain_train_mixture_config_path",
    "type data.mix_until=first for first_exhausted, data.mix_until=all for all_exhausted": "stopping_strategy "
    "mix_strategy",
    "a tokenizer.json needs no such option": "use_fast_tokenizer trust_remote_code",
    "a config defines the model; the command import reads weights": "model_name_or_path",
    "type --ranks=N, and --hosts=A,B for several machines": "nnodes node_rank local_rank master_addr master_port "
    "rdzv_backend rdzv_endpoint standalone hostfile num_nodes",
    "docs/parallel.md explains the alternative: mesh.zero=3 shards larger models": "tp tensor_parallel_size "
    "tensor_model_parallel_size pp pipeline_model_parallel_size context_parallel_size",
    "1 shards the state of the optimizer, 3 shards gradients and weights too": "zero_stage",
    "type --ranks=N; docs/parallel.md explains how ranks divide the work": "deepspeed fsdp_config ici_fsdp_parallelism",
    "it is the number of sequences of one pass: batch size / accumulation steps": "gradient_accumulation_steps "
    "grad_accum_steps accumulate_grad_batches grad_accumulation",
    "it is a number of steps": "warmup_ratio warmup_steps_fraction",
    "it is a fraction of optim.lr": "min_lr",
    "bf16 needs no loss scaling": "fp16 amp",
}
# First arguments of other programs' command lines, and the commands that replace them.
COMMANDS = {
    **dict.fromkeys(("pretrain", "pretraining", "fit", "continue", "run"), "train"),
    **dict.fromkeys(("finetune", "fine-tune", "fine_tune", "finetuning", "sft", "lora"), "tune"),
    **dict.fromkeys(("evaluation", "test", "score", "perplexity"), "validate"),
    **dict.fromkeys(("infer", "inference", "predict", "complete", "write"), "sample"),
    **dict.fromkeys(("talk", "converse", "repl"), "chat"),
    **dict.fromkeys(("plot", "show", "tensorboard", "log", "logs", "status", "view"), "report"),
    **dict.fromkeys(("list", "ls", "models", "presets", "recipes"), "configs"),
    **dict.fromkeys(("tokenize", "prepare"), "data"),
    "download": "import",
    **dict.fromkeys(("push", "upload"), "export"),
    **dict.fromkeys(("bench", "benchmark", "timing"), "profile"),
    **dict.fromkeys(("check", "diagnose", "info", "env"), "doctor"),
    "plan": "--plan",
    "version": "--version",
}
NOTES = {theirs: note for note, names in _NOTES.items() for theirs in names.split()}
# Names of architectures -> the folder of configs/ with that architecture.
_KINDS = {
    "transformer_pp": "llama llama2 llama3 llama-2 llama-3 mistral qwen gemma smollm tinyllama dense "
    "transformer transformer++",
    "gpt2": "gpt gpt-2 nanogpt openai",
    "mixtral": "moe mixture experts mixture-of-experts",
    "muddformer": "mudd dense-connections",
    "mup": "mu mup-transformer mutransformer mu-transformer u-transformer",
    "tokenformer": "tokenformers parameter-tokens",
}
KINDS = {name: folder for folder, names in _KINDS.items() for name in names.split()}
OUTPUTS = ("out", "output", "o")  # options for the file or folder that a command writes
# Scripts of other programs, and the commands that replace them.
SCRIPTS = {
    **dict.fromkeys(
        ("torchrun", "train.py", "main.py", "pretrain.py", "train_gpt.py", "train_gpt2.py"), "train"
    ),
    **dict.fromkeys(("run_clm.py", "clm_train.py"), "clm"),
    **dict.fromkeys(("finetune.py", "sft.py"), "tune"),
    **dict.fromkeys(("sample.py", "generate.py"), "sample"),
    **dict.fromkeys(("eval.py", "evaluate.py"), "validate"),
    "prepare.py": "data",
}
# Configs of other programs -> configs of this project below configs/.
ALIASES = {
    "openai-community/gpt2": "gpt2/gpt2",
    "gpt2": "gpt2/gpt2",
    "distilbert/distilgpt2": "gpt2/distilgpt2",
    "distilgpt2": "gpt2/distilgpt2",
    **{
        f"{owner}gpt2-{size}": f"gpt2/gpt2_{size}"
        for size in ("medium", "large", "xl")
        for owner in ("", "openai-community/")
    },
    "mixtral80.json": "mixtral/mixtral80",
    "mixtral87.json": "mixtral/mixtral87",
    "mixtral822.json": "mixtral/mixtral822",
    "mixtral822-instruct.json": "mixtral/mixtral822_instruct",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral/mixtral87",
    "mistralai/Mixtral-8x22B-v0.1": "mixtral/mixtral822",
    "mistralai/Mixtral-8x22B-Instruct-v0.1": "mixtral/mixtral822_instruct",
    "LlamaMedium": "muddformer/llama_medium",
    "Llama2Medium": "muddformer/llama2_medium",
    "MUDDLlama2Medium": "muddformer/mudd_llama2_medium",
    "Llama7B": "muddformer/llama_7b",
    "MUDDFormer-2.8B": "muddformer/2_8b",
    "Caiyun-AI/MUDDFormer-2.8B": "muddformer/2_8b",
    "MUDDPythia-1.4B": "muddformer/muddpythia_1_4b",
    "Caiyun-AI/MUDDPythia-1.4B": "muddformer/muddpythia_1_4b",
    "MUDDPythia-2.8B": "muddformer/muddpythia_2_8b",
    "Caiyun-AI/MUDDPythia-2.8B": "muddformer/muddpythia_2_8b",
    # TokenFormer: published models, and the yml files of the NeoX program; programs/maxtext reads the JAX files.
    **{
        f"{folder}{theirs}_train_pile.yml": f"tokenformer/{ours}"
        for folder in ("", "configs/tokenformer/")
        for theirs, ours in (("150M", "150m"), ("450M", "450m"), ("900M", "900m"), ("1-5B", "1_5b"))
    },
    **{
        f"Haiyang-W/TokenFormer-{theirs}": f"tokenformer/{ours}"
        for theirs, ours in (("150M", "150m"), ("450M", "450m"), ("900M", "900m"), ("1-5B", "1_5b"))
    },
}
_MUP = ("base", "small", "medium", "large", "huge", *(f"dm{128 << i}" for i in range(7)))
ALIASES |= {f"mu_transformer/configs/{name}.py": f"mup/{name}" for name in _MUP}
ALIASES["mu_transformer/configs/tiny.py"] = (
    "mup/small"  # the original renamed this config; mup/tiny is a config of this project
)
