// What a buffer is, its fields say (Buffer::role, copy_of, model_parameter, memory). Its name is for people, and for what looks
// up a whole one: no code tells anything by how it begins or ends.
#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <regex>
#include <set>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

// Where names are made, and where `dstrain plan` shortens them for its table.
const std::set<std::string> kMakeNames{"runtime/ir/builder/builder.cpp",
                                       "runtime/ir/builder/adapters.cpp",
                                       "runtime/plan/report/print.cpp"};

std::vector<SourceFile> sources() {
  return read_sources({"runtime/ir", "runtime/optim", "runtime/plan", "runtime/engine", "launcher"},
                      {".h", ".cpp"});
}

// Returns how the names of buffers begin: "staged:".
std::set<std::string> prefixes_in(const std::vector<SourceFile>& files) {
  const std::regex made(R"(name = .*\"([a-z_]+:)\")");
  std::set<std::string> prefixes;
  for (const SourceFile& file : files)
    if (!file.path.starts_with("launcher"))
      for (const std::string& line : without_comments(file.lines))
        if (std::smatch match; std::regex_search(line, match, made)) prefixes.insert(match[1]);
  return prefixes;
}

// Returns whether a line compares or cuts a buffer's name: takes a part of the name of what at() returns or of a buffer, or
// compares anything with how names begin.
bool compares(const std::string& line, const std::set<std::string>& prefixes) {
  static const std::regex cuts(
      R"((at\([^;]*\)|[Bb]uffer\w*|\bb)\.name\)?\.(starts_with|ends_with|find|rfind|substr|compare)\()"),
      quoted(R"((starts_with|ends_with|find|rfind|==|!=)[ (]*\"([a-z_]+:?)[^\"]*\")"),
      constant(R"((constexpr|const) [^=]*= *\{?\"([a-z_]+:)\")");
  if (std::regex_search(line, cuts)) return true;
  std::smatch match;
  return (std::regex_search(line, match, quoted) || std::regex_search(line, match, constant)) &&
         prefixes.contains(match[2]);
}

TEST_CASE("the names of buffers are compared nowhere but where they are made") {
  const std::vector<SourceFile> files = sources();
  const std::set<std::string> prefixes = prefixes_in(files);
  for (const char* known : {"staged:", "passing:", "back:", "params:", "gathered:", "narrow:"})
    CHECK(prefixes.contains(known));
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (kMakeNames.contains(file.path)) continue;
    const std::vector<std::string> lines = without_comments(file.lines);
    for (size_t i = 0; i < lines.size(); ++i)
      if (compares(lines[i], prefixes)) found.push_back(fmt::format("{}:{}", file.path, i + 1));
  }
  CHECK(found == std::vector<std::string>{});
}

TEST_CASE("a comparison of a buffer's name is seen") {
  const std::set<std::string> prefixes{"staged:", "params:"};
  for (const char* line : {R"(  return program.at(program.root(id)).name.ends_with(kSquareSums);)",
                           R"(  if (buffer.name.starts_with(kNarrow)) return;)",
                           R"(  return name.starts_with("params:") ? 1 : 0;)",
                           R"(  for (const Buffer& b : buffers) n += b.name.find("x") != 0;)",
                           R"(constexpr std::string_view kStaged = "staged:";)",
                           R"(constexpr std::string_view kCopies[] = {"staged:", "re:"};)"})
    CHECK(compares(line, prefixes));
  for (const char* line :
       {R"(  copy.name = "staged:" + copy.name;)", R"(  if (name == "loss") x();)",
        R"(  const BufferId id = program.find(codec_error_name(of));)",
        R"(  return parameter.name.ends_with(".weight");)"})
    CHECK_FALSE(compares(line, prefixes));
}

}  // namespace
}  // namespace dstrain::meta
