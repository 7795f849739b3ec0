// What Llama and its relatives have in common: the token embedding; blocks of RMS norm, rotary attention, whose keys and
// values may have fewer heads, RMS norm and a gated MLP; a final norm and a head. Keys and tensors have the names of
// Hugging Face's config.json and files. A family says in data what is different in its own.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/decoder/rotary_keys.h"
#include "runtime/config/family/family.h"
#include "runtime/ir/op.h"

namespace dstrain::models {

// transformers' defaults of a family's keys, as JSON text; empty: unset, and then as the note of the key says.
struct DecoderDefaults {
  std::string_view num_hidden_layers = "32", hidden_size = "4096", num_attention_heads = "32",
                   vocab_size = "32000", intermediate_size = "11008", num_key_value_heads = "",
                   max_position_embeddings = "2048", head_dim = "", sliding_window = "4096",
                   tie_word_embeddings = "false", rms_norm_eps = "1e-06";
};

// The norms of a family.
struct NormPart {
  bool centred = false;     // weights are held minus 1 (RmsNormAttrs)
  bool of_results = false;  // what attention and the MLP add to the residual stream has norms, too
};

// Which products of attention have biases.
enum class AttentionBiases : uint8_t {
  none,
  by_key,  // all four, if attention_bias says so
  inputs,  // queries, keys and values, always
};

// Which layers see no more keys than sliding_window says.
enum class WindowedLayers : uint8_t {
  none,
  all,
  by_key,  // if use_sliding_window is true, those of layer_types, or else all from max_window_layers on
  most,  // those of layer_types, or else all but every n-th
};
struct WindowPart {
  WindowedLayers layers = WindowedLayers::none;
  // With `most`: n, and whether sliding_window_pattern may say another.
  int64_t whole_every = 0;
  bool pattern_key = false;
};

// How attention makes scores and logits.
struct ScoresPart {
  bool head_norms = false;  // RMS norms of the queries and keys of each head
  bool scalar_key =
      false;  // scores are divided by the root of query_pre_attn_scalar, not of the size of a head
  bool whole_norms = false;  // RMS norms of all queries and of all keys of a row
  // Defaults of attn_logit_softcapping and final_logit_softcapping as JSON text, "0.0": none; empty: no such key.
  std::string_view softcap = {}, logits_softcap = {};
  std::string_view clip = {};  // the same of clip_qkv, which limits queries, keys and values
};

// Latent attention (DeepSeek-AI, 2024): queries, and keys and values together, are products of products with few columns.
// A head of queries and keys has columns without positions and, behind them, rotated ones, which are the same in all heads of
// keys. Defaults as JSON text.
struct LatentPart {
  std::string_view query_rank =
      {};                      // of q_lora_rank, which may be null: queries are one product then
  std::string_view rank = {};  // of kv_lora_rank; empty: the family has no latent attention
  std::string_view plain = {}, rotated = {}, values = {};  // columns of a head

  constexpr bool exists() const { return !rank.empty(); }
};

// The gated MLP.
struct MlpPart {
  bool bias_key = false;                                         // mlp_bias
  std::string_view activation_key = "dstrain.model.hidden_act";  // of the gate
  std::string_view activation = "\"silu\"";                      // its default, as JSON text
  bool gelu_is_tanh = false;  // "gelu" is an old name of its tanh form
};

// The gated MLP that all rows have beside their experts. `path`, as in MixturePart, is the key of its channels or, `in_experts`, of
// how many experts' channels it has; empty: there is none.
struct SharedPart {
  std::string_view path = {}, fallback = {};
  bool in_experts = false;
  std::string_view block = "shared_expert";  // a part of tensors' names
  bool gated = true;                         // each row has a share of it, which the row decides

  constexpr bool exists() const { return !path.empty(); }
};

// The experts that layers have instead of one gated MLP: of each row that the router scores, the best ones, by their shares.
// Paths of keys begin with "dstrain.model."; defaults are JSON text.
struct MixturePart {
  // The number of experts of a layer, and another name of it; empty: layers have one MLP each.
  std::string_view experts_path = {}, experts_alias = {}, experts = {};
  std::string_view per_token = {};  // of num_experts_per_tok
  std::string_view width_path = "dstrain.model.intermediate_size", width = {};  // of an expert
  // These are parts of tensors' names: the block in a layer, and the products of an expert.
  std::string_view block = "mlp", gate = "gate_proj", up = "up_proj", down = "down_proj";
  // Whether the weights of a row's experts add up to 1 always, or where norm_topk_prob, with this default, says so.
  bool always_normalised = false;
  std::string_view normalised = "false";
  RouterScores scores = RouterScores::softmax;
  // The defaults of n_group and topk_group, by which the best groups of experts count, and of routed_scaling_factor, by which
  // weights are multiplied. Empty: there are no such keys.
  std::string_view groups = {}, kept_groups = {}, scaling = {};
  bool choice_bias =
      false;  // choices, but not weights, are by scores and a registered buffer together
  bool rounded_weights = true;  // to the run's dtype
  SharedPart shared{};
  bool some_layers = false;  // those that mlp_only_layers and decoder_sparse_step say
  std::string_view dense_first =
      {};                   // of first_k_dense_replace: layers without experts; empty: no such key
  bool has_jitter = false;  // router_jitter_noise
  std::string_view balance =
      "0.001";  // of router_aux_loss_coef; empty: there is no loss that balances

  constexpr bool has_experts() const { return !experts_path.empty(); }
  constexpr std::string_view experts_key() const { return name_of_path(experts_path); }
  constexpr std::string_view width_key() const { return name_of_path(width_path); }
  constexpr std::string_view shared_key() const { return name_of_path(shared.path); }
  // Returns whether layers may differ in whether they have experts.
  constexpr bool layers_differ() const { return some_layers || !dense_first.empty(); }

 private:
  static constexpr std::string_view name_of_path(std::string_view path) {
    return path.substr(path.rfind('.') + 1);
  }
};

// What a family of decoders has otherwise than Llama.
struct DecoderParts {
  NormPart norms{};
  AttentionBiases biases = AttentionBiases::none;
  WindowPart windows{};
  RotaryPart rotary{};
  ScoresPart scores{};
  LatentPart latent{};
  MlpPart mlp{};
  MixturePart mixture{};
  bool null_head_dim = false;     // files may have head_dim as null, and keep it
  bool scaled_embedding = false;  // embeddings are multiplied by the root of hidden_size
};

// What names a family: its model_type, its name for people, and its class in transformers.
struct DecoderNames {
  std::string_view type, title, architecture;
};

// Returns the family with these names, defaults and parts.
ModelFamily decoder_family(const DecoderNames& names, const DecoderDefaults& defaults,
                           const DecoderParts& parts);

}  // namespace dstrain::models
