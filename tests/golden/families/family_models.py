"""The models of the golden results of this folder: small ones of every family, as configurations of transformers."""
import transformers

LENGTH, IDS = 12, 61
DECODER = {"num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 4, "num_key_value_heads": 2,
           "max_position_embeddings": LENGTH, "vocab_size": IDS, "bos_token_id": 1, "eos_token_id": 2}
# PyTorch leaves the gradient of a padding token's embedding out.
GEMMA = {**DECODER, "head_dim": 6, "pad_token_id": None}
LLAMA = {**DECODER, "rms_norm_eps": 3e-4, "head_dim": 10, "attention_bias": True, "mlp_bias": True}


def llama(**rope):
    return transformers.LlamaConfig(**LLAMA, rope_parameters={"rope_theta": 100.0, **rope})


def shorter_llama():
    """A model that was made for fewer positions than the samples have."""
    return transformers.LlamaConfig(**{**LLAMA, "max_position_embeddings": LENGTH - 4},
                                    rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0})


def neox(**other):
    return transformers.GPTNeoXConfig(
        num_hidden_layers=2, hidden_size=24, intermediate_size=36, num_attention_heads=2, max_position_embeddings=LENGTH,
        vocab_size=IDS, layer_norm_eps=3e-4, rope_parameters={"rope_theta": 100.0, "partial_rotary_factor": 0.5},
        bos_token_id=1, eos_token_id=2, **other)


def mixtral(**other):
    return transformers.MixtralConfig(**{**DECODER, "intermediate_size": 18}, num_local_experts=4, **{"sliding_window": 7, **other})


def qwen2_moe(**other):
    return transformers.Qwen2MoeConfig(**DECODER, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=9,
                                       shared_expert_intermediate_size=14, decoder_sparse_step=2, **other)


def olmoe(**other):
    return transformers.OlmoeConfig(**{**DECODER, "intermediate_size": 13, "pad_token_id": None}, num_experts=5, num_experts_per_tok=2, **other)


def deepseek_v3(**other):
    sizes = {"intermediate_size": 30, "num_key_value_heads": 4, "n_routed_experts": 8, "n_group": 4, "topk_group": 2,
             "num_experts_per_tok": 3, "moe_intermediate_size": 9, "n_shared_experts": 2, "first_k_dense_replace": 1, "q_lora_rank": 14,
             "kv_lora_rank": 11, "qk_nope_head_dim": 7, "qk_rope_head_dim": 6, "v_head_dim": 9, "attention_bias": True}
    return transformers.DeepseekV3Config(**{**DECODER, **sizes, **other})


# A case: the model whose weights it starts from, and its configuration.
MODELS = {
    "gpt2": ("gpt2", transformers.GPT2Config(
        n_layer=2, n_embd=20, n_head=4, n_inner=28, n_positions=LENGTH, vocab_size=IDS, layer_norm_epsilon=3e-4,
        tie_word_embeddings=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=1)),
    "llama": ("llama", llama(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=8)),
    "llama_plain": ("llama", llama(rope_type="default")),
    "llama_linear": ("llama", llama(rope_type="linear", factor=2.0)),
    "llama_dynamic": ("llama", shorter_llama()),
    "llama_yarn": ("llama", llama(rope_type="yarn", factor=4.0, original_max_position_embeddings=6)),
    "mistral": ("mistral", transformers.MistralConfig(**{**DECODER, "num_key_value_heads": 1}, sliding_window=5)),
    "qwen2": ("qwen2", transformers.Qwen2Config(
        **DECODER, use_sliding_window=True, sliding_window=4, max_window_layers=1, tie_word_embeddings=True)),
    "qwen3": ("qwen3", transformers.Qwen3Config(**DECODER, head_dim=8, rms_norm_eps=1e-5)),
    "gemma": ("gemma", transformers.GemmaConfig(**{**GEMMA, "num_key_value_heads": 1})),
    # Limits so low that tanh bends scores and logits.
    "gemma2": ("gemma2", transformers.Gemma2Config(
        **GEMMA, sliding_window=5, query_pre_attn_scalar=10, attn_logit_softcapping=1.5,
        final_logit_softcapping=2.5)),
    "gemma3_text": ("gemma3_text", transformers.Gemma3TextConfig(
        **GEMMA, rms_norm_eps=1e-3, final_logit_softcapping=4.0, sliding_window=5, query_pre_attn_scalar=10,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 4.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}})),
    "gpt_neox": ("gpt_neox", neox(use_parallel_residual=True)),
    "gpt_neox_serial": ("gpt_neox", neox(use_parallel_residual=False)),
    "mixtral": ("mixtral", mixtral(num_experts_per_tok=2)),
    "mixtral_one": ("mixtral", mixtral(num_experts_per_tok=1)),
    "mixtral_all": ("mixtral", mixtral(num_experts_per_tok=4, sliding_window=None)),
    "mixtral_balance": ("mixtral", mixtral(num_experts_per_tok=2, output_router_logits=True, router_aux_loss_coef=0.3)),
    "qwen2_moe": ("qwen2_moe", qwen2_moe()),
    "qwen2_moe_balance": ("qwen2_moe", qwen2_moe(output_router_logits=True, norm_topk_prob=True)),
    "qwen3_moe": ("qwen3_moe", transformers.Qwen3MoeConfig(
        **DECODER, head_dim=8, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=11, norm_topk_prob=True,
        mlp_only_layers=[0])),
    "olmoe": ("olmoe", olmoe(clip_qkv=0.9)),
    "olmoe_plain": ("olmoe", olmoe()),
    "deepseek_v3": ("deepseek_v3", deepseek_v3(rope_parameters={
        "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 6, "mscale": 0.9,
        "mscale_all_dim": 0.7})),
    "deepseek_v3_halves": ("deepseek_v3", deepseek_v3(rope_interleave=False, norm_topk_prob=False, routed_scaling_factor=1.3)),
    # No product between rows and queries, wide values, and no layer without experts.
    "deepseek_v3_wide": ("deepseek_v3_wide", deepseek_v3(
        q_lora_rank=None, v_head_dim=15, first_k_dense_replace=0, n_group=1, topk_group=1, num_hidden_layers=1, attention_bias=False)),
}
# Families whose layers ranks do not divide.
UNDIVIDED = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v3", "deepseek_v3_wide")
