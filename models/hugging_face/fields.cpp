#include "models/hugging_face/fields.h"

#include <fmt/core.h>

#include "runtime/config/family/hugging_face.h"
#include "runtime/config/json/reader.h"

namespace dstrain::models {
namespace {

constexpr Rule kFixed{
    [](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
      if (json_text(value) == json_text(read_value(spec.fallback, Source::file)))
        return {State::no_effect, "the usual"};
      return {State::not_yet, fmt::format("{}: only {} is available", spec.note, spec.fallback)};
    },
    "the default: no_effect; else not_yet"};

constexpr Rule kRefused{[](const Facts&, const KeySpec& spec, const Node&) -> Judgement {
                          return {State::refused, std::string(spec.note)};
                        },
                        "null: no_effect; else refused"};

KeySpec refused(std::string_view key, std::string_view note) {
  return {.key = key, .type = Type::any, .note = note, .rule = &kRefused};
}

// Returns the class of transformers' that widens weights of a method; empty: none does, or nobody asks for it.
std::string_view widening_class(std::string_view method) {
  if (method == "mxfp4") return "Mxfp4Config";
  return method == "fp8" ? "FineGrainedFP8Config" : "";
}

// Returns whether files have weights in 8 bits as they are read here (runtime/storage/weights/fp8_blocks.h).
bool reads_quantized(const Node& value) {
  const auto is = [&value](std::string_view name, std::string_view only) {
    const Member* const m = value.member(name);
    return !m || json_text(m->value) == only;
  };
  const Member* const method = value.member("quant_method");
  return method && method->value.text == "fp8" && is("fmt", "\"e4m3\"") &&
         is("weight_block_size", "[128, 128]") && is("scale_fmt", "\"float\"") &&
         is("expert_dtype", "\"fp8\"");
}

constexpr Rule kQuantized{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      if (value.is(Node::Kind::null)) return {State::no_effect, "unset"};
      if (reads_quantized(value))
        return {State::honoured,
                "weights are widened when they are read, and a run writes them so"};
      const Member* const method = value.member("quant_method");
      const std::string_view widens = widening_class(method ? method->value.text : "");
      if (widens.empty())
        return {State::refused,
                "its weights are quantized: take the model's unquantized ones, or let transformers "
                "dequantize and save them"};
      return {State::refused,
              fmt::format("its weights are quantized: let transformers widen and save them: m = "
                          "AutoModelForCausalLM.from_pretrained(DIR, "
                          "quantization_config={}(dequantize=True)), m.save_pretrained(OTHER)",
                          widens)};
    },
    "null: no_effect; fp8 in blocks of 128 x 128: honoured; else refused"};

constexpr Rule kDtype{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      if (value.text.ends_with("float64"))
        return {State::no_effect, "there is no fp64: files have fp32", false, true};
      return {};
    },
    "float64: no_effect, with a warning; else honoured"};

// Some programs write the names that torch prints.
KeySpec dtype_of_files(std::string_view key) {
  return {.key = key,
          .type = Type::choice,
          .note = "of the weights in files; the run's is that of bf16 and fp16",
          .rule = &kDtype,
          .choices =
              "float32|float16|bfloat16|float64|torch.float32|torch.float16|"
              "torch.bfloat16|torch.float64"};
}

constexpr std::string_view kOfPrograms = "what wrote the file", kOfTokens = "the tokenizer's",
                           kOfOutputs = "what transformers returns",
                           kOfHeads = "of another head than the language model's",
                           kOfDecoding = "generation is dstrain generate's";

}  // namespace

KeySpec harmless(std::string_view key, std::string_view note) {
  return {.key = key, .type = Type::any, .state = State::no_effect, .note = note};
}

KeySpec fixed(std::string_view key, Type type, std::string_view only, std::string_view note) {
  return {
      .key = key, .type = type, .fallback = only, .note = note, .rule = &kFixed, .nullable = true};
}

std::vector<KeySpec> fields_with(const std::vector<KeySpec>& own) {
  std::vector<KeySpec> all{
      dtype_of_files(kDtypeOfFiles),
      dtype_of_files(kOldDtypeOfFiles),
      harmless("dstrain.model.architectures", "the model has the language model's head"),
      harmless("dstrain.model.transformers_version", kOfPrograms),
      harmless("dstrain.model.name_or_path", kOfPrograms),
      harmless("dstrain.model.unsloth_fixed", kOfPrograms),
      harmless("dstrain.model.unsloth_version", kOfPrograms),
      harmless("dstrain.model.tokenizer_class", kOfTokens),
      harmless("dstrain.model.bos_token_id", kOfTokens),
      harmless("dstrain.model.eos_token_id", kOfTokens),
      harmless("dstrain.model.pad_token_id", kOfTokens),
      harmless("dstrain.model.sep_token_id", kOfTokens),
      harmless("dstrain.model.decoder_start_token_id", kOfTokens),
      harmless("dstrain.model.prefix", kOfTokens),
      harmless("dstrain.model.use_cache", "training keeps no cache"),
      harmless("dstrain.model.output_past", "training keeps no cache"),
      harmless("dstrain.model.return_dict", kOfOutputs),
      harmless("dstrain.model.output_attentions", kOfOutputs),
      harmless("dstrain.model.output_hidden_states", kOfOutputs),
      harmless("dstrain.model.torchscript", kOfOutputs),
      harmless("dstrain.model.attn_implementation", "attention never stores its scores here"),
      harmless("dstrain.model.chunk_size_feed_forward", "the plan decides"),
      harmless("dstrain.model.gradient_checkpointing", "see dstrain.recompute"),
      harmless("dstrain.model.use_bfloat16", "see bf16.enabled"),
      harmless("dstrain.model.finetuning_task", kOfHeads),
      harmless("dstrain.model.id2label", kOfHeads),
      harmless("dstrain.model.label2id", kOfHeads),
      harmless("dstrain.model.num_labels", kOfHeads),
      harmless("dstrain.model.problem_type", kOfHeads),
      harmless("dstrain.model.classifier_dropout", kOfHeads),
      harmless("dstrain.model.task_specific_params", kOfDecoding),
      harmless("dstrain.model.max_length", kOfDecoding),
      harmless("dstrain.model.min_length", kOfDecoding),
      harmless("dstrain.model.max_new_tokens", kOfDecoding),
      harmless("dstrain.model.do_sample", kOfDecoding),
      harmless("dstrain.model.early_stopping", kOfDecoding),
      harmless("dstrain.model.num_beams", kOfDecoding),
      harmless("dstrain.model.num_beam_groups", kOfDecoding),
      harmless("dstrain.model.diversity_penalty", kOfDecoding),
      harmless("dstrain.model.temperature", kOfDecoding),
      harmless("dstrain.model.top_k", kOfDecoding),
      harmless("dstrain.model.top_p", kOfDecoding),
      harmless("dstrain.model.typical_p", kOfDecoding),
      harmless("dstrain.model.repetition_penalty", kOfDecoding),
      harmless("dstrain.model.length_penalty", kOfDecoding),
      harmless("dstrain.model.no_repeat_ngram_size", kOfDecoding),
      harmless("dstrain.model.encoder_no_repeat_ngram_size", kOfDecoding),
      harmless("dstrain.model.bad_words_ids", kOfDecoding),
      harmless("dstrain.model.num_return_sequences", kOfDecoding),
      harmless("dstrain.model.output_scores", kOfDecoding),
      harmless("dstrain.model.return_dict_in_generate", kOfDecoding),
      harmless("dstrain.model.forced_bos_token_id", kOfDecoding),
      harmless("dstrain.model.forced_eos_token_id", kOfDecoding),
      harmless("dstrain.model.remove_invalid_values", kOfDecoding),
      harmless("dstrain.model.exponential_decay_length_penalty", kOfDecoding),
      harmless("dstrain.model.suppress_tokens", kOfDecoding),
      harmless("dstrain.model.begin_suppress_tokens", kOfDecoding),
      harmless("dstrain.model.tf_legacy_loss", "TensorFlow's"),
      fixed("dstrain.model.is_encoder_decoder", Type::boolean, "false",
            "an encoder beside the decoder"),
      fixed("dstrain.model.add_cross_attention", Type::boolean, "false",
            "attention to an encoder's outputs"),
      fixed("dstrain.model.tie_encoder_decoder", Type::boolean, "false",
            "an encoder with the decoder's weights"),
      harmless("dstrain.model.is_decoder", "attention is causal"),
      harmless("dstrain.model.cross_attention_hidden_size", "there is no attention to an encoder"),
      fixed("dstrain.model.pruned_heads", Type::opaque, "{}", "heads that are left out"),
      {.key = kQuantization, .type = Type::any, .rule = &kQuantized},
      refused("dstrain.model.auto_map",
              "the model is code in its own directory, which dstrain does not run"),
  };
  all.push_back({.key = kAddedTokens,
                 .type = Type::strings,
                 .note = "texts that become tokens of the tokenizer, with new rows where the "
                         "vocabulary has no room"});
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

}  // namespace dstrain::models
