// What README.md and the other pages tell the reader: commands that the program takes, files and headings
// that exist.
#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <regex>

#include "launcher/cli/parse_arguments.h"
#include "models/registry.h"
#include "runtime/core/error.h"
#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

// Whether each line of a page stands in a code block: fenced by ```, or indented by four spaces after
// an empty line.
std::vector<bool> in_code(const SourceFile& page) {
  std::vector<bool> code;
  bool fenced = false, indented = false, after_empty = true;
  for (const std::string& line : page.lines) {
    const size_t text = line.find_first_not_of(' ');
    const bool empty = text == std::string::npos;
    const bool fence = !empty && line.compare(text, 3, "```") == 0;
    if (fence) fenced = !fenced;
    indented = !empty && text >= 4 && (indented || after_empty);
    code.push_back(!fence && !empty && (fenced || indented));
    after_empty = empty;
  }
  return code;
}

// The commands of code blocks: lines joined where they end with a backslash, without a leading "$ " and
// without comments.
std::vector<std::string> commands_of(const SourceFile& page) {
  static const std::regex comment("(^|\\s)#.*$");
  const std::vector<bool> code = in_code(page);
  std::vector<std::string> commands;
  bool continued = false;
  for (size_t i = 0; i < page.lines.size(); ++i) {
    if (!code[i]) {
      continued = false;
      continue;
    }
    std::string line = std::regex_replace(page.lines[i], comment, "");
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

// As a shell splits it: at blanks outside quotes; what follows a pipe, a redirection or the command's
// end is left out.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  bool inside = false;
  for (const char c : command + " ") {
    if (quote == 0 && (c == '|' || c == '>' || c == ';' || c == '&')) break;
    if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? 0 : c;
      inside = true;
    } else if (quote == 0 && c == ' ') {
      if (inside) words.push_back(word);
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  return words;
}

bool is_program(const std::string& word) {
  return word == "dstrain" || word.ends_with("/dstrain");
}

// Where a command runs dstrain, the index of the first word after it: directly, behind NAME=value
// settings, or under mpirun. Else 0.
size_t first_argument(const std::vector<std::string>& words) {
  static const std::regex setting("[A-Z0-9_]+=.*");
  bool under_mpirun = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (is_program(words[i])) return i + 1;
    under_mpirun = under_mpirun || words[i] == "mpirun";
    if (!under_mpirun && !std::regex_match(words[i], setting)) break;
  }
  return 0;
}

struct Findings {
  int seen = 0;
  std::vector<std::string> wrong;
};

// Every file of ours that a command names exists.
void look_for_files(const SourceFile& page, Findings& findings) {
  static const std::regex own(
      "(\\./)?((scripts|configs|\\.ci|tests|benchmarks|models|docs)/[^*{}<>\\[\\]]+)");
  for (const std::string& command : commands_of(page)) {
    for (const std::string& word : words_of(command)) {
      std::smatch match;
      if (!std::regex_match(word, match, own)) continue;
      ++findings.seen;
      if (!std::filesystem::exists(source_root() / match[2].str()))
        findings.wrong.push_back(fmt::format("{}: {}: no such file", page.path, word));
    }
  }
}

// Every dstrain command is one that the program's own parser takes.
void parse_commands(const SourceFile& page, Findings& findings) {
  for (const std::string& command : commands_of(page)) {
    const std::vector<std::string> words = words_of(command);
    const size_t first = first_argument(words);
    if (first == 0) continue;
    ++findings.seen;
    try {
      parse_arguments({words.begin() + static_cast<std::ptrdiff_t>(first), words.end()},
                      model_registry());
    } catch (const UserError& e) {
      findings.wrong.push_back(fmt::format("{}: {}: {}", page.path, command, e.what()));
    }
  }
}

// The heading as a link names it: lower case, hyphens for blanks, without other punctuation.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ' || c == '-')
      anchor += '-';
    else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return anchor;
}

bool has_heading(const SourceFile& page, const std::string& anchor) {
  static const std::regex heading("#+ (.*)");
  const std::vector<bool> code = in_code(page);
  for (size_t i = 0; i < page.lines.size(); ++i) {
    std::smatch match;
    if (!code[i] && std::regex_match(page.lines[i], match, heading) &&
        anchor_of(match[1].str()) == anchor)
      return true;
  }
  return false;
}

// Every link to another page or heading of the repository leads there.
void look_for_links(const SourceFile& page, Findings& findings) {
  namespace fs = std::filesystem;
  static const std::regex link("\\]\\(([^)#:]*)(#([^)]*))?\\)");
  for (const std::string& line : page.lines) {
    for (std::sregex_iterator it(line.begin(), line.end(), link), end; it != end; ++it) {
      ++findings.seen;
      const std::string target = (*it)[1].str(), anchor = (*it)[3].str();
      const std::string path =
          target.empty() ? page.path
                         : (fs::path(page.path).parent_path() / target).lexically_normal().string();
      if (!target.empty() && !fs::exists(source_root() / path))
        findings.wrong.push_back(fmt::format("{}: {}: no such file", page.path, target));
      else if (!anchor.empty() && !has_heading(target.empty() ? page : read_source(path), anchor))
        findings.wrong.push_back(fmt::format("{}: {}: no such heading", page.path, (*it)[0].str()));
    }
  }
}

// Every file or folder that a page names in its text, as `runtime/core/error.h`, exists.
void look_for_paths(const SourceFile& page, Findings& findings) {
  static const std::regex path(
      "`((runtime|kernels|models|launcher|scripts|configs|\\.ci|tests|benchmarks|docs)/"
      "[^`*{}<> ]+)( [^`]*)?`");
  const std::vector<bool> code = in_code(page);
  for (size_t i = 0; i < page.lines.size(); ++i) {
    if (code[i]) continue;
    const std::string& line = page.lines[i];
    for (std::sregex_iterator it(line.begin(), line.end(), path), end; it != end; ++it) {
      ++findings.seen;
      if (!std::filesystem::exists(source_root() / (*it)[1].str()))
        findings.wrong.push_back(fmt::format("{}: {}: no such file", page.path, (*it)[1].str()));
    }
  }
}

std::vector<SourceFile> pages() {
  std::vector<SourceFile> all = read_sources({"docs", "benchmarks", "tests"}, {".md"});
  for (const char* page : {"README.md", "CHANGELOG.md"}) all.push_back(read_source(page));
  return all;
}

TEST_CASE("every file that a documented command names exists") {
  Findings findings;
  for (const SourceFile& page : pages()) look_for_files(page, findings);
  CHECK(findings.seen > 0);
  CHECK(findings.wrong == std::vector<std::string>{});
}

TEST_CASE("the program takes every documented dstrain command") {
  Findings findings;
  for (const SourceFile& page : pages()) parse_commands(page, findings);
  CHECK(findings.wrong == std::vector<std::string>{});
  Findings using_it;
  parse_commands(read_source("docs/using.md"), using_it);
  CHECK(using_it.seen >= 5);  // its commands stand in indented blocks
}

TEST_CASE("README is one screen") {
  CHECK(read_source("README.md").lines.size() <= 60);
}

TEST_CASE("docs/README.md links to every page") {
  const SourceFile index = read_source("docs/README.md");
  for (const SourceFile& page : read_sources({"docs"}, {".md"})) {
    const std::string name = std::filesystem::path(page.path).filename().string();
    CAPTURE(name);
    CHECK((name == "README.md" ||
           std::any_of(index.lines.begin(), index.lines.end(), [&](const std::string& line) {
             return line.find("(" + name) != std::string::npos;
           })));
  }
}

TEST_CASE("every link and every path in the pages leads to something") {
  Findings links, paths;
  for (const SourceFile& page : pages()) {
    look_for_links(page, links);
    look_for_paths(page, paths);
  }
  CHECK(links.seen > 20);
  CHECK(links.wrong == std::vector<std::string>{});
  CHECK(paths.seen > 20);
  CHECK(paths.wrong == std::vector<std::string>{});
}

TEST_CASE("a link or path that leads nowhere is found") {
  const SourceFile page{"docs/x.md",
                        {"# `plan --json` and more", "[a](#plan---json-and-more), [b](#b)",
                         "[c](README.md), [d](none.md) [e](https://x.org/y) `runtime/core/error.h`",
                         "`runtime/none.h` `tests/none.sh --times 3` `runtime/*.h`"}};
  Findings links, paths;
  look_for_links(page, links);
  CHECK(links.seen == 4);
  CHECK(links.wrong == std::vector<std::string>{"docs/x.md: ](#b): no such heading",
                                                "docs/x.md: none.md: no such file"});
  look_for_paths(page, paths);
  CHECK(paths.wrong == std::vector<std::string>{"docs/x.md: runtime/none.h: no such file",
                                                "docs/x.md: tests/none.sh: no such file"});
}

TEST_CASE("commands are read from fenced and indented blocks, joined and without comments") {
  const SourceFile page{
      "x.md",
      {"dstrain a", "    dstrain b", "```sh", "$ dstrain \\", "  --steps 1  # one", "```", "text",
       "", "    dstrain plan", "", "  ```", "  dstrain c", "  ```"}};
  const std::vector<std::string> commands = commands_of(page);
  REQUIRE(commands.size() == 3);
  CHECK(words_of(commands[0]) == std::vector<std::string>{"dstrain", "--steps", "1"});
  CHECK(words_of(commands[1]) == std::vector<std::string>{"dstrain", "plan"});
  CHECK(words_of(commands[2]) == std::vector<std::string>{"dstrain", "c"});
  CHECK(words_of("a \"b c\" '' d 2>e") == std::vector<std::string>{"a", "b c", "", "d"});
}

TEST_CASE("a wrong command is found in a fenced and in an indented block") {
  const std::string command =
      GENERATE("dstrain --config c.json --num-gpus 2", "dstrain paln --config c.json",
               "OMP_NUM_THREADS=1 build/release/bin/dstrain plan --config c.json --stpes 3",
               "mpirun -np 2 dstrain train --config", "dstrain generate --tokens 3");
  CAPTURE(command);
  for (const SourceFile& page : {SourceFile{"x.md", {"```sh", command, "```"}},
                                 SourceFile{"x.md", {"Run", "", "    " + command}}}) {
    Findings findings;
    parse_commands(page, findings);
    CHECK(findings.seen == 1);
    CHECK(findings.wrong.size() == 1);
  }
}

TEST_CASE("a file that does not exist is found in a fenced and in an indented block") {
  for (const SourceFile& page : {SourceFile{"x.md", {"```sh", "scripts/nothing.sh", "```"}},
                                 SourceFile{"x.md", {"", "    scripts/nothing.sh --data x"}}}) {
    Findings findings;
    look_for_files(page, findings);
    CHECK(findings.wrong == std::vector<std::string>{"x.md: scripts/nothing.sh: no such file"});
  }
}

}  // namespace
}  // namespace dstrain::meta
