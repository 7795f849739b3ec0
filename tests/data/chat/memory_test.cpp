// What rendering takes in memory, whatever the template does.
#include <sys/resource.h>

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/data/chat/jinja/json_text.h"

namespace dstrain {
namespace {

constexpr int64_t kMostKilobytes = 256 * 1024;

// Returns the rendered text's size, or -1 where the limit of what is made ends it.
int64_t rendered_bytes(const std::string& text) {
  const ChatTemplate chat_template(text, "t", {});
  jinja::Meter meter = chat_template.meter();
  try {
    return std::ssize(
        chat_template
            .render(jinja::parse_json(R"([{"role": "user", "content": "a"}])"), false, meter)
            .text);
  } catch (const UserError& e) {
    INFO(text);
    CHECK_THAT(e.what(), Catch::Matchers::Contains("of texts and lists") ||
                             Catch::Matchers::Contains("a text is larger than") ||
                             Catch::Matchers::Contains("refuses the conversation"));
    return -1;
  }
}

TEST_CASE("chat template: whatever it makes stays below 256 MiB") {
  CHECK(rendered_bytes("{{ 'b' * 20000000 }}") == 20'000'000);
  const std::string big = "{% set b = 'b' * 10000000 %}", chars = "{% set c = 'a\\n' * 6000000 %}";
  for (const std::string& text : {
           std::string("{{ 'b' * 70000000 }}"),
           std::string("{{ [0] * 20000000 }}"),
           std::string("{{ range(9000000) | list | length }}"),
           std::string("{{ range(3000000) | map('string') | list | length }}"),
           std::string(
               "{{ range(2000000) | join('bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb') }}"),
           std::string("{{ ('a' * 1000000).replace('a', 'b' * 1000) }}"),
           std::string("{{ ('a' * 1000000) | replace('', 'b' * 1000) }}"),
           big + "{{ b.join(['1'] * 1000) }}",
           big + "{{ range(1000) | tojson(separators=(b, b)) }}",
           big + "{{ [1, [b, b, b, b, b, b, b, b, b, b]] }}",
           big + "{{ ['\\x00' * 20000000] }}",
           big + "{{ ('\\x00' * 20000000) | tojson }}",
           big +
               "{% set ns = namespace(s='') %}{% for i in range(99) %}{% set ns.s = ns.s + b %}{% "
               "endfor %}",
           big +
               "{% set ns = namespace(s='') %}{% for i in range(99) %}{% set ns.s = ns.s ~ b %}{% "
               "endfor %}",
           big +
               "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = ns.l + [b ~ i] "
               "%}{% endfor %}",
           big + "{% set ns = namespace(d={}) %}{% for i in range(99) %}{% set ns.d = dict(ns.d, "
                 "a=b ~ i) %}{% set ns.e = {b ~ i: 1} %}{% endfor %}",
           big + "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = ns.l + "
                 "[messages[0][b ~ i] is defined, messages[0][b]] %}{% endfor %}",
           big + "{% for i in range(99) %}{{ b | upper }}{{ b | title }}{{ b[1:] }}{{ b[::-1] }}{% "
                 "endfor %}",
           std::string("{{ ('b' * 60000000) | list | length }}"),
           std::string("{{ ('b' * 60000000)[::-1] | length }}"),
           std::string("{{ ('b' * 60000000)[-1] }}"),
           std::string("{% for c in 'b' * 60000000 %}{{ c }}{% endfor %}"),
           chars + "{{ c.splitlines() | length }}",
           chars + "{{ c.split() | length }}",
           chars + "{{ c.split('a') | length }}",
           chars + "{{ c | indent(1000) | length }}",
           std::string("{% for i in range(2000000) %}{% for j in range(5) %}{% generation %}{% "
                       "endgeneration %}{% endfor %}{% endfor %}"),
           std::string("{{ raise_exception('b' * 60000000) }}"),
       }) {
    INFO(text);
    rendered_bytes(text);
    rusage usage{};
    REQUIRE(::getrusage(RUSAGE_SELF, &usage) == 0);
    CHECK(usage.ru_maxrss < kMostKilobytes);
  }
}

TEST_CASE("chat template: each rendering of a conversation may make as much as the first") {
  const ChatTemplate chat_template("{{ 'b' * 20000000 }}", "t", {});
  jinja::Meter meter = chat_template.meter();
  const jinja::Value messages = jinja::parse_json("[]");
  for (int i = 0; i < 4; ++i)
    CHECK(chat_template.render(messages, false, meter).text.size() == 20'000'000);
}

}  // namespace
}  // namespace dstrain
