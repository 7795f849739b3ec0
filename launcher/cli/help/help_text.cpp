#include "launcher/cli/help/help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace dstrain {
namespace {

constexpr size_t kFewestColumns = 40;

// A line of a table: what is on its left, and the text on its right.
struct HelpRow {
  std::string left, right;
};

// Returns the lines of a text, each of at most `width` characters where its words allow it.
std::vector<std::string> folded(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string& line = lines.back();
    if (line.empty())
      line = word;
    else if (line.size() + 1 + word.size() <= width)
      line += " " + word;
    else
      lines.push_back(word);
  }
  return lines;
}

std::string paragraph(const std::string& text, size_t columns) {
  return fmt::format("{}\n", fmt::join(folded(text, columns), "\n"));
}

// Returns where the right side of rows begins: behind the longest left side that has at most `most_left` characters.
size_t right_column(const std::vector<HelpRow>& rows, size_t most_left) {
  size_t left = 2;
  for (const HelpRow& row : rows)
    if (row.left.size() <= most_left) left = std::max(left, row.left.size());
  return 2 + left + 2;
}

// Returns rows with their right sides at `column`. One whose left side does not fit has its right side below it.
std::string table_of(const std::vector<HelpRow>& rows, size_t column, size_t columns) {
  std::string text;
  for (const HelpRow& row : rows) {
    std::string line = "  " + row.left;
    for (const std::string& part : folded(row.right, columns - column)) {
      if (line.size() + 2 > column) {
        text += line + "\n";
        line.clear();
      }
      line.resize(column, ' ');
      line += part;
    }
    text += line + "\n";
  }
  return text;
}

std::string table_of(const std::vector<HelpRow>& rows, const std::string& heading, size_t most_left,
                     size_t columns) {
  if (rows.empty()) return "";
  return fmt::format("\n{}:\n{}", heading, table_of(rows, right_column(rows, most_left), columns));
}

std::vector<HelpRow> option_rows(const std::vector<OptionHelp>& options) {
  std::vector<HelpRow> rows;
  for (const OptionHelp& option : options) rows.push_back({shown_option(option), option.does});
  return rows;
}

std::string examples_text(const CommandHelp& help, size_t columns) {
  std::vector<HelpRow> rows;
  for (const CommandExample& example : help.examples)
    rows.push_back({example.command, example.says});
  return table_of(rows, "Examples", columns * 2 / 3, columns);
}

// Returns the options in their groups, and what is to be said of their values.
std::string groups_text(const CommandHelp& help, size_t columns) {
  const size_t most_left = columns * 36 / 100;
  const size_t column = right_column(option_rows(all_options(help)), most_left);
  std::string text;
  for (const OptionGroup& group : help.groups)
    text += fmt::format("\n{}:\n{}", group.heading,
                        table_of(option_rows(group.options), column, columns));
  for (const OptionHelp& option : all_options(help)) {
    std::vector<HelpRow> rows;
    for (const KnownValue& value : option.value.words)
      if (!value.does.empty()) rows.push_back({value.word, value.does});
    text += table_of(rows, "Values of " + option.names.back(), most_left, columns);
  }
  if (const std::string note = without_effect_text(help); !note.empty())
    text += "\n" + paragraph(note, columns);
  return text;
}

size_t used_columns(int columns) {
  return std::clamp(static_cast<size_t>(std::max(columns, 0)), kFewestColumns,
                    static_cast<size_t>(kHelpColumns));
}

}  // namespace

std::string help_text(const CommandHelp& help, int columns) {
  const size_t used = used_columns(columns);
  return fmt::format("{}{}\nUsage: {}\n{}", paragraph(help.does, used), examples_text(help, used),
                     usage_of(help), groups_text(help, used));
}

std::string overview_text(const CommandHelp& train, const std::vector<CommandHelp>& commands,
                          int columns) {
  const size_t used = used_columns(columns);
  std::vector<HelpRow> rows;
  for (const CommandHelp& command : commands) {
    const bool needs_no_name = command.name == train.name;
    rows.push_back(
        {fmt::format("dstrain {}{}", needs_no_name ? "[" + command.name + "]" : command.name,
                     command.usage.empty() ? "" : " " + command.usage),
         command.summary});
  }
  return paragraph(kProgramDoes, used) + examples_text(train, used) +
         table_of(rows, "Commands", used * 46 / 100, used) + "\n" +
         paragraph(
             "'dstrain COMMAND --help' has examples and the options of a command; below are those "
             "of train.",
             used) +
         paragraph(fmt::format("Exit status: {}", kExitStatus), used) + groups_text(train, used);
}

}  // namespace dstrain
