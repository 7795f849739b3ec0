// What README.md and docs/ tell the reader to type: the files exist, and the program knows the
// options.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <regex>
#include <sstream>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

// The lines of code blocks, fenced by ``` or indented by four spaces: joined where they end with a
// backslash, without a leading "$ " and without comments.
std::vector<std::string> commands_of(const SourceFile& page) {
  static const std::regex comment("(^|\\s)#.*$");
  std::vector<std::string> commands;
  bool fenced = false, continued = false;
  for (const std::string& raw : page.lines) {
    if (raw.starts_with("```")) {
      fenced = !fenced;
      continued = false;
      continue;
    }
    if (!fenced && !raw.starts_with("    ")) continue;
    std::string line = std::regex_replace(raw, comment, "");
    line.erase(0, line.find_first_not_of(' '));
    if (line.starts_with("$ ")) line.erase(0, 2);
    const bool goes_on = line.ends_with("\\");
    if (goes_on) line.pop_back();
    if (continued)
      commands.back() += line;
    else
      commands.push_back(line);
    continued = goes_on;
  }
  return commands;
}

std::vector<std::string> words_of(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  REQUIRE(pipe);
  std::string text;
  std::array<char, 4096> buffer{};
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), n);
  return text;
}

// --help of `dstrain` or of one of its subcommands.
const std::string& help_of(const std::string& subcommand) {
  static std::map<std::string, std::string> pages;
  auto [page, is_new] = pages.try_emplace(subcommand);
  if (is_new)
    page->second =
        output_of(fmt::format("'{}/bin/dstrain' {} --help 2>&1", DSTRAIN_BINARY_DIR, subcommand));
  return page->second;
}

std::vector<SourceFile> pages() {
  std::vector<SourceFile> all = read_sources({"docs"}, {".md"});
  all.push_back(read_source("README.md"));
  return all;
}

TEST_CASE("every file that a documented command names exists") {
  static const std::regex own(
      "(\\./)?((scripts|configs|\\.ci|tests|benchmarks|models|docs)/[^*{}<>\\[\\]]+)");
  std::vector<std::string> absent;
  int seen = 0;
  for (const SourceFile& page : pages()) {
    for (const std::string& command : commands_of(page)) {
      for (const std::string& word : words_of(command)) {
        std::smatch match;
        if (!std::regex_match(word, match, own)) continue;
        ++seen;
        if (!std::filesystem::exists(source_root() / match[2].str()))
          absent.push_back(fmt::format("{}: {}", page.path, word));
      }
    }
  }
  CHECK(seen > 0);
  CHECK(absent == std::vector<std::string>{});
}

TEST_CASE("every option of a documented dstrain command is in its help") {
  static const std::regex option("(--[a-z_]+)(=.*)?");
  std::vector<std::string> unknown;
  int seen = 0;
  for (const SourceFile& page : pages()) {
    for (const std::string& command : commands_of(page)) {
      const std::vector<std::string> words = words_of(command);
      if (words.empty() || !(words[0] == "dstrain" || words[0].ends_with("/dstrain"))) continue;
      const bool has_subcommand =
          words.size() > 1 && (words[1] == "plan" || words[1] == "check" || words[1] == "generate");
      const std::string& help = help_of(has_subcommand ? words[1] : "");
      for (const std::string& word : words) {
        std::smatch match;
        if (!std::regex_match(word, match, option)) continue;
        ++seen;
        if (!std::regex_search(help, std::regex(match[1].str() + "\\b")))
          unknown.push_back(fmt::format("{}: {}: {}", page.path, words[0], word));
      }
    }
  }
  CHECK(seen > 0);
  CHECK(unknown == std::vector<std::string>{});
}

TEST_CASE("commands are read from fenced and indented blocks, joined and without comments") {
  const SourceFile page{"x.md",
                        {"dstrain a", "```sh", "$ dstrain \\", "  --steps 1  # one", "```", "text",
                         "    dstrain plan"}};
  const std::vector<std::string> commands = commands_of(page);
  REQUIRE(commands.size() == 2);
  CHECK(words_of(commands[0]) == std::vector<std::string>{"dstrain", "--steps", "1"});
  CHECK(words_of(commands[1]) == std::vector<std::string>{"dstrain", "plan"});
}

}  // namespace
}  // namespace dstrain::meta
