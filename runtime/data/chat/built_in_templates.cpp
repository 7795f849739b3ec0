// Templates for models that bring none, with marks of the assistant's text.
#include <array>
#include <utility>

#include "runtime/data/chat/chat_template.h"

namespace dstrain {
namespace {

constexpr std::string_view kChatml = R"({%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.role == "assistant" -%}
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}
{%- else -%}
{{ message.content }}<|im_end|>
{%- endif %}
{{ "\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- "<|im_start|>assistant\n" }}
{%- endif %})";

// ChatML, with a system message where the conversation begins with none.
constexpr std::string_view kQwen = R"({%- if messages and messages[0].role != "system" %}
{{- "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" }}
{%- endif %}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.role == "assistant" -%}
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}
{%- else -%}
{{ message.content }}<|im_end|>
{%- endif %}
{{ "\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- "<|im_start|>assistant\n" }}
{%- endif %})";

constexpr std::string_view kLlama3 = R"({{- bos_token | default("<|begin_of_text|>") }}
{%- for message in messages %}
{{- "<|start_header_id|>" ~ message.role ~ "<|end_header_id|>\n\n" }}
{%- if message.role == "assistant" -%}
{% generation %}{{ message.content | trim }}<|eot_id|>{% endgeneration %}
{%- else %}
{{- message.content | trim }}<|eot_id|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- "<|start_header_id|>assistant<|end_header_id|>\n\n" }}
{%- endif %})";

}  // namespace

std::string_view built_in_template(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTemplates = {
      {{"chatml", kChatml}, {"llama3", kLlama3}, {"qwen", kQwen}}};
  for (const auto& [own, text] : kTemplates)
    if (own == name) return text;
  return {};
}

}  // namespace dstrain
