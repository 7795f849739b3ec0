// Limits and errors of chat templates, and where they are found.
#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/data/chat/jinja/json_text.h"
#include "runtime/data/chat/template_directory.h"
#include "tests/data/tokenizer/golden_files.h"
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
    CHECK_THROWS_WITH(render(text), Contains(message) && Contains("own (chatml, llama3 or qwen)") &&
                                        Contains("dstrain.data.chat_template"));
  };
  refuses("\n{% include 'a' %}", "t.jinja: line 2: {% include %} is not available");
  refuses("{{ 1 }}\n\n{{ messages | xmlattr }}", "t.jinja: line 3: the filter 'xmlattr'");
  refuses("{{ 1 is escaped }}", "line 1: the test 'escaped'");
  refuses("{{ lipsum() }}", "the function 'lipsum'");
  refuses("{{ 'a'.encode() }}", "the method 'encode'");
  refuses("{% if true %}{% macro m() %}{% endmacro %}{% endif %}", "{% macro %} inside");
  refuses("{% for a in [] recursive %}{% endfor %}", "recursive");
  refuses("{{ 'é' | title }}", "'title' of a text that is not ASCII");
  refuses("{% for a in [1] %}{{ loop.changed(a) }}{% endfor %}", "loop.changed is not available");
  refuses("{{ '1_000' | int }}", "the filter 'int' of digits with _");
  refuses("{{ 'é' | upper }}", "'upper' of a text that is not ASCII");
  refuses("{% set x %}{% generation %}{% endgeneration %}{% endset %}", "{% generation %} inside");
}

TEST_CASE("chat template: title, int and loop are as Jinja has them") {
  CHECK(render("{{ \"they're bill's\" | title }}|{{ \"they're\".title() }}") ==
        "They're Bill's|They'Re");
  CHECK(render("{{ 'foo-bar_baz (qUX){a [b <c' | title }}|{{ '3a b2C d.e' | title }}") ==
        "Foo-Bar_baz (Qux){A [B <C|3a B2c D.e");
  CHECK(render("{{ '3.7' | int }} {{ '-3.7 ' | int }} {{ '1e3' | int }} {{ 'abc' | int(7) }} "
               "{{ 'inf' | int }} {{ '.5' | int }} {{ '+-3' | int }} {{ ' +3' | int }} "
               "{{ 3.9 | int }} {{ none | int }} {{ [] | int }} {{ '0x1f' | int }}") ==
        "3 -3 1000 7 0 0 0 3 3 0 0 0");
  CHECK_THROWS_WITH(render("{{ '99999999999999999999' | int }}"),
                    Contains("an integer is larger than 64 bits"));
  CHECK(render("{% for a in [1, 2] %}{{ loop.depth }}{% for b in [1] %}{{ loop.depth }}"
               "{{ loop.depth0 }}{% endfor %}{% endfor %}") == "110110");
  CHECK(render("{% for a in [1, 2] %}{{ loop.previtem }}{{ loop.nextitem is defined }},"
               "{% endfor %}") == "True,1False,");
}

TEST_CASE("chat template: what select and map give is read by list, loops and filters alone") {
  const std::string some =
      "{% set x = [0, 1, 2] | select %}{% set y = messages | map(attribute='role') %}";
  CHECK(render(some + "{{ x | list | length }}{{ y | join }}{{ x | first }}{{ 2 in x }}"
                      "{% for n in x | map('string') %}{{ loop.length ~ n }}{% endfor %}") ==
        "2user1True2122");
  for (const std::string use :
       {"{% if x %}{% endif %}", "{{ 1 if x }}", "{{ not y }}", "{{ x and 1 }}", "{{ y or 1 }}",
        "{{ x }}", "{{ 'a' ~ y }}", "{{ x | length }}", "{{ x | unique | count }}",
        "{{ x | default(1, true) }}", "{% for a in [1] if x %}{% endfor %}"}) {
    INFO(use);
    CHECK_THROWS_WITH(render(some + use), Contains("t.jinja: line 1: what select, reject, map") &&
                                              Contains("put the filter list behind it"));
  }
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
      "a text is larger than 1");
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
          "a text is larger than 1");
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
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  CHECK(open_chat_template(dir.path(), "", tokenizer) == nullptr);
  dir.write(
      "tokenizer_config.json",
      R"({"bos_token": {"content": "<b>"}, "eos_token": null, "chat_template": "1{{ bos_token }}{{ eos_token }}"})");
  dir.write("special_tokens_map.json", R"({"bos_token": "<other>", "eos_token": "<e>"})");
  const auto text = [&](const std::string& given) {
    const auto chat_template = open_chat_template(dir.path(), given, tokenizer);
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
  const auto chosen = open_chat_template(several.path(), "", tokenizer);
  jinja::Meter meter = chosen->meter();
  CHECK(chosen->render(jinja::parse_json("[]"), false, meter).text == "d");
  several.write("tokenizer_config.json", R"({"chat_template": 5})");
  CHECK_THROWS_WITH(open_chat_template(several.path(), "", tokenizer),
                    Contains("chat_template: expected a string, found 5"));
}

TEST_CASE("chat template: tokens that no settings name come from the model's files, by their ids") {
  const TempDir dir;
  const Tokenizer tokenizer = golden_tokenizer("llama3");
  const auto text = [&](const std::string& body) {
    const auto chat_template =
        open_chat_template(dir.path(), dir.write("own.jinja", body), tokenizer);
    jinja::Meter meter = chat_template->meter();
    return chat_template->render(jinja::parse_json("[]"), true, meter).text;
  };
  const auto id = [&](const char* token) { return std::to_string(*tokenizer.id_of(token)); };
  CHECK_THROWS_WITH(text("a\n{{ bos_token }}"),
                    Contains("own.jinja: line 2: there is no bos_token: give it in "
                             "tokenizer_config.json of " +
                             dir.path()));
  CHECK_THROWS_WITH(text("{{ eos_token ~ 'a' }}"), Contains("there is no eos_token"));
  CHECK(text("{{ bos_token | default('b') }}{{ eos_token is defined }}{{ unk_token }}") ==
        "bFalse");
  dir.write("config.json", R"({"bos_token_id": )" + id("<|begin_of_text|>") +
                               R"(, "eos_token_id": [)" + id("<|eot_id|>") + ", 1]}");
  CHECK(text("{{ bos_token }}{{ eos_token }}") == "<|begin_of_text|><|eot_id|>");
  dir.write("generation_config.json", R"({"eos_token_id": )" + id("<|end_of_text|>") + "}");
  CHECK(text("{{ bos_token }}{{ eos_token }}") == "<|begin_of_text|><|end_of_text|>");
  dir.write("tokenizer_config.json", R"({"bos_token": null, "eos_token": "<e>"})");
  CHECK(text("{{ bos_token }}{{ eos_token }}") == "<e>");
  dir.write("tokenizer_config.json", "{}");
  dir.write("config.json", R"({"bos_token_id": 4000000})");
  CHECK(text("{{ eos_token }}") == "<|end_of_text|>");
  CHECK_THROWS_WITH(text("{{ bos_token }}"), Contains("no token of the id 4000000"));
}

}  // namespace
}  // namespace dstrain
