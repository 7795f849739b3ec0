#include "launcher/cli/help/command_help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Returns whether a part of a placeholder stands for itself, as "cpu" and "zb-h1" do, unlike "N", "0-3,8" and "a.b=c".
bool stands_for_itself(std::string_view part) {
  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  return std::ranges::any_of(part, is_lower) && std::ranges::all_of(part, [&](char c) {
           return is_lower(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

}  // namespace

ValueHelp value_of_placeholder(const std::string& placeholder) {
  ValueHelp value{.placeholder = placeholder};
  for (const std::string& part : split_words(placeholder)) {
    const std::string_view name = std::string_view(part).substr(part.starts_with('[') ? 1 : 0);
    if (stands_for_itself(name))
      value.words.push_back({std::string(name)});
    else if (name.starts_with("FILE") || name.starts_with("PATH"))
      value.files = FileNames::any;
    else if ((name.starts_with("DIR") || name.starts_with("RUN")) && value.files == FileNames::none)
      value.files = FileNames::folders;
  }
  return value;
}

std::string shown_option(const OptionHelp& option) {
  const std::string& placeholder = option.value.placeholder;
  return fmt::format("{}{}{}", fmt::join(option.names, ", "), placeholder.empty() ? "" : " ",
                     placeholder);
}

std::string usage_of(const CommandHelp& help) {
  const std::string& operand = help.operand.placeholder;
  return fmt::format("dstrain {}{}{} [OPTIONS]", help.name, operand.empty() ? "" : " ", operand);
}

std::string without_effect_text(const CommandHelp& help) {
  if (help.without_effect.empty()) return "";
  return fmt::format("Accepted as in a command line of train, and without effect here: {}.",
                     fmt::join(help.without_effect, ", "));
}

std::vector<OptionHelp> all_options(const CommandHelp& help) {
  std::vector<OptionHelp> options;
  for (const OptionGroup& group : help.groups)
    options.insert(options.end(), group.options.begin(), group.options.end());
  return options;
}

}  // namespace dstrain
