#include "runtime/config/keys/table/architectures.h"

#include <fmt/core.h>

#include "runtime/config/text.h"

namespace dstrain {
namespace {

// transformers' model types whose names are near to those of the families here, or that are asked for often.
constexpr std::string_view kOtherArchitectures =
    "albert|apertus|arcee|bamba|bart|bert|biogpt|bloom|chatglm|codegen|codellama|cohere|cohere2|"
    "command-r|dbrx|deberta|deberta-v2|deepseek|deepseek_v2|distilbert|dots1|electra|"
    "ernie4_5|exaone|exaone4|falcon|falcon_h1|falcon_mamba|gemma3n|"
    "glm|glm4|glm4_moe|gpt_bigcode|gpt_j|gpt_neo|gpt_oss|gptj|gptneo|gptneox|granite|"
    "granitemoe|helium|internlm|internlm2|internlm3|jamba|jetmoe|kimi_k2|lfm2|llama4|llama4_text|"
    "llava|llava_next|longformer|mamba|mamba2|megatron-bert|megatron_gpt|minicpm|minicpm3|minimax|"
    "ministral|ministral3|mistral3|mllama|mpt|mt5|nemotron|olmo|olmo2|olmo3|opt|"
    "persimmon|phi|phi3|phi3small|phi4|phimoe|pixtral|qwen|qwen2_5_vl|qwen2_audio|"
    "qwen2_vl|qwen3_5|qwen3_next|qwen3_vl|recurrent_gemma|reformer|"
    "rembert|roberta|roformer|rwkv|seed_oss|smollm3|solar|stablelm|starcoder2|switch_transformers|"
    "t5|umt5|voxtral|xglm|xlm|xlm-roberta|xlnet|yi|zamba|zamba2";

// An architecture with images beside text, and how transformers saves its text model alone.
struct WithImages {
  std::string_view name, way;
};
constexpr WithImages kWithImages[] = {
    {"gemma3",
     "m = Gemma3ForConditionalGeneration.from_pretrained(DIR), t = "
     "Gemma3ForCausalLM(m.config.text_config), "
     "t.model.load_state_dict(m.model.language_model.state_dict()), t.save_pretrained(OTHER)"}};

std::string digits_of(std::string_view text) {
  std::string digits;
  for (const char c : text)
    if (c >= '0' && c <= '9') digits += c;
  return digits;
}

}  // namespace

std::string hint_on_architecture(std::string_view name, const std::vector<std::string>& types) {
  const std::string lower = lower_case(name);
  if (one_of(kOtherArchitectures, lower)) return ": this architecture is not part of dstrain";
  for (const WithImages& other : kWithImages)
    if (other.name == lower)
      return fmt::format(
          ": dstrain does not train images. Save its text model by transformers and train that: {}",
          other.way);
  // A number in a name is a version of an architecture, and seldom mistyped.
  const std::string near = nearest(lower, types);
  if (near.empty() || digits_of(near) != digits_of(lower)) return "";
  return fmt::format(" (did you mean \"{}\"?)", near);
}

}  // namespace dstrain
