#include "runtime/config/keys/key_table_markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/text.h"

namespace dstrain {

std::string key_table_markdown(const ModelRegistry& models) {
  const auto escaped = [](std::string_view text) {  // "|" ends a cell
    return fmt::format("{}", fmt::join(split_words(text), "\\|"));
  };
  const auto default_of = [](const KeySpec& spec) {
    if (spec.fallback.empty()) return std::string();
    if (spec.automatic.empty() || spec.automatic == spec.fallback)
      return fmt::format("`{}`", spec.fallback);
    return fmt::format("`{}`; auto: `{}`", spec.fallback, spec.automatic);
  };
  // Returns the key whose values one takes that is another name of it, unless that has a form of its own.
  const auto typed_as = [&models](const KeySpec& spec) -> const KeySpec& {
    if (spec.alias.empty() || spec.rule) return spec;
    const auto& keys = models.keys();
    const auto target = std::ranges::find(keys, spec.alias, &KeySpec::key);
    return target == keys.end() ? spec : *target;
  };
  std::vector<std::pair<std::string, std::string>> sections;  // name, rows; in the table's order
  for (const KeySpec& spec : models.keys()) {
    const bool top = spec.key.find('.') == std::string_view::npos && spec.type != Type::section &&
                     spec.type != Type::opaque;
    const std::string name(top ? "top level" : spec.key.substr(0, spec.key.find('.')));
    auto section = std::ranges::find(sections, name, &std::pair<std::string, std::string>::first);
    if (section == sections.end()) section = sections.insert(section, {name, ""});
    const std::string state = !spec.alias.empty() ? fmt::format("as `{}`", spec.alias)
                              : spec.rule         ? std::string(spec.rule->published)
                                                  : std::string(name_of(spec.state));
    const std::string only =
        spec.only.empty() ? "" : fmt::format(" ({})", fmt::join(split_words(spec.only), ", "));
    section->second += fmt::format("| `{}`{} | {} | {} | {} | {} |\n", spec.key, only,
                                   escaped(expectation(typed_as(spec))), default_of(spec),
                                   escaped(state), spec.note);
  }
  std::string text =
      "# Every key and its state\n\n"
      "Generated from the program's key table; a test compares the two. States follow DeepSpeed "
      "0.19.8:\n"
      "**honoured** (does what DeepSpeed's does), **no_effect** (legal, changes nothing here),\n"
      "**refused** (never here; the message says what to use), **not_yet** (not available yet).\n"
      "The last two stop a run, as do **unknown** keys (the nearest name is shown) and values in\n"
      "**error**. A key that is not in this table is unknown. Keys whose names\n"
      "begin with `_`, `//` or `#`, and `$schema`, `comment` and `description`, are comments. A "
      "key\n"
      "named by `--ignore KEY` or in `dstrain.ignore` counts as not written. `\"auto\"` is the "
      "default,\n"
      "Hugging Face's where the table has one, or what the table says. It is legal for every value "
      "that\n"
      "is not a section; a required key counts as missing with it, unless the table says what it "
      "is.\n"
      "A name in brackets is the type of optimizer, scheduler or model that has the key.\n";
  for (const auto& [name, rows] : sections)
    text += fmt::format("\n## {}\n\n| key | value | default | state | |\n|---|---|---|---|---|\n{}",
                        name, rows);
  return text;
}

}  // namespace dstrain
