// Limits and errors of chat templates, and where they are found.
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/data/chat/jinja/json_text.h"
#include "runtime/data/chat/template_directory.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;

std::string render(const std::string& text, const jinja::Limits& limits = {}) {
  const ChatTemplate chat_template(text, "t.jinja", {});
  jinja::Meter meter = chat_template.meter(limits);
  return chat_template
      .render(jinja::parse_json(R"([{"role": "user", "content": "Hi"}])"), false, meter)
      .text;
}

std::string many(size_t count, const std::string& text) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

TEST_CASE("chat template: what is not available is named with its line and the way on") {
  const auto refuses = [](const std::string& text, const std::string& message) {
    INFO(text);
    CHECK_THROWS_WITH(render(text),
                      Contains(message) && Contains("--chat_template chatml, llama3 or qwen"));
  };
  refuses("\n{% include 'a' %}", "t.jinja: line 2: {% include %} is not available");
  refuses("{{ 1 }}\n\n{{ messages | xmlattr }}", "t.jinja: line 3: the filter 'xmlattr'");
  refuses("{{ 1 is escaped }}", "line 1: the test 'escaped'");
  refuses("{{ lipsum() }}", "the function 'lipsum'");
  refuses("{{ 'a'.encode() }}", "the method 'encode'");
  refuses("{% if true %}{% macro m() %}{% endmacro %}{% endif %}", "{% macro %} inside");
  refuses("{% for a in [] recursive %}{% endfor %}", "recursive");
  refuses("{{ 'é' | upper }}", "'upper' of a text that is not ASCII");
  refuses("{% set x %}{% generation %}{% endgeneration %}{% endset %}", "{% generation %} inside");
}

TEST_CASE("chat template: hostile templates end with one error") {
  const auto refuses = [](const std::string& text, const std::string& message) {
    INFO(text.substr(0, 200));
    jinja::Limits limits;
    limits.steps = 1'000'000;
    limits.bytes = 100'000'000;
    limits.output = 1'000'000;
    CHECK_THROWS_WITH(render(text, limits), Contains("t.jinja: line ") && Contains(message));
  };
  refuses("{% for a in range(10**12) %}{% endfor %}", "more than 1000000 steps");
  refuses("{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}", "steps");
  refuses("{{ 'a' * 10**15 }}", "of texts and lists");
  refuses(
      "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "of texts");
  refuses(
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}{{ ns.l }}",
      "steps");
  refuses(
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "nested");
  refuses("{% set ns = namespace() %}{% set ns.l = [ns] %}", "a list holds a namespace");
  refuses("{% set ns = namespace() %}{% set ns.l = ns %}", "namespace cannot be a member");
  refuses("{% for a in range(2000) %}" + many(1000, "a") + "{% endfor %}",
          "the rendered text is larger than 1");
  refuses("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested more than 400 deep");
  refuses("{{ " + many(100'000, "(") + "1" + many(100'000, ")") + " }}", "nested");
  refuses("{{ " + many(100'000, "1 + ") + "1 }}", "nested");
  refuses("{{ " + many(100'000, "not ") + "1 }}", "nested");
  refuses("{{ " + many(100'000, "-") + "1 }}", "nested");
  refuses("{{ x" + many(100'000, ".a") + " }}", "nested");
  refuses("{{ " + many(50'000, "1 if 1 else ") + "1 }}", "nested");
  refuses(many(100'000, "{% if 1 %}"), "nested more than 60 deep");
  refuses("{{ 9223372036854775807 + 1 }}", "larger than 64 bits");
  refuses("{{ 99999999999999999999 }}", "is too large");
  CHECK_THROWS_WITH(render(std::string(2'000'000, 'a')), Contains("more than 1048576 bytes"));
  CHECK_THROWS_WITH(render("\xff"), Contains("not UTF-8"));
}

TEST_CASE("chat template: the model's directory, a file, or dstrain's own") {
  const TempDir dir;
  CHECK(open_chat_template(dir.path(), "") == nullptr);
  dir.write(
      "tokenizer_config.json",
      R"({"bos_token": {"content": "<b>"}, "eos_token": null, "chat_template": "1{{ bos_token }}{{ eos_token }}"})");
  dir.write("special_tokens_map.json", R"({"bos_token": "<other>", "eos_token": "<e>"})");
  const auto text = [&](const std::string& given) {
    const auto chat_template = open_chat_template(dir.path(), given);
    jinja::Meter meter = chat_template->meter();
    return chat_template->render(jinja::parse_json("[]"), true, meter).text;
  };
  CHECK(text("") == "1<b><e>");
  dir.write("chat_template.jinja", "2{{ bos_token }}\n");
  CHECK(text("") == "2<b>");
  CHECK(text(dir.write("own.jinja", "3")) == "3");
  CHECK(text("chatml") == "<|im_start|>assistant\n");
  CHECK(text("llama3") == "<b><|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK_THROWS_WITH(text("none"), Contains("--chat_template none: there is no such file"));
  dir.write("chat_template.jinja", "a\n{% x %}");
  CHECK_THROWS_WITH(text(""), Contains("chat_template.jinja: line 2: unexpected {% x %}"));
  CHECK(text("chatml") == "<|im_start|>assistant\n");
  const TempDir several;
  several.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]})");
  const auto chosen = open_chat_template(several.path(), "");
  jinja::Meter meter = chosen->meter();
  CHECK(chosen->render(jinja::parse_json("[]"), false, meter).text == "d");
  several.write("tokenizer_config.json", R"({"chat_template": 5})");
  CHECK_THROWS_WITH(open_chat_template(several.path(), ""),
                    Contains("chat_template: expected a string, found 5"));
}

}  // namespace
}  // namespace dstrain
